"""Check the laws of SharePods: which pods are made of them, and what they say of these."""

from collections.abc import Callable
from typing import Any

from sandbox.api.storage import Change
from simulation import objects
from simulation.objects import Object, annotations_of
from simulation.observed import LawBroken

MADE = "kubeshare/sharepod"  # label of the pods that were made for SharePods
CHOSEN_NODE = "kubeshare/chosen-node"
SHOWN_METADATA = ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")
LATEST = 20.0  # most seconds between the decision to make a pod and its creation, if something fails; else 1

ENDS = {"Never": ("Succeeded", "Failed"), "OnFailure": ("Succeeded",)}
"""By restartPolicy, the phases after which no other pod is made."""


class SharePods:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shares: dict[str, Object] = {}  # by UID
        self._written: dict[str, Object] = {}  # by UID, as users have created them; also those that are gone
        self._ended: dict[str, float] = {}  # by UID, since when a SharePod shows that its pod has ended for good
        self._pods: dict[str, Object] = {}  # by key, all pods

    def see(self, change: Change) -> None:
        """Record a write of a SharePod."""
        share = change.after.value
        uid, shown = share["metadata"]["uid"], (share.get("status") or {}).get("PodStatus") or {}
        self._written.setdefault(uid, share)
        self._shares[uid] = share
        if change.gone:
            del self._shares[uid]
        if shown.get("phase") not in _ends(share):
            self._ended.pop(uid, None)
        elif uid not in self._ended:
            self._ended[uid] = self._clock()

    def see_pod(self, change: Change, *, calm: bool) -> None:
        """Record a write of a pod. Raises LawBroken if a pod is made that must not be. ``calm``: nothing fails."""
        pod, key = change.after.value, change.after.key
        self._pods[key] = pod
        if change.gone:
            del self._pods[key]
        owners = objects.owners_of(pod)
        if change.before is not None or not (owners or MADE in pod["metadata"].get("labels", {})):
            return
        share = next((self._written[uid] for uid in owners if uid in self._written), None)
        if share is None or _key(share) != key or _is_too_large(share):
            raise LawBroken("SharePods", f"pod {key} was made for no SharePod that is valid and has its name")
        annotations, resources = annotations_of(pod), pod["spec"]["containers"][0]["resources"]
        states = {name: int(objects.quantity(text)) for name, text in resources.get("requests", {}).items()}
        lacks = [name for name, text in annotations_of(share).items() if annotations.get(name) != text]
        if lacks or states != objects.stated_share(share) or "affinity" in pod["spec"] or CHOSEN_NODE in annotations:
            raise LawBroken("SharePods", f"pod {key} was made as {pod}, its SharePod is {share}")
        ago = self._clock() - self._ended.get(share["metadata"]["uid"], self._clock())
        if ago > (1.0 if calm else LATEST):
            raise LawBroken("SharePods", f"pod {key} was made again {ago:.1f} s after its SharePod showed its end")

    def check_at_end(self) -> None:
        """Check that each SharePod has a pod that it shows, or says why not, and that no other has one."""
        for uid, share in self._shares.items():
            key, status = _key(share), share.get("status") or {}
            message, pod = str(status.get("message", "")), self._pods.get(key)
            if pod is None or uid not in objects.owners_of(pod):
                reasons = {
                    "cannot be made": _is_too_large(share),
                    "does not belong": pod is not None and objects.share_of(pod) is None,
                    "is not made again": uid in self._ended,
                }
                if not any(holds and sentence in message for sentence, holds in reasons.items()):
                    raise LawBroken("SharePods", f"{key} has no pod, and says {message!r}")
                continue
            pairs = _to_show(pod, share)
            if wrong := {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}:
                raise LawBroken("SharePods", f"the pod of {key} has something else than it shows: {wrong}")
            if "DisruptionTarget" in str(pod["status"]) and "Failed" not in _ends(share):
                raise LawBroken("SharePods", f"the pod of {key} was evicted, and no other one is made")
        for key, pod in self._pods.items():
            if (owners := objects.owners_of(pod)) and owners.isdisjoint(self._shares):
                raise LawBroken("SharePods", f"pod {key} is left of a SharePod that is gone")


def _key(share: Object) -> str:
    return f"{share['metadata']['namespace']}/{share['metadata']['name']}"


def _ends(share: Object) -> tuple[str, ...]:
    return ENDS.get(share["spec"]["restartPolicy"], ())


def _is_too_large(share: Object) -> bool:
    return (objects.share_of(share) or {}).get("millicores", 0) > 1000


def _to_show(pod: Object, share: Object) -> dict[str, tuple[Any, Any]]:
    """Return what a SharePod must say of its pod, next to what it says."""
    status, annotations, node = share.get("status") or {}, annotations_of(pod), pod["spec"].get("nodeName")
    metadata, name = status.get("PodObjectMeta") or {}, annotations.get(objects.CARD_NAME)
    pairs = {field: (pod["metadata"].get(field), metadata.get(field)) for field in SHOWN_METADATA}
    pairs |= {"status": (pod["status"], status.get("PodStatus")), "message": (None, status.get("message"))}
    if node:
        pairs["node"] = node, share["spec"].get("nodeName")
        pairs["card's name"] = name, annotations_of(share).get(objects.CARD_NAME)
    if (use := objects.use_of(pod, annotations)) or not node:
        pairs["card"] = next(iter(use or ()), None), status.get("BoundDeviceID")
    return pairs
