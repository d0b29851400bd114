"""What kubelet says of who has which devices, in the form in which it is compared with what was answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    return {
        f"{pod.namespace}/{pod.name}": {container.name: container.ids for container in pod.containers} for pod in pods
    }
