"""Find the service accounts of extender and plugin, and ask the API server for their permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from gas.cluster.connection import ApiServer
from gas.cluster.objects import decode_object, get_object
from gas.doctor.objects import AccessReview, AnyObject
from gas.doctor.probe import Unseen, probe
from gas.doctor.programs import Program, containers_with, flag_value, is_on
from gas.doctor.snapshot import Account, Permission
from gas.objects.stored import DetailedContainer, DetailedPod
from gas.plugin.flags import Flags as PluginFlags
from gas.plugin.flags import WriteNode

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

EXTENDER_ACCOUNTS = (("default", "gas-extender"), ("default", "gpu-aware-scheduling-service-account"))
"""Namespace and name of the accounts that the installations create. The first that exists is checked if no pod runs an
extender."""


async def find_accounts(api: ApiServer, pods: Sequence[DetailedPod]) -> list[Account]:
    """Return the accounts of the pods that run our extender or plugin, and of an extender outside the cluster."""
    wanted: dict[tuple[Program, str, str], frozenset[Permission]] = {}
    for pod in pods:
        for program in (Program.EXTENDER, Program.PLUGIN):
            for container in containers_with(pod, program):
                namespace = pod.metadata.namespace or "default"
                key = (program, namespace, pod.spec.service_account_name or "default")
                wanted[key] = wanted.get(key, frozenset()) | permissions(program, container, namespace)
    if not any(program is Program.EXTENDER for program, _, _ in wanted):
        for namespace, name in EXTENDER_ACCOUNTS:
            at = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
            if isinstance(await probe(get_object(api, at, AnyObject)), AnyObject):
                container = DetailedContainer()
                wanted[Program.EXTENDER, namespace, name] = permissions(Program.EXTENDER, container, namespace)
                break
    return [
        Account(program=program, namespace=namespace, name=name, allowed=await _reviewed(api, namespace, name, needed))
        for (program, namespace, name), needed in wanted.items()
    ]


async def _reviewed(
    api: ApiServer, namespace: str, name: str, needed: Iterable[Permission]
) -> dict[Permission, bool | Unseen]:
    ordered = sorted(needed)
    answers = await asyncio.gather(*(_is_allowed(api, namespace, name, each) for each in ordered))
    return dict(zip(ordered, answers, strict=True))


def permissions(program: Program, container: DetailedContainer, namespace: str) -> frozenset[Permission]:
    """Return the permissions that a program needs with the flags of its container."""
    events = {Permission("create", "events", needed=False), Permission("patch", "events", needed=False)}
    if program is Program.EXTENDER:
        needed = {*_each("pods", "get", "list", "watch", "patch"), *_each("nodes", "list", "watch", "patch")}
        needed |= {Permission("create", "pods/binding"), *events}
        if is_on(container, "preemption", default=False):
            needed |= {Permission(verb, "poddisruptionbudgets", "policy") for verb in ("list", "watch")}
        if is_on(container, "sharepods", default=False):
            needed |= {Permission("create", "pods")} | {
                Permission(verb, "sharepods", "kubeshare.nthu") for verb in ("get", "list", "watch", "patch")
            }
            needed |= {Permission("patch", "sharepods/status", "kubeshare.nthu")}
        if is_on(container, "leader-elect", default=False):
            lease_namespace = flag_value(container, "lease-namespace") or namespace
            lease = flag_value(container, "lease-name") or "gas-extender"
            needed |= {
                Permission(verb, "leases", "coordination.k8s.io", lease_namespace, name)
                for verb, name in (("create", ""), ("get", lease), ("update", lease))
            }
        return frozenset(needed)
    if not is_on(container, "resource-manager", default=PluginFlags().resource_manager):
        return frozenset()
    needed = {*_each("pods", "list", "watch", "patch"), *events}
    if (flag_value(container, "write-node") or PluginFlags().write_node) == WriteNode.PATCH:
        needed |= {*_each("nodes", "get", "list", "watch"), Permission("patch", "nodes/status")}
    return frozenset(needed)


def _each(resource: str, *verbs: str) -> Iterable[Permission]:
    return (Permission(verb, resource) for verb in verbs)


async def _is_allowed(api: ApiServer, namespace: str, name: str, permission: Permission) -> bool | Unseen:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{name}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        },
    }
    return await probe(_review(api, msgspec.json.encode(review)))


async def _review(api: ApiServer, body: bytes) -> bool:
    response = await api.request("POST", _REVIEWS, body=body)
    review = decode_object(response, AccessReview, request=f"POST {_REVIEWS}")
    return review.status is not None and review.status.allowed
