"""What kubelet says of who has which devices, in the form in which it is compared with what was answered."""

from __future__ import annotations

from collections.abc import Mapping

from gas.plugin.devices.device_ids import DeviceId

Ids = frozenset[DeviceId]
NO_IDS: Ids = frozenset()

ContainerIds = Mapping[str, Mapping[str, Ids]]
"""One pod: by container, by resource without prefix; monitoring is left out. Ordinary init containers never appear;
every other container does, with nothing while it has nothing."""

Listing = Mapping[str, ContainerIds]
"""By ``namespace/name``. Empty: kubelet has just started and says nothing."""
