"""Defaults of new pods in KubeShare's words: resources that kube-scheduler and kubelet know, and the named node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gas.objects.json_patch import Operation, Patch, pointer
from gas.objects.stored import NewContainer, NewPod, Pod
from gas.values.quoted import did_you_mean, quoted
from gas.vocabularies.declared import Beginnings
from gas.vocabularies.kubeshare import names
from gas.vocabularies.kubeshare.request import Share, asking_containers, bearer, share_of
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import AdmissionChecks, BadNeed, NeedOptions

_MOST_UNKNOWN = 5

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class KubeShareAdmission(AdmissionChecks):
    """Add the resources by which kube-scheduler and kubelet know these pods, and let the scheduler bind every pod."""

    completed = Beginnings(annotations=(names.PREFIX,))

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        return tuple(islice(_unknown_annotations(pod.annotations), _MOST_UNKNOWN))

    def complete(self, pod: NewPod) -> Patch:
        """Return what a new pod lacks; nothing for a pod that will be refused.

        Raises TypeError or ValueError for an affinity that is not one, which only a SharePod can have.
        """
        try:
            share = share_of(pod.annotations)
            asking = asking_containers(need_facts(pod))
        except BadNeed:
            return ()
        init = len(pod.spec.init_containers or ())
        bears = bearer(asking)
        is_stated = any(each.stated is not None for each in asking)
        operations: list[Operation] = []
        for at, each in enumerate(asking):
            container = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))[at]
            wanted = {names.VGPU: str(each.cards)} if each.cards else {}
            if at == bears and not is_stated:
                wanted |= _amounts(share, each.cards)
            place = ("spec", "initContainers", str(at)) if at < init else ("spec", "containers", str(at - init))
            operations += _with_resources(container, place, wanted)
        if pod.node_name:
            operations += _scheduled_to(pod.node_name, pod.spec.affinity)
        return tuple(operations)


def _amounts(share: Share, cards: int) -> dict[str, str]:
    """Return the amounts as resources. An amount of 0 is stated as well, so that an annotation cannot raise it."""
    return {names.MILLICORES: str(share.millicores * cards), names.MEMORY: str(share.memory * cards)}


def _with_resources(container: NewContainer, place: tuple[str, ...], wanted: Mapping[str, str]) -> Iterator[Operation]:
    """Yield what adds requests and equal limits to a container, as Kubernetes demands of such resources."""
    resources = container.resources
    if resources is None:
        if wanted:
            yield Operation("add", pointer(*place, "resources"), {"limits": dict(wanted), "requests": dict(wanted)})
        return
    for field, present in (("limits", resources.limits), ("requests", resources.requests)):
        missing = {name: amount for name, amount in wanted.items() if name not in (present or {})}
        if missing and present is None:
            yield Operation("add", pointer(*place, "resources", field), missing)
        else:
            for name, amount in missing.items():
                yield Operation("add", pointer(*place, "resources", field, name), amount)


def _scheduled_to(node: str, affinity: Mapping[str, Any] | None) -> Iterator[Operation]:
    """Yield what makes the scheduler bind a pod to the node that its user named, with cards, in place of the user."""
    yield Operation("remove", pointer("spec", "nodeName"))
    yield Operation("add", pointer("spec", "affinity"), with_node(node, affinity))


def with_node(node: str, affinity: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an affinity that allows only this node, and only if the given one allows it as well."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = dict(affinity or {})
    of_nodes = dict(result.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), field]} for term in terms
    ]
    of_nodes[_REQUIRED] = required
    result["nodeAffinity"] = of_nodes
    return result


def _unknown_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(annotations):
        if name.startswith(names.PREFIX) and name not in names.ANNOTATIONS:
            hint = did_you_mean(name, names.ANNOTATIONS, "docs/from-kubeshare.md lists those that have one")
            yield f"annotation {quoted(name)} is not known and has no effect; {hint}"
