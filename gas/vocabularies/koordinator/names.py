"""Names of Koordinator's vocabulary: the resources of its API for sharing GPUs, and the annotation with the result."""

from __future__ import annotations

PREFIX = "koordinator.sh/"

SHARED = "gpu.shared"
"""Number of cards that a container gets, each of them or a share of it. A card has 100 device ids."""
CORE = "gpu-core"
"""Hundredths of the compute of a card, of all cards together."""
MEMORY = "gpu-memory"
"""Bytes, of all cards together."""
MEMORY_RATIO = "gpu-memory-ratio"
"""Percent of the memory of a card, of all cards together."""
GPU = "gpu"
"""The form of before: as many hundredths of compute as percent of memory."""

RESOURCES = (SHARED, MEMORY, MEMORY_RATIO, CORE, GPU)
"""All of them, without their prefix."""
BEGINNING = PREFIX + GPU
"""The beginning of all their full names."""

VENDORS = ("nvidia.com/gpu", "dcu.com/gpu")
"""Resources for whole cards, which Koordinator accepts as well; the vocabulary ``vendor`` reads them."""

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
"""Pod annotation, written with the Binding: the cards of the pod and what it takes of each, as JSON."""

_SCHEDULING = "scheduling.koordinator.sh/"
WITHOUT_EFFECT = (
    _SCHEDULING + "device-allocate-hint",
    _SCHEDULING + "device-joint-allocate",
    _SCHEDULING + "gpu-partition-spec",
)
"""Pod annotations in which Koordinator takes preferences about cards."""


def full_name(resource: str) -> str:
    """Return a resource with its prefix: ``gpu-core`` -> ``koordinator.sh/gpu-core``."""
    return PREFIX + resource
