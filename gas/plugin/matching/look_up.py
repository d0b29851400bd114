"""For whom kubelet asks, made sure while it waits: by its own list of pods, and by the watch that shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import NamedTuple

from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.kubelet.listing import Listing
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.matching.confidence import Confidence
from gas.plugin.matching.match import Wish
from gas.plugin.matching.matching import Matching

LOOK_UP_WITHIN = 0.7
"""Seconds for all of it. Ends before `gas.plugin.kubelet.device_server.ANSWER_WITHIN`: an answer that is a guess is
better than none."""


_LATE = "kubelet did not say in time which pods it has"


class Finding(NamedTuple):
    """What to answer.

    doubt  the clause that says why it is a guess; empty when it is none
    """

    wish: Wish
    doubt: str


class LookUp:
    """Asks no more than it must: nobody when memory is sure, for one pod when only one can be meant, else for all.

    Of several that can be meant the likeliest is not asked for alone first, though that would be less work when it is
    the one: a single entry is told of pods refused a moment ago as well, which the list leaves out. On a node that
    refuses pods, for want of memory perhaps, the one before would be taken for the one that kubelet asks for.

    matching   whose a call is
    resources  kubelet's PodResources
    watches    whether the watch shows this node's pods, so that it is worth to wait for it
    """

    def __init__(self, matching: Matching, resources: PodResources, *, watches: Callable[[], bool]) -> None:
        self._matching = matching
        self._resources = resources
        self._watches = watches
        self._shown = asyncio.Event()
        self._in_vain: frozenset[str] = frozenset()
        self._is_silent = False

    def pods_changed(self) -> None:
        """The watch has shown something."""
        self._matching.follow()
        self._is_silent = False
        self._shown.set()
        self._shown = asyncio.Event()

    async def wish(self, request: PreferredRequest) -> Finding:
        """Never raises for what kubelet or the watch do not say."""
        found = _finding(self._matching.prefer(request), _LATE)
        if not found.doubt:
            return found
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_UP_WITHIN), aclosing(self._surer_and_surer(request, found.wish)) as more:
                async for found in more:
                    if not found.doubt:
                        break
        return found

    async def _surer_and_surer(self, request: PreferredRequest, wish: Wish) -> AsyncGenerator[Finding, None]:
        if wish.match is not None and wish.one_entry_suffices:
            key = wish.match.pod.key
            namespace, _, name = key.partition("/")
            if (entry := await self._resources.pod(namespace, name)) is not None:
                yield _finding(self._matching.prefer(request, listing={key: entry}), _LATE)
        if not (listing := await self._resources.pods()):
            async for found in self._by_the_watch(request):
                yield found
            return
        wish = self._matching.prefer(request, listing=listing)
        while strangers := self._to_be_shown(listing):
            yield _finding(wish, _not_shown(strangers))
            try:
                await self._shown.wait()
            except asyncio.CancelledError:
                self._in_vain = self._matching.strangers(listing)
                raise
            wish = self._matching.prefer(request, listing=listing)
        if strangers := self._matching.strangers(listing):
            yield _finding(wish, _not_shown(strangers))
            return
        none = "no pod that kubelet has wants this"
        yield _finding(wish, "several containers of kubelet's pods can be meant" if wish.match else none)

    async def _by_the_watch(self, request: PreferredRequest) -> AsyncGenerator[Finding, None]:
        """Without kubelet's word: the likeliest. While there is none the watch is behind kubelet, and is waited for."""
        doubt = "kubelet does not say which pods it has"
        wish = self._matching.prefer(request)
        while wish.match is None and self._watches() and not self._is_silent:
            yield _finding(wish, doubt)
            try:
                await self._shown.wait()
            except asyncio.CancelledError:
                self._is_silent = True
                raise
            wish = self._matching.prefer(request)
        yield _finding(wish, doubt)

    def _to_be_shown(self, listing: Listing) -> frozenset[str]:
        """A pod that was once waited for in vain is not waited for again, since kubelet waits as long."""
        strangers = self._matching.strangers(listing)
        self._in_vain &= strangers
        return strangers - self._in_vain if self._watches() else frozenset()


def _not_shown(strangers: frozenset[str]) -> str:
    return f"the watch has not shown {', '.join(sorted(strangers))}, which kubelet has"


def _finding(wish: Wish, doubt: str) -> Finding:
    return Finding(wish, "" if wish.confidence is Confidence.KNOWN else doubt)
