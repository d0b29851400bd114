"""Which nodes a pod fits by kube-scheduler's own arithmetic: the sums of a node, without any knowledge of cards.

The extender is asked about the nodes that pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from sandbox.api.kinds import is_over
from sandbox.api.quantities import exact_amount

Sums = dict[str, Decimal]


def pod_requests(pod: Mapping[str, Any]) -> Sums:
    """Return what a pod takes of a node: the sum of containers and sidecars, or more if an init container needs it."""
    spec = pod["spec"]
    sidecars: Sums = {}
    peak: Sums = {}
    for container in spec.get("initContainers") or []:
        requests = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requests)
            requests = dict(sidecars)
        else:
            _add(requests, sidecars)
        peak = _larger(peak, requests)
    running = dict(sidecars)
    for container in spec["containers"]:
        _add(running, _container_requests(container))
    return _larger(running, peak)


def requested_by_node(
    nodes: Iterable[str], pods: Mapping[str, Mapping[str, Any]], assumed: Mapping[str, str]
) -> dict[str, Sums]:
    """Return what the pods of each node that have not ended take together.

    pods     by UID
    assumed  the nodes of pods that have just been bound, by UID
    """
    sums: dict[str, Sums] = {name: {} for name in nodes}
    for uid, pod in pods.items():
        node = pod["spec"].get("nodeName") or assumed.get(uid)
        if node in sums and not is_over(pod):
            _add(sums[node], pod_requests(pod))
    return sums


def reasons_against(pod: Mapping[str, Any], node: Mapping[str, Any], used: Sums) -> list[str]:
    """Return kube-scheduler's reasons why the pod does not fit the node; empty if it fits."""
    if node.get("spec", {}).get("unschedulable"):
        return ["node(s) were unschedulable"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    free = free_amounts(node, used)
    requests = pod_requests(pod)
    return [f"Insufficient {name}" for name, amount in sorted(requests.items()) if amount > free.get(name, 0)]


def free_share(pod: Mapping[str, Any], node: Mapping[str, Any], used: Sums) -> Decimal:
    """Return which share of what the pod requests would stay free on the node, from 0 to 1."""
    free, requests = free_amounts(node, used), pod_requests(pod)
    total = {name: free[name] + used.get(name, 0) for name in requests if free.get(name)}
    shares = [(free[name] - requests[name]) / total[name] for name in total]
    return sum(shares, Decimal(0)) / len(shares) if shares else Decimal(0)


def free_amounts(node: Mapping[str, Any], used: Sums) -> Sums:
    """Return the free amount of each of the node's resources."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {name: exact_amount(str(amount)) - used.get(name, 0) for name, amount in allocatable.items()}


def _container_requests(container: Mapping[str, Any]) -> Sums:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {name: exact_amount(str(amount)) for name, amount in requests.items()}


def _add(sums: Sums, more: Sums) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, Decimal(0)) + amount


def _larger(one: Sums, other: Sums) -> Sums:
    return {name: max(one.get(name, Decimal(0)), other.get(name, Decimal(0))) for name in one | other}
