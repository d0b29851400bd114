"""A node's plugin whose calls are made by hand, a list of kubelet's, and what matches are compared by."""

from __future__ import annotations

import asyncio

from gas.objects.stored import Pod
from gas.plugin.devices.device_ids import NO_IDS, AllocateRequest, Ids
from gas.plugin.kubelet.pod_resources import ContainerIds, Listing, PodResources
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Match, Matcher, Preference
from gas.vocabularies.known import DEFAULT
from tests.listed import list_all
from tests.plugin.pods_for_plugin import I915, WITHOUT_DEVICES, ids, question


class Node:
    """A node's plugin, without a kubelet: calls are made by hand."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = GpuPods(DEFAULT)
        self.matcher = Matcher(self.pods)
        self.now = 100.0
        list_all(self.pods, list(pods))

    def prefer(
        self,
        size: int,
        available: Ids,
        must_include: Ids = NO_IDS,
        listing: Listing | None = None,
        resource: str = I915,
    ) -> Preference:
        asked = question(available | must_include, size, must_include, resource)
        return self.matcher.prefer(asked, listing=listing)

    def allocate(self, *texts: str, resource: str = I915) -> Match:
        self.now += 10
        return self.matcher.allocate(AllocateRequest(resource=resource, ids=ids(*texts)), now=self.now)


class Kubelet(PodResources):
    """A list with the pods of these names; ``given``: those of them that have a device.

    asked     what it was asked for, in order
    may_list  is waited for before it lists all pods
    """

    def __init__(self, *names: str, **given: str) -> None:
        self.names = names
        self.given = given
        self.asked: list[str] = []
        self.may_list = asyncio.Event()
        self.may_list.set()

    async def pods(self) -> Listing | None:
        self.asked.append("all")
        await self.may_list.wait()
        return {f"default/{name}": self._entry(name) for name in self.names} or None

    async def pod(self, namespace: str, name: str) -> ContainerIds | None:
        self.asked.append(name)
        return self._entry(name) if name in self.names else None

    def _entry(self, name: str) -> ContainerIds:
        return {"c": {I915: ids(self.given[name])}} if name in self.given else WITHOUT_DEVICES


def named(match: Match) -> tuple[str, str, str] | None:
    """Return (pod, container, confidence); None without a target."""
    if (target := match.target) is None:
        return None
    return target.pod.raw.metadata.name, target.demand.container, str(match.confidence)
