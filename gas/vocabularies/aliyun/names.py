"""Names of Aliyun's vocabulary, those of its scheduler extender and its device plugin."""

from gas.vocabularies.protocol import Beginnings, Component, Reference, Row, WrittenNames

PREFIX = "aliyun.com/"
BEGINNING = PREFIX + "gpu"  # beginning of the resources by which pods are known, so that misspelt ones are reported
GPU_MEM = PREFIX + "gpu-mem"  # Resource that pods request: memory of one card in units, with a device id for each.
GPU_COUNT = PREFIX + "gpu-count"  # resource of nodes: the number of cards
UNITS = GPU_MEM.removeprefix(PREFIX)  # the resource as ledgers name it

# Pod annotations, written with the Binding.
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
"""The index of the card among the node's cards with memory: 0 to ``gpu-count`` - 1, whatever N ``cardN`` has."""
ID = "ALIYUN_GPU_ID"  # the same; the name in Aliyun's document, where its code has the one above
POD = "ALIYUN_COM_GPU_MEM_POD"  # the units that the pod takes of its card
CARD = "ALIYUN_COM_GPU_MEM_DEV"  # the units that the card has
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"  # nanoseconds since the epoch
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"  # ``false``, and ``true`` once the containers have got the card

CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
"""Variable of a container: the units that it requests. INDEX, POD and CARD are variables as well."""

WRITTEN_ANNOTATIONS = frozenset({INDEX, ID, POD, CARD, ASSUME_TIME, ASSIGNED})

ASKING = Beginnings(resources=(BEGINNING,))
WRITTEN = WrittenNames(resources=(GPU_COUNT,), pod_annotations=(ASSIGNED,))
REFERENCE = Reference(
    owner="Aliyun's",
    page="from-aliyun.md",
    resources=(
        Row(GPU_MEM, "pods ask, kubelet counts", "memory of one card, in MiB or GiB by --aliyun-unit"),
        Row(GPU_COUNT, "the plugin writes", "cards"),
    ),
    pod_annotations=(
        Row(INDEX, "the extender", "index of the card among the node's cards with memory, from 0"),
        Row(ID, "the extender", "the same"),
        Row(POD, "the extender", "units of memory of the pod"),
        Row(CARD, "the extender", "units of memory of the card"),
        Row(ASSUME_TIME, "the extender", "when the card was decided, in nanoseconds since the epoch"),
        Row(ASSIGNED, "the extender, the plugin", "`false`, then `true` once the containers have got the card"),
    ),
)
COMPONENT = Component(about=f"Accepts pods that request {GPU_MEM}, in MiB. For GiB, add --aliyun-unit=GiB to both.")
