"""Make a pod for each SharePod, and copy the pod's status and metadata back.

Watches hold what exists in memory; a single task compares it with what should be, one SharePod at a time, while this
replica decides. Deleting a SharePod needs no work here: its pod belongs to it, so the garbage collector deletes it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Generic, Literal, NoReturn, TypeVar

import msgspec

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused
from gas.cluster.events import Events, Involved
from gas.cluster.listing import Lister
from gas.cluster.objects import MERGE_PATCH, decode_object, get_object, patch_pod_metadata
from gas.cluster.watch import Watch
from gas.daemon.logs import LimitedLog
from gas.objects.stored import ObjectId
from gas.values.cards import Card
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING, Timing
from gas.vocabularies.kubeshare.sharepod import (
    API_VERSION,
    KIND,
    MADE,
    MADE_LABEL,
    Keyed,
    MadePod,
    MalformedSharePod,
    SharePod,
    choice_patch,
    merge_patch,
    pod_of,
    status_of,
)

logger = logging.getLogger(__name__)

RETRY_PAUSE = 10.0  # seconds after which a SharePod whose pod could not be made is tried again

T = TypeVar("T", bound=Keyed)


class _Mirror(Generic[T]):
    """The objects of one kind by ``namespace/name``, as a watch shows them."""

    def __init__(self, on_change: Callable[[str], None], on_complete: Callable[[], None] = lambda: None) -> None:
        self.by_key: dict[str, T] = {}
        self._on_change = on_change
        self._on_complete = on_complete

    def listed(self, objects: list[T], /) -> None:
        for each in objects:
            self.changed(each)

    def complete(self, listed: list[ObjectId], /) -> None:
        there = {each.uid for each in listed}
        for each in [each for each in self.by_key.values() if each.metadata.uid not in there]:
            self.deleted(each)
        self._on_complete()

    def changed(self, obj: T, /) -> None:
        self.by_key[obj.key] = obj
        self._on_change(obj.key)

    def deleted(self, obj: T, /) -> None:
        self.by_key.pop(obj.key, None)
        self._on_change(obj.key)


class SharePods:
    """The controller of SharePods. The caller runs the watches of SharePods and of their pods."""

    def __init__(
        self,
        api: ApiServer,
        *,
        events: Events,
        acts: Callable[[], bool],  # returns whether this replica decides
        uuids: Callable[[str], Mapping[str, Card]],  # returns those of a node's cards
        retry_pause: float = RETRY_PAUSE,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self._api = api
        self._log = LimitedLog(logger)
        self._events = events
        self._acts = acts
        self._uuids = uuids
        self._retry_pause = retry_pause
        self._due: dict[str, None] = {}
        self._paused: set[str] = set()
        self._woken = asyncio.Event()
        self._shares: _Mirror[SharePod] = _Mirror(self._add)
        # a pod that came and went while its watch was interrupted is in no list
        self._pods: _Mirror[MadePod] = _Mirror(self._add, self.look_at_all)
        self.share_watch = Watch(Lister(api, paths.SHAREPODS, SharePod), self._shares, timing=timing)
        made = Lister(api, paths.PODS, MadePod, label_selector=f"{MADE_LABEL}={MADE}")
        self.pod_watch = Watch(made, self._pods, timing=timing)

    def look_at_all(self) -> None:
        """Compare every SharePod with its pod: this replica has just begun to decide, or may have missed a pod."""
        for key in self._shares.by_key:
            self._add(key)

    async def run(self) -> NoReturn:
        await self.share_watch.synced.wait()
        await self.pod_watch.synced.wait()
        while True:
            while not self._due:
                self._woken.clear()
                await self._woken.wait()
            key = next(iter(self._due))
            del self._due[key]
            if not self._acts():
                continue
            try:
                await self._reconcile(key)
            except GasError as error:
                self._log.log(logging.WARNING, "a SharePod is tried again later: %s", error, extra={"sharepod": key})
                self._add_later(key)
            except Exception:
                logger.exception("a SharePod is tried again later", extra={"sharepod": key})
                self._add_later(key)

    def _add(self, key: str) -> None:
        self._due[key] = None
        self._woken.set()

    def _add_later(self, key: str) -> None:
        """Try a SharePod again after a pause; at most one pause runs for each, however often it changes."""
        if key not in self._paused:
            self._paused.add(key)
            asyncio.get_running_loop().call_later(self._retry_pause, self._resume, key)

    def _resume(self, key: str) -> None:
        self._paused.discard(key)
        self._add(key)

    async def _reconcile(self, key: str) -> None:
        share, pod = self._shares.by_key.get(key), self._pods.by_key.get(key)
        if share is None or share.is_deleted:
            return
        if pod is None:
            # Read again: what the watch has shown may be older than the pod that another replica made.
            now = await get_object(self._api, paths.sharepod(*key.split("/")), SharePod)
            if now is None or now.metadata.uid != share.metadata.uid or now.is_deleted:
                return
            share = now
            if share.had_pod:
                pod = await get_object(self._api, paths.pod(*key.split("/")), MadePod)
                if (pod is None or not pod.belongs_to(share)) and not share.restarts_after(share.phase):
                    sentence = (
                        f"pod {share.key} ended ({share.phase}) and was deleted; it is not made again, by its"
                        " restartPolicy. To run it again, delete this SharePod and create it again"
                    )
                    await self._say(share, "PodNotMadeAgain", sentence)
                    return
            if pod is None and (pod := await self._make(share)) is None:
                return
        if not pod.belongs_to(share):
            sentence = f"pod {key} exists and does not belong to this SharePod"
            await self._say(share, "ErrResourceExists", f"{sentence}; delete the pod, or choose another name")
            self._add_later(key)
            return
        if not pod.is_watched:
            # KubeShare has made it, or its label was removed.
            namespace, _, name = key.partition("/")
            labels = {MADE_LABEL: MADE}
            if not await patch_pod_metadata(self._api, namespace, name, pod.metadata.uid or "", {}, labels=labels):
                self._add_later(key)
        if (patch := choice_patch(share, pod)) is not None:
            await self._patch(share, "", patch)
        await self._show(share, status_of(share, pod, self._uuids(pod.spec.node_name or "")))
        if pod.was_disrupted and share.restarts_after(pod.phase):
            await self._delete(pod)

    async def _make(self, share: SharePod) -> MadePod | None:
        """Make the pod of a SharePod and return it, or the one that has its name; None if it was refused."""
        namespace, _, name = share.key.partition("/")
        try:
            body = msgspec.json.encode(pod_of(share))
            path = paths.pods_of(namespace)
            made = decode_object(await self._api.request("POST", path, body=body), MadePod, request=f"POST {path}")
        except (ApiRefused, MalformedSharePod) as refused:
            if isinstance(refused, ApiRefused) and refused.status == 409 and refused.reason == "AlreadyExists":
                return await get_object(self._api, paths.pod(namespace, name), MadePod)
            why = refused.message if isinstance(refused, ApiRefused) else str(refused)
            await self._say(share, "ErrValueError", f"the pod cannot be made: {why}")
            self._add_later(share.key)
            return None
        logger.info("made the pod of a SharePod", extra={"pod": share.key})
        self._announce(share, "Synced", f"made pod {share.key}" + " again" * share.had_pod)
        return made

    async def _delete(self, pod: MadePod) -> None:
        """Delete a pod that was ended from outside, so that it can be made again. Another pod of its name stays."""
        body = msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}})
        try:
            await self._api.request("DELETE", paths.pod(*pod.key.split("/")), body=body)
        except ApiRefused as refused:
            if refused.status not in (404, 409):
                raise

    async def _say(self, share: SharePod, reason: str, sentence: str) -> None:
        """Write a sentence as an event and in the status, next to what it shows of a pod."""
        self._announce(share, reason, sentence, severity="Warning")
        await self._show(share, {**(share.status or {}), "message": sentence})

    def _announce(
        self, share: SharePod, reason: str, sentence: str, *, severity: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """Post an event of a SharePod; KubeShare's own reasons where it has one."""
        namespace, _, name = share.key.partition("/")
        involved = Involved(KIND, name, share.metadata.uid or "", namespace, API_VERSION)
        self._events.post(involved, severity=severity, reason=reason, message=sentence)

    async def _show(self, share: SharePod, status: dict[str, object]) -> None:
        if patch := merge_patch(share.status or {}, status):
            await self._patch(share, "/status", {"status": patch})

    async def _patch(self, share: SharePod, subresource: str, patch: dict[str, object]) -> None:
        metadata = patch.get("metadata")
        guarded = patch | {"metadata": {**(metadata if isinstance(metadata, dict) else {}), "uid": share.metadata.uid}}
        path = paths.sharepod(*share.key.split("/")) + subresource
        try:
            await self._api.request("PATCH", path, body=msgspec.json.encode(guarded), content_type=MERGE_PATCH)
        except ApiRefused as refused:
            if refused.status not in (404, 409) and not (refused.status == 422 and "metadata.uid" in refused.message):
                raise
            logger.info("a SharePod is gone or was replaced: %s", refused, extra={"sharepod": share.key})
