"""Names of Intel's vocabulary: resources, node labels, and the annotations that users write on pods."""

from __future__ import annotations

from gas.values import amounts
from gas.vocabularies import pod_parts

PREFIX = "gpu.intel.com/"
"""Prefix of extended resources, which are booked card by card, and of node labels that describe cards."""

COUNT_RESOURCES = ("i915", "xe")
"""Resources whose amount is a number of cards.

A pod that asks for both is refused. In a pod that the original placed, the last of them counts.
"""

MONITORING_RESOURCES = ("i915_monitoring", "xe_monitoring", "monitoring")
"""Resources that give access to all cards of the node. They allocate no card, so they are not divided or booked."""

TILES = amounts.TILES

# Node labels that describe cards.
CARDS = PREFIX + "cards"
GPU_NUMBERS = PREFIX + "gpu-numbers"
NUMA_GPU_MAP = PREFIX + "numa-gpu-map"
PCI_GROUPS = PREFIX + "pci-groups"
XE_LINKS = PREFIX + "xe-links"

# Node labels of telemetry: TELEMETRY_PREFIX, the name of a policy, "/", and one of these names.
TELEMETRY_PREFIX = "telemetry.aware.scheduling."
DISABLE_CARD = "gas-disable-"
DESCHEDULE_CARD = "gas-deschedule-pods-"
PREFER_CARD = "gas-prefer-gpu"
DISABLE_TILE = "gas-tile-disable-"
DESCHEDULE_TILE = "gas-tile-deschedule-"
PREFER_TILE = "gas-tile-preferred-"
WHOLE_PCI_GROUP = "PCI_GROUP"
"""Value of DISABLE_CARD and DESCHEDULE_CARD that stands for every card of the same PCI group."""

# Node annotations.
CARD_CAPACITY = "gas-card-capacity"
"""Amounts of single cards where cards differ; written by the device plugin or the administrator."""

# Pod annotations that users write.
ALLOW = "gas-allow"
DENY = "gas-deny"
SAME_GPU = "gas-same-gpu"
ALLOCATE_XELINK = "gas-allocate-xelink"
ALLOCATE_SINGLE_NUMA = "gas-allocate-single-numa"
CARD_ORDER = pod_parts.CARD_ORDER
CARD_NEAR = pod_parts.CARD_NEAR
CARD_AFFINITY = "gas-card-affinity"
CARD_ANTI_AFFINITY = "gas-card-anti-affinity"
CARD_EXCLUSION = "gas-card-exclusion"
CARD_NAME = "gas-card-name"
NODE_SCORE = pod_parts.NODE_SCORE

USERS_ANNOTATIONS = (
    ALLOW,
    DENY,
    SAME_GPU,
    ALLOCATE_XELINK,
    ALLOCATE_SINGLE_NUMA,
    CARD_ORDER,
    CARD_NEAR,
    CARD_AFFINITY,
    CARD_ANTI_AFFINITY,
    CARD_EXCLUSION,
    CARD_NAME,
    NODE_SCORE,
)
"""All of them."""

BOOKED_ANNOTATIONS = (CARD_AFFINITY, CARD_ANTI_AFFINITY, CARD_EXCLUSION, CARD_NAME)
"""Those that still count once the pod is bound, because other pods depend on them."""
