"""Names of Intel's vocabulary: resources, node labels, and the annotations that users write on pods."""

from gas.values import amounts
from gas.vocabularies import pod_parts
from gas.vocabularies.protocol import Beginnings, Reference, Row, WrittenNames

PREFIX = "gpu.intel.com/"  # prefix of extended resources, booked card by card, and of node labels about cards

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
WHOLE_PCI_GROUP = "PCI_GROUP"  # value of DISABLE_CARD and DESCHEDULE_CARD for every card of the same PCI group

# Node annotations.
CARD_CAPACITY = "gas-card-capacity"  # amounts of single cards where they differ; by the plugin or the administrator

# Pod annotations that users write.
ALLOW = "gas-allow"
DENY = "gas-deny"
SAME_GPU = "gas-same-gpu"
ALLOCATE_XELINK = "gas-allocate-xelink"
ALLOCATE_SINGLE_NUMA = "gas-allocate-single-numa"
CARD_AFFINITY = "gas-card-affinity"
CARD_ANTI_AFFINITY = "gas-card-anti-affinity"
CARD_EXCLUSION = "gas-card-exclusion"
CARD_NAME = "gas-card-name"

BOOKED_ANNOTATIONS = (CARD_AFFINITY, CARD_ANTI_AFFINITY, CARD_EXCLUSION, CARD_NAME)
"""Those that still count once the pod is bound, because other pods depend on them."""

ASKING = Beginnings(resources=(PREFIX,))
WRITTEN = WrittenNames(labels=(PREFIX,), resources=(PREFIX,), annotations=(CARD_CAPACITY,))
TELEMETRY_LABELS = (
    DISABLE_CARD + "cardN",
    DESCHEDULE_CARD + "cardN",
    PREFER_CARD,
    DISABLE_TILE + "cardN_gtM",
    DESCHEDULE_TILE + "cardN_gtM",
    PREFER_TILE + "cardN",
)
"""Names after the prefix of telemetry, for the reference page."""

REFERENCE = Reference(
    owner="Intel's",
    resources=(
        *(Row(PREFIX + name, "pods ask, kubelet counts", "cards of this driver") for name in COUNT_RESOURCES),
        Row(PREFIX + TILES, "pods ask, the plugin writes", "tiles"),
        Row(PREFIX + amounts.MILLICORES, "pods ask, the plugin writes", "thousandths of cards"),
        Row(PREFIX + amounts.MEMORY_MAX, "pods ask, the plugin writes", "bytes of GPU memory"),
        *(
            Row(PREFIX + name, "pods ask, kubelet counts", "access to all cards of the node; nothing is booked")
            for name in MONITORING_RESOURCES
        ),
    ),
    node_labels=(
        Row(GPU_NUMBERS, "the plugin, NFD, you", "`0.1.2`: the node's cards"),
        Row(CARDS, "the plugin, NFD, you", "`card0.card1`: the same in an older form"),
        Row(NUMA_GPU_MAP, "the plugin, NFD, you", "`0-0.1_1-2.3`: cards by NUMA node"),
        Row(PCI_GROUPS, "the plugin, NFD, you", "`0.1_2.3.4`: cards on one board"),
        Row(XE_LINKS, "telemetry, you", "`0.0-1.0_2.0-3.0`: linked tiles"),
    ),
    node_annotations=(Row(CARD_CAPACITY, "the plugin, you", "the resources of single cards, if the cards differ"),),
    pod_annotations=(
        Row(ALLOW, "you", "cards by number, model or PCI address: only these are used, with --enableAllowlist"),
        Row(DENY, "you", "cards in the same way: these are not used, with --enableDenylist"),
        Row(SAME_GPU, "you", "container names: these containers share one card"),
        Row(ALLOCATE_XELINK, "you", "any text: cards are allocated in linked pairs"),
        Row(ALLOCATE_SINGLE_NUMA, "you", "any text: all cards are from one NUMA node"),
        *pod_parts.PREFERENCE_ROWS,
        Row(CARD_AFFINITY, "you", "a label: only cards that are idle or have a pod with the same label"),
        Row(CARD_ANTI_AFFINITY, "you", "a label: only cards without a pod with the same label"),
        Row(CARD_EXCLUSION, "you", "a label: all pods of a card have the same one, or all have none"),
        Row(
            CARD_NAME, "you", "a label: the node's pods with the same one share a card; or one card, as in `gas-allow`"
        ),
    ),
)
USERS_ANNOTATIONS = tuple(row.name for row in REFERENCE.pod_annotations)
