"""KubeShare's vocabulary: annotations that ask for a fraction of a card."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from gas.objects.stored import VISIBLE_CARDS, Node, Pod
from gas.placement.candidates import UseAtStart
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.inventory import Company, Inventory
from gas.placement.need import PodNeed, Scope
from gas.placement.order import CardOrder, NodeScore
from gas.values.amounts import MEMORY_MAX, MILLICORES
from gas.values.card_facts import CardFacts
from gas.values.card_records import ANNOTATION
from gas.values.cards import Card
from gas.values.quoted import quoted
from gas.vocabularies.kubeshare import names
from gas.vocabularies.kubeshare.request import (
    Asking,
    KubeShareAdmission,
    Share,
    asking_containers,
    bearer,
    label_text,
    readable_label,
    readable_share,
    share_of,
    stated_share,
)
from gas.vocabularies.node_parts import allocatable_amount, allocatable_resources, recorded_amounts
from gas.vocabularies.pod_parts import (
    PREFERENCES,
    card_company,
    check_sum,
    need_facts,
    requested,
    requests_any,
    with_preferences,
)
from gas.vocabularies.protocol import BadNeed, DeviceOptions, Faults, NeedFacts, NeedOptions, NodeDescription, NodeFacts


@dataclass(frozen=True, slots=True)
class UsedThenBestFit(CardOrder):
    """Used cards before idle ones; of these the one of which least is left, then the one with the lowest index."""

    name = "used-then-best-fit"

    def key(self, card: Card, use: UseAtStart) -> tuple[int, ...]:
        return (0 if use.containers(card) else 1, use.left(card, MILLICORES))


_LABELS = (names.AFFINITY, names.ANTI_AFFINITY, names.EXCLUSION)
USED_THEN_BEST_FIT = UsedThenBestFit()


class KubeShare(KubeShareAdmission):
    """The vocabulary of pods with KubeShare's annotations or ``kubeshare/vgpu``; all their containers get one card.

    A container may ask for several cards by ``kubeshare/vgpu``. It then takes the pod's share of each of them. The name
    of the pod's card is not read back: a name alone does not identify the card. KubeShare's own pods have their card's
    UUID in a variable of their containers. The records of a node state the memory of each card.
    """

    name = "kubeshare"
    reference = names.REFERENCE
    component = names.COMPONENT
    user_annotations = PREFERENCES
    names_cards = True
    metadata = frozenset(names.ANNOTATIONS)
    resources = managed_resources = (names.VGPU,)
    asking = names.ASKING
    choice_annotations = frozenset({names.GPUID})
    written = names.WRITTEN

    def matches(self, pod: Pod) -> bool:
        annotations = pod.metadata.annotations
        if annotations and any(name in annotations for name in names.AMOUNTS):
            return True
        return requests_any(pod, names.VGPU)

    def need(self, facts: NeedFacts, options: NeedOptions) -> PodNeed:
        annotations, faults = facts.annotations, Faults()
        read = faults.of(share_of, annotations), faults.of(asking_containers, facts)
        named = faults.of(label_text, annotations, names.GPUID)
        company = faults.of(card_company, annotations, *_LABELS, label_text)
        share, asking = faults.none_in(read[0]), faults.none_in(read[1])
        stated = [requested(each, names.VGPU) for each in facts.containers if names.VGPU in each.requests]
        if stated and not any(stated):
            raise BadNeed(f"{names.VGPU}: expected 1 or more in a container, found 0; raise it or remove it")
        check_sum(names.VGPU, sum(each.cards for each in asking))
        _check_cards(asking)
        _check_stated(asking, share)
        need = _need(asking, share)
        if named and not need.scope.is_one_card:
            raise BadNeed(
                f"{names.GPUID}: expected a pod of one card, found a container with {asking[bearer(asking)].cards};"
                f" remove the annotation or lower {names.VGPU}"
            )
        need = with_preferences(need, annotations, options, USED_THEN_BEST_FIT)
        return replace(
            need,
            node_score=need.node_score or NodeScore.BEST_FIT_CARD,
            company=company or Company(),
            named=named or "",
        )

    def booked_need(self, facts: NeedFacts) -> PodNeed:
        """Return what the pod takes. Amounts that containers request as resources count, since these cannot change."""
        asking = asking_containers(facts)
        need = _need(asking, stated_share(asking) or readable_share(facts.annotations))
        return replace(
            need,
            company=card_company(facts.annotations, *_LABELS, readable_label),
            named=readable_label(facts.annotations, names.GPUID) if need.scope.is_one_card else "",
        )

    def write(self, pod: Pod, need: PodNeed, choice: Choice, time_ns: int, node: NodeFacts | None) -> Mapping[str, str]:
        return {names.GPUID: need.named} if need.named else {}

    def is_fixed(self, pod: Pod) -> bool:
        return bool(_uuid(pod)) and not requests_any(pod, names.VGPU)

    def read(self, pod: Pod, need: PodNeed, node: NodeFacts | None) -> Choice | None:
        if node is None or not self.is_fixed(pod) or (card := node.uuids.get(_uuid(pod))) is None:
            return None
        return Choice(tuple(ContainerChoice((card,) if each.count else ()) for each in need.containers))

    def source(self, node: Node) -> Hashable:
        allocatable = allocatable_resources(node)
        return (allocatable[names.VGPU], recorded_amounts(node)) if names.VGPU in allocatable else ()

    def facts(self, node: Node) -> NodeFacts | None:
        allocatable = allocatable_resources(node)
        if names.VGPU not in allocatable:
            return None
        problems: list[str] = []
        offered = allocatable_amount(allocatable, names.VGPU, problems)
        recorded = recorded_amounts(node) or ()
        if offered and not recorded:
            problems.append(
                f"allocatable {names.VGPU}: expected a card in annotation {ANNOTATION}, found none; pods get no card of"
                " this node in the words of kubeshare"
            )
        capacity: dict[Card, Mapping[str, int]] = {
            card: {names.UNITS: names.IDS_OF_A_CARD, MILLICORES: millicores, **({MEMORY_MAX: memory} if memory else {})}
            for card, memory, millicores in recorded
            if offered
        }
        return NodeFacts(inventory=Inventory(capacity=capacity), problems=tuple(problems))

    def ids_per_card(self, card: CardFacts, options: DeviceOptions) -> Mapping[str, int]:
        return {names.VGPU: names.IDS_OF_A_CARD}

    def describe(self, cards: Sequence[CardFacts], options: DeviceOptions) -> NodeDescription:
        healthy = [card for card in cards if card.healthy]
        if not healthy:
            return NodeDescription()
        return NodeDescription(
            resources={
                names.MILLICORES: sum(card.millicores for card in healthy),
                names.MEMORY: sum(card.memory or 0 for card in healthy),
            }
        )

    def environment(self, pod: Pod, container: str, cards: Sequence[CardFacts], node: NodeFacts) -> Mapping[str, str]:
        """Return what KubeShare's device manager adds in addition to the card."""
        return {names.CAPABILITIES: "compute,utility"} if any(card.driver == "nvidia" for card in cards) else {}

    def contradiction(self, pod: Pod) -> str:
        try:
            stated = stated_share(asking_containers(need_facts(pod)))
        except BadNeed:
            return ""
        if stated is None or stated == readable_share(pod.annotations):
            return ""
        return (
            f"its annotations {names.GPU_REQUEST} and {names.GPU_MEM} say other amounts than its containers request;"
            " those of the containers are booked"
        )


KUBESHARE = KubeShare()


def _uuid(pod: Pod) -> str:
    """Return the UUID of the card that KubeShare's device manager gave a pod, empty if it gave none."""
    return next((text for each in pod.spec.containers or () if (text := each.variable(VISIBLE_CARDS))), "")


def _need(asking: Sequence[Asking], share: Share) -> PodNeed:
    bears = bearer(asking)
    return PodNeed(
        containers=tuple(each.need(share if at == bears else None) for at, each in enumerate(asking)),
        scope=Scope.ANYWHERE if any(each.cards > 1 for each in asking) else Scope.CARD,
        count_resources=frozenset({names.UNITS}),
    )


def _check_cards(asking: Sequence[Asking]) -> None:
    """Raise BadNeed if a container has several cards and another one has cards too, since they could not share one."""
    with_cards = [each for each in asking if each.cards]
    several = next((each for each in with_cards if each.cards > 1), None)
    if several is not None and len(with_cards) > 1:
        raise BadNeed(
            f"container {quoted(several.container.name)}: expected {names.VGPU} 1, because other containers have a card"
            f" as well, found {several.cards}; lower it, or leave the others without a card"
        )


def _check_stated(asking: Sequence[Asking], share: Share) -> None:
    """Raise BadNeed if the amounts that containers request are not those of the annotations."""
    stated = [each.stated for each in asking if each.stated is not None]
    if not stated:
        return
    cards = asking[bearer(asking)].cards
    for resource, annotation, found, expected in (
        (names.MILLICORES, names.GPU_REQUEST, sum(each.millicores for each in stated), share.millicores * cards),
        (names.MEMORY, names.GPU_MEM, sum(each.memory for each in stated), share.memory * cards),
    ):
        if found != expected:
            raise BadNeed(
                f"{resource}: expected {expected} in total, as annotation {annotation} says, found {found}; remove the"
                " requests from the template, or correct one of the two"
            )
