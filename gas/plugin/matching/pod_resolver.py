"""Resolve which pod a GetPreferredAllocation call is for, while kubelet waits for the reply.

The life of one container's devices, from kubelet's question to its choice::

    kubelet        Allocator          PodResolver            Matcher              kubelet, watch
       |               |                   |                     |                      |
       |-- GetPreferredAllocation -------->|-- prefer ---------->| memory alone         |
       |               |                   |<- Match: KNOWN? ----|                      |
       |               |                   |   no: List (or Get, for a pod alone) ----->|
       |               |                   |-- prefer(listing) ->|                      |
       |               |                   |<- Match: KNOWN? ----|                      |
       |               |                   |   no, and kubelet lists a pod that the     |
       |               |                   |   watch has not shown: wait for the watch->|
       |               |                   |-- prefer(listing) ->| ... until the deadline
       |               |<-- Preference ----|                     |                      |
       |<- ids: decided cards, then policy |                     |                      |
       |                                                         |                      |
       |-- Allocate -->|-- allocate ---------------------------->| records it           |
       |               |<- Match: target, confidence, doubt -----|                      |
       |<- device nodes, mounts, mask of the decided tiles       |                      |
"""

import asyncio
from collections.abc import Callable

from gas.plugin.devices.device_ids import PreferredRequest
from gas.plugin.kubelet.pod_resources import Listing, PodResources
from gas.plugin.matching.matcher import NOT_LISTED, Match, Matcher, Preference

RESOLVE_WITHIN = 0.7  # seconds for resolving, less than kubelet's REPLY_WITHIN: a guess is better than no reply


class PodResolver:
    """Ask kubelet no more than needed: nothing if memory is certain, one pod if only one can be meant, else all pods.

    If several pods can be meant, asking for the likeliest one alone would be wrong: kubelet still returns the entry of
    a pod that it refused a moment ago, and only its list leaves that pod out. On a node that refuses pods, perhaps
    because memory is short, a refused pod would be taken for the right one.

    ``is_watching`` returns whether the watch shows this node's pods, so that waiting for it makes sense.
    """

    def __init__(self, matcher: Matcher, resources: PodResources, *, is_watching: Callable[[], bool]) -> None:
        self._matcher = matcher
        self._resources = resources
        self._is_watching = is_watching
        self._changed = asyncio.Event()
        self._awaited_in_vain: frozenset[str] = frozenset()
        self._is_watch_silent = False

    def pods_changed(self) -> None:
        self._is_watch_silent = False
        self._changed.set()
        self._changed = asyncio.Event()

    async def resolve(self, request: PreferredRequest) -> Preference:
        """Return the preference with the most certain match that can be had within `RESOLVE_WITHIN`.

        Never raises because kubelet or the watch does not say enough: the match then has a doubt.
        """
        deadline = asyncio.get_running_loop().time() + RESOLVE_WITHIN
        best = self._matcher.prefer(request)
        try:
            async with asyncio.timeout_at(deadline):
                best = await self._confirm(request, best)
                if not best.match.doubt:
                    return best
                listing = await self._resources.pods()
        except TimeoutError:
            return best
        doubt = "" if listing else NOT_LISTED
        best = self._matcher.prefer(request, listing=listing, doubt=doubt)
        if listing:
            self._awaited_in_vain &= best.match.unwatched_pods
        while best.match.doubt and self._may_be_shown(best.match, listing):
            if not await self._watch_changes(deadline):
                if listing:
                    self._awaited_in_vain = best.match.unwatched_pods
                else:
                    self._is_watch_silent = True
                break
            best = self._matcher.prefer(request, listing=listing, doubt=doubt)
        return best

    async def _confirm(self, request: PreferredRequest, found: Preference) -> Preference:
        """Ask kubelet for the one pod that can be meant, if its entry is enough to be certain."""
        if (pod := found.match.confirming_pod) is None:
            return found
        namespace, _, name = pod.key.partition("/")
        if (entry := await self._resources.pod(namespace, name)) is None:
            return found
        return self._matcher.prefer(request, listing={pod.key: entry}, doubt=found.match.doubt)

    def _may_be_shown(self, match: Match, listing: Listing | None) -> bool:
        """Return whether it makes sense to wait for the watch.

        With a listing, wait for the pods in it that the watch has not shown; without one, while no known pod can be
        meant. Do not wait again if an earlier wait for the same pods was in vain.
        """
        if not self._is_watching():
            return False
        if listing:
            return not match.unwatched_pods <= self._awaited_in_vain
        return match.target is None and not self._is_watch_silent

    async def _watch_changes(self, deadline: float) -> bool:
        """Wait until the watch shows something. Return False at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True
