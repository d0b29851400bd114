"""Names of what gas writes on pods and nodes, the same for every vocabulary.

`gas-plugin` reads only `TIMESTAMP`, `CONTAINER_CARDS`, `CONTAINER_TILES` and their counterparts for init containers.
"""

# The decision, written on the pod with its Binding.
TIMESTAMP = "gas-ts"
CONTAINER_CARDS = "gas-container-cards"
CONTAINER_TILES = "gas-container-tiles"
INIT_CONTAINER_CARDS = "gas-init-container-cards"
INIT_CONTAINER_TILES = "gas-init-container-tiles"

# The receipt: the cards that kubelet really handed out, written by the device plugin where they differ.
ALLOCATED_CARDS = "gas-allocated-cards"
ALLOCATED_INIT_CARDS = "gas-allocated-init-cards"

DECISION = (CONTAINER_CARDS, INIT_CONTAINER_CARDS, CONTAINER_TILES, INIT_CONTAINER_TILES)
RECEIPT = (ALLOCATED_CARDS, ALLOCATED_INIT_CARDS)
WRITTEN_ANNOTATIONS = (TIMESTAMP, *DECISION, *RECEIPT)  # all pod annotations of the two

EXPIRED_BINDING = "gas-expired-binding"
"""Pod annotation, nanoseconds since the epoch: when earlier bindings of the pod were ended. Writing it changes the
pod's version, so that such a binding fails if it comes later."""

CHECKED = "gas-checked"
"""Annotation of a new pod in which the webhook that completes pods found no fault, so that no other one is asked. Users
cannot forge it, because that webhook is asked about every pod that has it."""

RELEASED = "gas-released"  # Node annotation, nanoseconds since the epoch: cards became free while pods waited for some
DESCHEDULE_POD_LABEL = "gpu.aware.scheduling/deschedule-pod"  # label of pods that should leave their node
DESCHEDULE_POD_VALUE = "gpu"
DESCHEDULED_BY_US = "gas-deschedule-label"
"""Pod annotation next to `DESCHEDULE_POD_LABEL`: the extender set the label, so it may remove it."""
