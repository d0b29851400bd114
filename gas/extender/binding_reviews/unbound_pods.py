"""Find the pods that can be bound by name, since a Binding need not have a UID and names no resources."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from gas.objects.handler import Mirror
from gas.objects.stored import Pod


class UnboundPod(NamedTuple):
    """A pod without a node. ``wants_cards``: it asks for cards in any vocabulary."""

    key: str
    uid: str
    wants_cards: bool


class UnboundPods(Mirror[Pod, UnboundPod]):
    """The pods without a node, including those that ask for no cards. Fed by the watch of the pods.

    A pod that is not here was bound, is gone, or is so new that the watch has not shown it.
    """

    def __init__(self, is_gpu_pod: Callable[[Pod], bool]) -> None:
        super().__init__()
        self._is_gpu_pod = is_gpu_pod
        self._by_key: dict[str, UnboundPod] = {}
        self._arrived = asyncio.Event()

    def needs(self, pod: Pod) -> bool:
        """Return whether a pod must be shown here: while it has no node, and once more afterwards."""
        return not pod.node_name or pod.uid in self.records

    def find(self, key: str, uid: str = "") -> UnboundPod | None:
        """Return the pod of a name (``namespace/name``), None if none is known or if it has another UID."""
        pod = self._by_key.get(key)
        return pod if pod is not None and uid in ("", pod.uid) else None

    async def wait_for(self, key: str, uid: str = "", *, patience: float) -> UnboundPod | None:
        """Return the pod of a name as soon as the watch has shown it; None if it does not within ``patience`` s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while (pod := self.find(key, uid)) is None:
                    self._arrived.clear()
                    await self._arrived.wait()
                return pod
        return None

    def record(self, pod: Pod) -> UnboundPod | None:
        return None if pod.node_name or pod.is_over else UnboundPod(pod.key, pod.uid, self._is_gpu_pod(pod))

    def replaced(self, _uid: str, old: UnboundPod | None, new: UnboundPod | None) -> None:
        if new is not None:
            self._by_key[new.key] = new
            self._arrived.set()
        elif old is not None and self._by_key.get(old.key) == old:
            del self._by_key[old.key]
