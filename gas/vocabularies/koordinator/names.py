"""Names of Koordinator's vocabulary: the resources of its API for sharing GPUs, and the annotation with the result."""

from gas.vocabularies.protocol import Beginnings, Component, Reference, Row, WrittenNames

PREFIX = "koordinator.sh/"

SHARED = "gpu.shared"  # Number of cards of a container, each of them or a share of it. A card has 100 device ids.
CORE = "gpu-core"  # hundredths of the compute of a card, of all cards together
MEMORY = "gpu-memory"  # bytes, of all cards together
MEMORY_RATIO = "gpu-memory-ratio"  # percent of the memory of a card, of all cards together
GPU = "gpu"  # the form of before: as many hundredths of compute as percent of memory
RESOURCES = (SHARED, MEMORY, MEMORY_RATIO, CORE, GPU)  # all of them, without their prefix
BEGINNING = PREFIX + GPU  # the beginning of all their full names

VENDORS = ("nvidia.com/gpu", "dcu.com/gpu")
"""Resources for whole cards, which Koordinator accepts as well; the vocabulary ``vendor`` reads them."""

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
"""Pod annotation, written with the Binding: the cards of the pod and what it takes of each, as JSON."""

MINORS = "scheduling.koordinator.sh/gpu-minors"
"""Pod annotation, written with the Binding: the numbers in ALLOCATED, for templates that refer to them."""

HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"  # Pod annotations with rules for its cards, as JSON

PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
"""Node annotation: sets of cards that are given out together, as JSON. Koordinator has it on its Device objects."""
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
"""Node label: ``Honor`` if pods of whole cards get partitions only."""

MODEL, VENDOR, DRIVER = (f"node.koordinator.sh/gpu-{each}" for each in ("model", "vendor", "driver-version"))
"""Node labels that describe its cards, if these are alike."""

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
QUOTA = "quota.scheduling.koordinator.sh/name"
"""An annotation and a label of pods without effect, the label unless SCHEDULER places them."""
ISOLATION = PREFIX + "gpu-isolation-provider"
"""Label of pods that choose how their use of cards is limited, and of the nodes where it can be."""
HAMI_CORE = "HAMi-core"  # its only value
SCHEDULER = "koord-scheduler"
OTHER_DEVICES = (PREFIX + "rdma", PREFIX + "fpga")  # resources of devices that are not cards


def full_name(resource: str) -> str:
    """Return a resource with its prefix: ``gpu-core`` -> ``koordinator.sh/gpu-core``."""
    return PREFIX + resource


ASKING = Beginnings(resources=(BEGINNING,))
WRITTEN = WrittenNames(
    labels=(MODEL, VENDOR, DRIVER), resources=tuple(full_name(each) for each in (GPU, CORE, MEMORY, MEMORY_RATIO))
)
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
    node_labels=(
        Row(MODEL, "the plugin", "the model of the cards, if they are alike; `Arc-B580`"),
        Row(VENDOR, "the plugin", "`nvidia` or `intel`"),
        Row(DRIVER, "the plugin", "the version of NVIDIA's driver"),
        Row(ISOLATION, "you", "`HAMi-core` where it is installed"),
        Row(PARTITION_POLICY, "you", "`Honor`: pods of whole cards get partitions only"),
    ),
    node_annotations=(Row(PARTITIONS, "you", "JSON: sets of cards that are given out together"),),
    pod_annotations=(
        Row(ALLOCATED, "the extender", "JSON: the number (`minor`) of each card, and what the pod has of it"),
        Row(MINORS, "the extender", "these numbers, divided by commas"),
        Row(HINT, "you", "JSON: rules for the pod's cards"),
        Row(PARTITION_SPEC, "you", "JSON: the pod gets one of the node's partitions"),
    ),
)
COMPONENT = Component(
    about=(
        "Accepts pods that request shares of cards as with Koordinator, and whole cards of a vendor's own plugin. The"
        " component admission adds the number of cards to pods that do not state it."
    ),
    others=("vendor",),
)
