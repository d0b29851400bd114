"""Names of HAMi's vocabulary, those of its webhook, its scheduler and its device plugin for NVIDIA's cards."""

from dataclasses import dataclass, fields

from gas.vocabularies.protocol import Beginnings, Component, Reference, Row, WrittenNames

PREFIX = "nvidia.com/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The full names of the resources that pods request; the field names are HAMi's without hyphens."""

    gpu: str = PREFIX + "gpu"  # cards, of which kubelet is offered some ids for each
    gpumem: str = PREFIX + "gpumem"  # MiB of each card
    gpumem_percentage: str = PREFIX + "gpumem-percentage"  # percent of the memory of each card
    gpucores: str = PREFIX + "gpucores"  # percent of the compute of each card
    priority: str = PREFIX + "priority"  # 0 or 1, for HAMi-core; nothing is booked

    @property
    def asking(self) -> tuple[str, ...]:
        """Those by which a pod asks for cards."""
        return self.gpu, self.gpumem, self.gpumem_percentage, self.gpucores


RESOURCES = Resources()
KEYS = {each.name.replace("_", "-"): each.name for each in fields(Resources)}  # key of the flag -> field

PLACES = "gpu"  # the count resource as ledgers name it: how many containers may have a card

_DOMAIN = "hami.io/"

# Pod annotations that users write.
USE_UUID, NO_UUID = PREFIX + "use-gpuuuid", PREFIX + "nouse-gpuuuid"
USE_TYPE, NO_TYPE = PREFIX + "use-gputype", PREFIX + "nouse-gputype"
NUMA_BIND, MODE = PREFIX + "numa-bind", PREFIX + "vgpu-mode"
NODE_POLICY, CARD_POLICY = _DOMAIN + "node-scheduler-policy", _DOMAIN + "gpu-scheduler-policy"
WEIGHTS = _DOMAIN + "device-scoring-weights"
USER_ANNOTATIONS = frozenset({USE_UUID, NO_UUID, USE_TYPE, NO_TYPE, NUMA_BIND, MODE, NODE_POLICY, CARD_POLICY, WEIGHTS})

# Pod annotations that are written with the Binding; NODE is a label as well.
NODE, TIME, ALLOCATED = (_DOMAIN + each for each in ("vgpu-node", "vgpu-time", "vgpu-devices-allocated"))
LEFT_OVER = frozenset(_DOMAIN + each for each in ("vgpu-devices-to-allocate", "bind-phase", "bind-time"))
"""Annotations by which HAMi's plugin takes a pod for the one that it serves. Those in templates are emptied."""

REGISTER = _DOMAIN + "node-nvidia-register"  # node annotation: its cards
CORDON = _DOMAIN + "device-cordon"  # node annotation: UUIDs of cards on which nothing new may start
PRIORITY = "CUDA_TASK_PRIORITY"  # variable of a container
HAMI_CORE = "hami-core"  # the mode of every card

WRITTEN = WrittenNames(annotations=(REGISTER,))
ASKING = Beginnings(resources=(RESOURCES.gpu, RESOURCES.priority))
REFERENCE = Reference(
    owner="HAMi's",
    page="from-hami.md",
    resources=(
        Row(RESOURCES.gpu, "pods ask, kubelet counts", "cards; --hami-split-count ids on each card of a node"),
        Row(RESOURCES.gpumem, "pods ask", "MiB of each of the cards"),
        Row(RESOURCES.gpumem_percentage, "pods ask", "percent of the memory of each card"),
        Row(RESOURCES.gpucores, "pods ask", "percent of the compute of each card"),
        Row(RESOURCES.priority, "pods ask", f"0 or 1, the variable `{PRIORITY}` of HAMi-core"),
    ),
    node_annotations=(
        Row(REGISTER, "the plugin", "JSON: the cards, for HAMi's WebUI; read where the node has no `gas-cards`"),
        Row(CORDON, "you", "UUIDs, divided by commas: cards on which nothing new may start"),
    ),
    pod_annotations=(
        Row(USE_UUID, "you", "UUIDs, divided by commas: only these cards may be used"),
        Row(NO_UUID, "you", "UUIDs: these cards may not be used"),
        Row(USE_TYPE, "you", "parts of the names of models: only such cards may be used"),
        Row(NO_TYPE, "you", "parts of the names of models: no such card may be used"),
        Row(NUMA_BIND, "you", "`true`: all cards of the pod are from one NUMA node"),
        Row(MODE, "you", f"must contain `{HAMI_CORE}`"),
        Row(NODE_POLICY, "you", "`spread` or `binpack`: how nodes are scored, with --node-score"),
        Row(CARD_POLICY, "you", "`binpack`, `spread`, `mutex`, `numa`, `topology-aware`, divided by commas"),
        Row(WEIGHTS, "you", "`slot=1,core=1,memory=3`: what counts for `binpack` and `spread`"),
        Row(NODE, "the extender", "the name of the node; a label as well"),
        Row(TIME, "the extender", "when the cards were decided, in seconds since the epoch"),
        Row(ALLOCATED, "the extender", "`UUID,NVIDIA,MiB,percent:` for each card, `;` after each container"),
    ),
)
COMPONENT = Component(
    about=(
        f"Accepts pods that request {RESOURCES.gpu} and {RESOURCES.gpumem} as with HAMi. The component admission adds"
        " the number of cards to pods that do not state it."
    )
)
