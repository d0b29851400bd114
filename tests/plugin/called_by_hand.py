"""A node's plugin whose calls are made by hand, and what its matches are compared by."""

from __future__ import annotations

from gas.objects import NodePod
from gas.plugin.devices.allocation_policy import PreferredRequest
from gas.plugin.kubelet.listing import NO_IDS, Ids, Listing
from gas.plugin.matching.match import Match, Wish
from gas.plugin.matching.matching import Matching
from gas.plugin.matching.waiting_pods import PodsOfNode
from tests.plugin.pods_for_plugin import ids


class Node:
    """A node's plugin, without a kubelet: calls are made by hand."""

    def __init__(self, *pods: NodePod) -> None:
        self.pods = PodsOfNode()
        self.matching = Matching(self.pods)
        self.now = 100.0
        self.pods.replaced(list(pods))

    def prefer(
        self,
        size: int,
        available: Ids,
        must_include: Ids = NO_IDS,
        listing: Listing | None = None,
        resource: str = "i915",
    ) -> Wish:
        offered = tuple(sorted(available | must_include))
        request = PreferredRequest(resource=resource, offered=offered, must_include=must_include, size=size)
        return self.matching.prefer(request, listing=listing)

    def allocate(self, *texts: str, resource: str = "i915") -> Match | None:
        self.now += 10
        return self.matching.allocate(resource, ids(*texts), now=self.now)


def named(match: Match | None) -> tuple[str, str, str] | None:
    """(pod, container, confidence)"""
    return (match.pod.written.metadata.name, match.want.container, str(match.confidence)) if match else None
