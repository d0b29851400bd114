"""Snapshots of healthy clusters. A test names only what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from configurator.scheduler_configuration import ExtenderEntry, SchedulerConfiguration
from gas.doctor.all_parts import findings_of
from gas.doctor.checks.clocks import Clock
from gas.doctor.findings import Finding, Level, Unseen
from gas.doctor.objects import Lease
from gas.doctor.snapshot import Call, Reply, SeenScheduler, Snapshot
from gas.inspection.objects import InspectedNode, InspectedPod
from tests.builders import container, described_node, pod_json

NOW = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC."""

NOT_SEEN = Unseen("it may not be seen", "gas doctor --kubeconfig=FILE")

FILE = "/etc/kubernetes/gas/scheduler-config.yaml"


def seen_node_json(
    name: str = "gpu-1",
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    capacity: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    writer: str = "gas-plugin",
) -> dict[str, Any]:
    """Build a node with two cards of 1000 millicores and 8 GB. Names are without ``gpu.intel.com/``."""
    labels = _full({"gpu-numbers": "0.1"} if labels is None else labels)
    resources = {"i915": "20", "millicores": "2000", "memory.max": "16G"} if resources is None else resources
    node = described_node(name, _full(resources), labels=labels, annotations=annotations)
    written: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}}
    node["metadata"]["managedFields"] = [{"manager": writer, "operation": "Update", "fieldsV1": written}]
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    if capacity is not None:
        node["status"]["capacity"] = _full(capacity)
    return node


def seen_node(name: str = "gpu-1", **fields: Any) -> InspectedNode:
    """Build the same node, decoded."""
    return msgspec.convert(seen_node_json(name, **fields), InspectedNode)


def shared_node(**resources: str) -> InspectedNode:
    """Build a node whose two cards are offered in Aliyun's words, too."""
    usual = {"i915": "20", "millicores": "2000", "memory.max": "2097152000"}
    return seen_node(resources=usual | {"aliyun.com/gpu-mem": "2000", "aliyun.com/gpu-count": "2"} | resources)


def _full(names: Mapping[str, str]) -> dict[str, str]:
    return {name if "/" in name else f"gpu.intel.com/{name}": value for name, value in names.items()}


def seen_pod(
    *containers: Mapping[str, Any],
    ready: bool = True,
    message: str = "",
    spec: Mapping[str, Any] | None = None,
    **fields: Any,
) -> InspectedPod:
    """Build a pod as `tests.builders.pod_json` does. ``message`` is the scheduler's about it."""
    built = pod_json(*containers, **fields)
    built["spec"] |= dict(spec or {})
    conditions = [{"type": "Ready", "status": str(ready)}]
    if message:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message})
    built["status"]["conditions"] = conditions
    return msgspec.convert(built, InspectedPod)


def program_pod(name: str, image: str, *command: str, node: str = "gpu-1", ready: bool = True) -> InspectedPod:
    """Build a pod that runs a program."""
    running = (
        {"name": "main", "image": image, "command": list(command)} if command else {"name": "main", "image": image}
    )
    return seen_pod(
        running, name=name, node=node, namespace="default", phase="Running", ready=ready,
        spec={"serviceAccountName": "account"},
    )  # fmt: skip


def plugin_pod(*flags: str, node: str = "gpu-1", name: str = "gas-plugin-abcde", ready: bool = True) -> InspectedPod:
    return program_pod(name, "localhost/gas:1", "gas-plugin", *flags, node=node, ready=ready)


def extender_pod(*flags: str) -> InspectedPod:
    return program_pod("gas-extender-1", "localhost/gas:1", "gas-extender", *flags, node="control-1")


def own_plugin(*flags: str, spec: dict[str, Any] | None = None, **container: Any) -> InspectedPod:
    """Build a pod that runs gas-plugin. ``container`` are further fields of its container."""
    running = {"name": "plugin", "image": "localhost/gas:1", "command": ["gas-plugin", *flags], **container}
    return seen_pod(running, name="gas-plugin-abcde", node="gpu-1", phase="Running", spec=spec)


def intel_pod(tag: str, *arguments: str, node: str = "gpu-1") -> InspectedPod:
    built = {"name": "p", "image": f"docker.io/intel/intel-gpu-plugin:{tag}", "args": list(arguments)}
    return seen_pod(built, name="intel-gpu-plugin-abcde", node=node, phase="Running")


def gpu_pod(name: str = "a", *, cards: str = "", node: str | None = "gpu-1", **fields: Any) -> InspectedPod:
    """Build a pod that asks for a card, bound by default. ``cards`` is the value of its annotation."""
    annotations = {"gas-ts": "1", "gas-container-cards": cards} if cards else {}
    asked = container("main", i915=fields.pop("i915", 1), millicores=fields.pop("millicores", 100))
    return seen_pod(asked, name=name, node=node, annotations={**annotations, **fields.pop("annotations", {})}, **fields)


def entry(**changes: Any) -> dict[str, Any]:
    """Build the extender's entry in kube-scheduler's configuration, as the installation writes it, with changes."""
    return {
        "urlPrefix": "https://127.0.0.1:9001",
        "filterVerb": "scheduler/filter",
        "bindVerb": "scheduler/bind",
        "weight": 1,
        "enableHTTPS": True,
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [
            {"name": "gpu.intel.com/i915", "ignoredByScheduler": False},
            {"name": "gpu.intel.com/xe", "ignoredByScheduler": False},
        ],
        "tlsConfig": {
            "insecure": False,
            "caFile": "/c/ca.crt",
            "certFile": "/c/client.crt",
            "keyFile": "/c/client.key",
        },
        **changes,
    }


def configuration(*entries: Mapping[str, Any], names: Sequence[str] = ("default-scheduler",)) -> SchedulerConfiguration:
    built = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": list(entries),
        "profiles": [{"schedulerName": name} for name in names],
    }
    return msgspec.convert(built, SchedulerConfiguration)


def scheduler(found: Any = ..., *, name: str = "kube-scheduler.yaml", is_here: bool = True) -> SeenScheduler:
    return SeenScheduler(
        name=name, file=FILE, configuration=configuration(entry()) if found is ... else found, is_here=is_here
    )


def call(**changes: Any) -> Call:
    """Build a call of an extender that accepts the dry pod. ``entry`` is JSON."""
    written = msgspec.convert(changes.pop("entry", entry()), ExtenderEntry)
    usual = Call(
        scheduler=scheduler(),
        entry=written,
        tried=("127.0.0.1:9001",),
        connected="127.0.0.1:9001",
        reply=Reply(passed=("gpu-1",)),
    )
    return replace(usual, **changes)


def lease(node: str = "gpu-1", renewed: str | None = "2027-01-15T07:59:55.000000Z") -> Lease:
    spec = {"renewTime": renewed} if renewed else {}
    return msgspec.convert({"metadata": {"name": node}, "spec": spec}, Lease)


def snapshot(**changes: Any) -> Snapshot:
    """Build a healthy cluster: one node, its plugin, an extender that works, one pod on card0.

    Names that are not fields of a Snapshot are facts that a single check gathers for itself.
    """
    usual = Snapshot(
        now=NOW,
        api_url="https://10.0.0.1:6443",
        version="v1.35.4",
        nodes=(seen_node(),),
        pods=(plugin_pod(), gpu_pod(cards="card0")),
        schedulers=(scheduler(),),
        calls=(call(),),
    )
    gathered = {"clock": Clock(before=NOW, server=NOW, after=NOW + 0.1), "node_leases": {"gpu-1": lease()}}
    gathered |= {name: changes.pop(name) for name in changes.keys() - Snapshot.__dataclass_fields__.keys()}
    return replace(usual, gathered=gathered, **changes)


def findings(check: str, **changes: Any) -> list[Finding]:
    """Return the findings of one check in a cluster with changes."""
    found = list(findings_of(check, snapshot(**changes)))
    for each in found:
        assert each.check == check
        assert bool(each.fix) == (each.level is not Level.OK), each
    return found


def levels(found: Sequence[Finding]) -> list[str]:
    return [each.level.value for each in found]


def worst(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are not OK."""
    return [each for each in found if each.level is not Level.OK]


def faults(check: str, **changes: Any) -> list[tuple[str, str]]:
    """Return level and text of the findings that are not OK, with expected and found."""
    return [(each.level.value, full_text(each)) for each in worst(findings(check, **changes))]


def verb_faults(*flags: str, **verbs: str) -> list[tuple[str, str]]:
    """Return the faults of an entry with these verbs, for an extender with these flags."""
    extender = program_pod("extender", "localhost/gas:1", "gas-extender", *flags)
    return faults("scheduler-configuration", schedulers=(scheduler(configuration(entry(**verbs))),), pods=(extender,))


CASE = ("changes", "level", "words")


def case(name: str, level: str, words: str, /, **changes: Any) -> Any:
    """Return a row of a table: a cluster with changes has one fault of this level, with these words in its text."""
    return pytest.param(changes, level, words, id=name)


def fine(name: str, words: str = "", /, **changes: Any) -> Any:
    """Return a row of a table: a cluster with changes has no fault, but a finding with these words if there are any."""
    return pytest.param(changes, "", words, id=name)


def assert_case(check: str, changes: Mapping[str, Any], level: str, words: str) -> None:
    """Compare the findings of a check with a row of a table."""
    found = findings(check, **changes)
    assert levels(worst(found)) == ([level] if level else []), found
    assert not words or any(words in full_text(each) for each in worst(found) or found), found


def full_text(finding: Finding) -> str:
    """Return everything that a finding says."""
    return " | ".join((finding.where, finding.message, finding.expected, finding.found, *finding.fix))
