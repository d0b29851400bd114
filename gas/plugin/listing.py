"""What kubelet says of who has which devices, in the form in which it is compared with what was answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from gas.plugin.device_ids import DeviceId

if TYPE_CHECKING:  # at run time it would bring gRPC along
    from gas.plugin.pod_resources import PodDevices

Ids = frozenset[DeviceId]
NO_IDS: Ids = frozenset()

ContainerIds = Mapping[str, Mapping[str, Ids]]
"""One pod: by container, by resource without prefix. Ordinary init containers never appear; every other container
does, with nothing while it has nothing."""

Listing = Mapping[str, ContainerIds]
"""By ``namespace/name``. Empty: kubelet has just started and says nothing."""


def listing_of(pods: Iterable[PodDevices]) -> Listing:
    """The same, from the answer of kubelet's PodResources: of all pods or of some."""
    return _PodsByKey({f"{pod.namespace}/{pod.name}": pod for pod in pods})


class _PodsByKey(Listing):
    """An entry is made when it is looked at."""

    def __init__(self, pods: Mapping[str, PodDevices]) -> None:
        self._pods = pods

    def __getitem__(self, key: str) -> ContainerIds:
        return {container.name: container.ids for container in self._pods[key].containers}

    def __contains__(self, key: object) -> bool:
        return key in self._pods

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)
