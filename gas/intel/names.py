"""Names of Intel's vocabulary: resources, node labels, and the annotations that users write on pods."""

from __future__ import annotations

from gas import amounts

PREFIX = "gpu.intel.com/"
"""Of extended resources (each is booked card by card) and of the node labels that describe cards."""

COUNT_RESOURCES = ("i915", "xe")
"""Number of cards; never both in a pod that we place. In one container of the original's the last of them counts."""

MONITORING_RESOURCES = ("i915_monitoring", "xe_monitoring", "monitoring")
"""Access to all cards of the node: no allocation of a card, so never divided nor booked."""

TILES = amounts.TILES

# Node labels that describe cards.
CARDS = PREFIX + "cards"
GPU_NUMBERS = PREFIX + "gpu-numbers"
NUMA_GPU_MAP = PREFIX + "numa-gpu-map"
PCI_GROUPS = PREFIX + "pci-groups"
XE_LINKS = PREFIX + "xe-links"

# Node labels of telemetry: TELEMETRY_PREFIX, any policy's name, "/", one of these.
TELEMETRY_PREFIX = "telemetry.aware.scheduling."
DISABLE_CARD = "gas-disable-"
DESCHEDULE_CARD = "gas-deschedule-pods-"
PREFER_CARD = "gas-prefer-gpu"
DISABLE_TILE = "gas-tile-disable-"
DESCHEDULE_TILE = "gas-tile-deschedule-"
PREFER_TILE = "gas-tile-preferred-"
WHOLE_PCI_GROUP = "PCI_GROUP"
"""Value of DISABLE_CARD and DESCHEDULE_CARD that means every card of the same PCI group."""

# Node annotations.
CARD_CAPACITY = "gas-card-capacity"
"""Written by whoever knows the cards: per-card amounts where cards differ."""

# Pod annotations that users write.
ALLOW = "gas-allow"
DENY = "gas-deny"
SAME_GPU = "gas-same-gpu"
ALLOCATE_XELINK = "gas-allocate-xelink"
ALLOCATE_SINGLE_NUMA = "gas-allocate-single-numa"
