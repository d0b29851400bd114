"""Names of KubeShare's vocabulary: annotations that users write, what is written back, and resources."""

from gas.vocabularies.protocol import Beginnings, Component, Reference, Row, WrittenNames

PREFIX = "kubeshare/"

# Annotations that users write on SharePods and on plain pods.
GPU_REQUEST = PREFIX + "gpu_request"  # the part of a card that the pod takes, from 0 to 1
GPU_LIMIT = PREFIX + "gpu_limit"  # The part that the pod may use while others leave it idle, up to 1. It is not booked.
GPU_MEM = PREFIX + "gpu_mem"  # bytes of memory of the card
GPUID = PREFIX + "GPUID"  # A name for a card of the node. Users may choose one; else it is written with the Binding.
AFFINITY = PREFIX + "sched_affinity"
ANTI_AFFINITY = PREFIX + "sched_anti-affinity"
EXCLUSION = PREFIX + "sched_exclusion"

AMOUNTS = (GPU_REQUEST, GPU_LIMIT, GPU_MEM)  # the annotations that ask for a part of a card: all of them, or none
ANNOTATIONS = (*AMOUNTS, GPUID, AFFINITY, ANTI_AFFINITY, EXCLUSION)  # all of them

# Resources. The amounts are requests of a container, because these cannot be edited later.
VGPU = PREFIX + "vgpu"  # The number of cards of a container. Kubelet counts it, so it gives the container its card.
MILLICORES = PREFIX + "millicores"  # the sum of what a container takes of its cards, in thousandths of a card
MEMORY = PREFIX + "memory.max"  # the same in bytes of memory
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"  # variable of containers: what of the driver NVIDIA's runtime mounts
UNITS = VGPU.removeprefix(PREFIX)  # the resource that counts cards as ledgers name it
IDS_OF_A_CARD = 1000  # device ids of a card: one for each pod with the smallest request, a thousandth

ASKING = Beginnings(resources=(PREFIX,), annotations=(PREFIX,))
WRITTEN = WrittenNames(resources=(MILLICORES, MEMORY))
REFERENCE = Reference(
    owner="KubeShare's",
    page="from-kubeshare.md",
    resources=(
        Row(VGPU, "pods ask, kubelet counts", "cards that pods share"),
        Row(MILLICORES, "pods ask, the plugin writes", "thousandths of cards"),
        Row(MEMORY, "pods ask, the plugin writes", "bytes of GPU memory"),
    ),
    pod_annotations=(
        Row(GPU_REQUEST, "you", "`0.5`: the part of a card that the pod takes"),
        Row(GPU_LIMIT, "you", "`1.0`: the part that it may use while others leave it idle; not booked"),
        Row(GPU_MEM, "you", "`1073741824`: bytes of the card's memory"),
        Row(GPUID, "you, the extender", "`abcde`: the name of the card"),
        Row(AFFINITY, "you", "only a card that is idle or has a pod with the same value"),
        Row(ANTI_AFFINITY, "you", "no card with a pod of the same value"),
        Row(EXCLUSION, "you", "all pods of a card have the same value, or all have none"),
    ),
)
COMPONENT = Component(
    about=(
        "Accepts pods with KubeShare's annotations. Needs the component admission, whose webhook complete.pods.gas"
        " turns the annotations into resources."
    )
)
