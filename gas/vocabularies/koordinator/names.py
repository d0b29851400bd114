"""Names of Koordinator's vocabulary: the resources of its API for sharing GPUs, and the annotation with the result."""

from __future__ import annotations

from gas.vocabularies.protocol import Beginnings, Component, Reference, Row, WrittenNames

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


ASKING = Beginnings(resources=(BEGINNING,))
WRITTEN = WrittenNames(resources=tuple(full_name(each) for each in (GPU, CORE, MEMORY, MEMORY_RATIO)))
REFERENCE = Reference(
    owner="Koordinator's",
    page="from-koordinator.md",
    resources=(
        Row(full_name(SHARED), "pods ask, kubelet counts", "cards; 100 on each card of a node"),
        Row(full_name(MEMORY), "pods ask, the plugin writes", "bytes of all cards together"),
        Row(
            full_name(MEMORY_RATIO), "pods ask, the plugin writes", "percent of a card's memory, of all cards together"
        ),
        Row(full_name(CORE), "pods ask, the plugin writes", "hundredths of a card's compute, of all cards together"),
        Row(full_name(GPU), "pods ask, the plugin writes", "the two above in one; the webhook rewrites it"),
    ),
    pod_annotations=(
        Row(ALLOCATED, "the extender", "JSON: the number (`minor`) of each card, and what the pod has of it"),
    ),
)
COMPONENT = Component(
    about=(
        "Accepts pods that request shares of cards as with Koordinator, and whole cards of a vendor's own plugin. The"
        " component admission adds the number of cards to pods that do not state it."
    ),
    others=("vendor",),
)
