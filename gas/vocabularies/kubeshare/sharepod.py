"""Model SharePods (``kubeshare.nthu/v1``) and their pods as values: what a pod is made of, and what its SharePod shows.

A SharePod's spec is that of a pod, and its annotations ask for a share of a card. Its pod has the same name and
namespace and belongs to it, so the API server's garbage collector deletes the pod with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gas.decision.names import ALLOCATED_CARDS, CONTAINER_CARDS
from gas.objects.json_patch import applied
from gas.objects.stored import NewPod, ObjectMeta, with_requests
from gas.values.cards import Card
from gas.values.errors import GasError
from gas.vocabularies.kubeshare import names
from gas.vocabularies.kubeshare.request import MalformedAffinity, with_node
from gas.vocabularies.kubeshare.vocabulary import KUBESHARE
from gas.vocabularies.pod_parts import need_facts
from gas.vocabularies.protocol import BadNeed, NeedOptions

API_VERSION = "kubeshare.nthu/v1"
KIND = "SharePod"

MADE_LABEL = names.PREFIX + "sharepod"  # label of the pods that were made for a SharePod
MADE = "true"
CHOSEN_NODE = names.PREFIX + "chosen-node"
"""Annotation of a SharePod with the node in its spec if the extender chose it: the next pod may go elsewhere."""

_SHOWN = frozenset(("PodStatus", "PodObjectMeta", "message"))
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class MalformedSharePod(GasError):
    """The spec of a SharePod is not that of a pod, or its pod would be refused."""


class Keyed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    metadata: ObjectMeta

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class SharePod(Keyed, rename="camel", frozen=True, kw_only=True):
    """A SharePod. Nothing checks its spec before its pod is made."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None

    @property
    def is_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def had_pod(self) -> bool:
        """True if it shows the pod that was made for it, which may be gone."""
        return bool((self.status or {}).get("PodObjectMeta"))

    @property
    def phase(self) -> str:
        """The phase of its pod when that was last shown."""
        return _phase((self.status or {}).get("PodStatus"))

    def restarts_after(self, phase: str) -> bool:
        """Return whether a pod that is gone, or stopped by its node, is made again: KubeShare's rule."""
        policy = str((self.spec or {}).get("restartPolicy") or "Always")
        return phase not in {"Never": ("Succeeded", "Failed"), "OnFailure": ("Succeeded",)}.get(policy, ())


class MadeMeta(ObjectMeta, frozen=True, omit_defaults=True):
    owner_references: Sequence[dict[str, Any]] | None = None
    finalizers: Sequence[str] | None = None


class MadeSpec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str | None = None


class MadePod(Keyed, rename="camel", frozen=True, kw_only=True):
    """The pod of a SharePod, with everything that is copied."""

    metadata: MadeMeta
    spec: MadeSpec = MadeSpec()
    status: dict[str, Any] | None = None

    @property
    def phase(self) -> str:
        return _phase(self.status)

    @property
    def was_disrupted(self) -> bool:
        """True if it was ended from outside, such as evicted by kubelet, and stays until it is deleted."""
        conditions = (self.status or {}).get("conditions") or ()
        return self.phase == "Failed" and any(
            each.get("type") == "DisruptionTarget" and each.get("status") == "True" for each in conditions
        )

    @property
    def is_watched(self) -> bool:
        return (self.metadata.labels or {}).get(MADE_LABEL) == MADE

    def belongs_to(self, share: SharePod) -> bool:
        """Return whether the pod was made for this SharePod, and not for an earlier one of its name."""
        return any(each.get("uid") == share.metadata.uid for each in self.metadata.owner_references or ())


def _phase(status: object) -> str:
    """Return the phase in the status of a pod. An older definition of the kind lets users write anything there."""
    return str(status.get("phase", "")) if isinstance(status, dict) else ""


def pod_of(share: SharePod) -> dict[str, Any]:
    """Return the pod to make for a SharePod. Raises MalformedSharePod.

    Without the webhooks nothing else would refuse a share that cannot be read: kube-scheduler does not ask about it.
    """
    annotations = dict(share.metadata.annotations or {})
    annotations.pop(_APPLIED, None)
    spec = dict(share.spec or {})
    if annotations.pop(CHOSEN_NODE, None) == spec.get("nodeName"):
        spec.pop("nodeName", None)
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": share.metadata.name,
        "uid": share.metadata.uid or "",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": share.metadata.name,
            "namespace": share.metadata.namespace or "default",
            "labels": {**(share.metadata.labels or {}), MADE_LABEL: MADE},
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
    try:
        msgspec.convert(pod, NewPod)
        pod["spec"] = _with_requests(spec)
        written = msgspec.convert(pod, NewPod)
    except msgspec.ValidationError as invalid:
        raise MalformedSharePod(f"spec: expected that of a pod: {invalid}; correct it") from None
    try:
        with_node("", written.spec.affinity)
        completed = applied(KUBESHARE.complete(written), pod)
        if written.spec.containers and (KUBESHARE.matches(written) or annotations.get(names.GPUID)):
            KUBESHARE.need(need_facts(msgspec.convert(completed, NewPod)), NeedOptions())
        return completed
    except (BadNeed, MalformedAffinity) as bad:
        raise MalformedSharePod(str(bad)) from None


def status_of(share: SharePod, pod: MadePod, uuids: Mapping[str, Card]) -> dict[str, Any]:
    """Return the status of a SharePod with this pod, in the original's names.

    Of a pod that KubeShare made, the rest of what it wrote stays: its card, and the port that the pod calls.
    """
    metadata = msgspec.structs.replace(pod.metadata, resource_version=None)
    annotations = pod.metadata.annotations or {}
    cards = annotations.get(ALLOCATED_CARDS) or annotations.get(CONTAINER_CARDS) or ""
    card = next((each for place in cards.split("|") for each in place.split(",") if each), "")
    kept: dict[str, Any] = {}
    if card:
        card = next((uuid for uuid, each in uuids.items() if str(each) == card), card)
    elif pod.spec.node_name:
        kept = {name: value for name, value in (share.status or {}).items() if name not in _SHOWN}
    return {
        **kept,
        "PodStatus": pod.status or {},
        "PodObjectMeta": msgspec.to_builtins(metadata),
        **({"BoundDeviceID": card} if card else {}),
    }


def choice_patch(share: SharePod, pod: MadePod) -> dict[str, Any] | None:
    """Return the merge patch that gives a SharePod the node and the GPU id of its pod; None if it has them."""
    annotations = share.metadata.annotations or {}
    wanted: dict[str, str] = {}
    patch: dict[str, Any] = {}
    if (node := pod.spec.node_name) and (share.spec or {}).get("nodeName") != node:
        patch["spec"] = {"nodeName": node}
        wanted[CHOSEN_NODE] = node
    if (gpuid := (pod.metadata.annotations or {}).get(names.GPUID, "")) and annotations.get(names.GPUID) != gpuid:
        wanted[names.GPUID] = gpuid
    if wanted:
        patch["metadata"] = {"annotations": wanted}
    return patch or None


def _with_requests(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with limits as requests as well. The API server adds them to pods, not to SharePods."""
    fields = [field for field in ("initContainers", "containers") if spec.get(field)]
    return {**spec, **{field: list(map(with_requests, spec[field])) for field in fields}}


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch (RFC 7396) that turns one object into another; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif value != before or name not in old:
            patch[name] = value
    return patch
