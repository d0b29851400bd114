"""Record the state that the laws are about: nodes, and the pods that wait or are bound, as the objects say now."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from simulation import objects
from simulation.objects import Object, Use, quantity


class LawBroken(Exception):
    """A law is broken: ``sentence`` is what was found."""

    def __init__(self, law: str, sentence: str) -> None:
        super().__init__(f"{law}: {sentence}")
        self.law = law
        self.sentence = sentence


@dataclass(slots=True, eq=False)
class BoundPod:
    """A pod that is bound and has not ended."""

    uid: str
    node: str
    value: Object
    version: int  # of the API server's storage when it was bound
    use: Use | None  # what it takes of each card by its decision; None if there is none that counts
    booked: Use | None  # the same, but as receipts say
    # a ledger may book more, because a receipt says that a container has fewer cards than it asks for
    keeps_more: bool = False

    @property
    def name(self) -> str:
        return str(self.value["metadata"]["name"])

    @property
    def annotations(self) -> Mapping[str, str]:
        return objects.annotations_of(self.value)

    @property
    def cards(self) -> Iterable[str]:
        return self.use or {}


class Observed:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.nodes: dict[str, Object] = {}
        self._has: dict[str, Use] = {}  # by node, what each card has now
        self.most: dict[str, Use] = {}  # by node, the most that each card has ever had
        self.waiting: dict[str, Object] = {}  # by UID, the pods that ask for cards and are not bound
        self.bound: dict[str, BoundPod] = {}  # by UID
        self.created: dict[str, int] = {}  # by UID, the version of the API server's storage then
        self.changed: dict[str, float] = {}  # by node, when it or its pods changed
        self.disabled: dict[str, dict[str, float]] = {}  # by node, the cards that a label disables, and since when
        self._by_node: dict[str, dict[str, BoundPod]] = {}

    def see_node(self, name: str, value: Object | None) -> None:
        """Record a node as it is now; None if it is gone."""
        self.changed[name] = self.clock()
        if value is None:
            self.nodes.pop(name, None)
            self._has.pop(name, None)
            return
        self.nodes[name] = value
        before = self.disabled.get(name, {})
        self.disabled[name] = {card: before.get(card, self.clock()) for card in objects.disabled_cards(value)}
        self._has[name] = objects.capacity_of(value)
        objects.join(self.most.setdefault(name, {}), self._has[name], max)

    def bind(self, pod: BoundPod) -> None:
        self.bound[pod.uid] = pod
        self._by_node.setdefault(pod.node, {})[pod.uid] = pod
        self.changed[pod.node] = self.clock()

    def forget(self, uid: str) -> None:
        """Note that a pod is gone, has ended, or is not bound."""
        self.waiting.pop(uid, None)
        if (pod := self.bound.pop(uid, None)) is not None:
            del self._by_node[pod.node][uid]
            self.changed[pod.node] = self.clock()

    def on(self, node: str) -> list[BoundPod]:
        return list(self._by_node.get(node, {}).values())

    def others(self, pod: BoundPod) -> Iterator[BoundPod]:
        return (each for each in self.on(pod.node) if each is not pod)

    def capacity(self, node: str) -> Use:
        """Return what each card of a node has now; nothing if the node is gone."""
        return self._has.get(node, {})

    def fits(self, value: Object, node: str, pods: Iterable[BoundPod]) -> bool:
        """Return whether a pod fits on a node with these pods, by its cards and by the sums of all requests."""
        pods, disabled = list(pods), self.disabled[node]
        capacity = {card: amounts for card, amounts in self.capacity(node).items() if card not in disabled}
        return self._room_by_sums(value, node, pods) and fits_with(value, capacity, pods)

    def most_of(self, pod: BoundPod) -> BoundPod:
        """Return a pod with the most that may be booked for it if that is not known: all it asks for, on each card.

        If it has labels that close cards to others, it stays unknown.
        """
        if pod.use is not None or any(objects.company_of(pod.value)) or objects.card_name_of(pod.value):
            return pod
        spec = pod.value["spec"]
        asked = [objects.demand(each)[1] for each in (*spec["containers"], *(spec.get("initContainers") or ()))]
        asked.append(objects.share_of(pod.value) or {})
        return replace(pod, use=objects.added({card: each} for each in asked for card in self.most[pod.node]))

    def _room_by_sums(self, value: Object, node: str, pods: Iterable[BoundPod]) -> bool:
        asked = objects.limits_of(value)
        total = sum((objects.limits_of(pod.value) for pod in pods), asked)
        allocatable = self.nodes[node]["status"]["allocatable"]
        return all(total[name] <= quantity(allocatable.get(name, "0")) for name in asked)


def used_by(pods: Iterable[BoundPod]) -> Use:
    return objects.added(pod.use or {} for pod in pods)


def fits_with(value: Object, capacity: Use, pods: Iterable[BoundPod]) -> bool:
    pods = list(pods)
    cards, used = _open_cards(value, capacity, pods), used_by(pods)
    if objects.LINKED in objects.annotations_of(value):  # which tiles are free is not followed
        cards = {card: amounts for card, amounts in cards.items() if not used.get(card, {}).get("tiles")}
    groups = objects.card_groups(value, cards)
    return any(objects.fits(value, {card: cards[card] for card in sorted(group)}, used) for group in groups)


def _open_cards(value: Object, capacity: Use, pods: Iterable[BoundPod]) -> Use:
    """Return the cards on which a pod may join these pods, by its labels and the name of its card."""
    affinity, anti_affinity, exclusion = objects.company_of(value)
    own_name = objects.card_name_of(value)
    on: dict[str, list[Object]] = {card: [] for card in capacity}
    for pod in pods:
        for card in pod.cards:
            on.setdefault(card, []).append(pod.value)
    named = {card for card, some in on.items() if own_name and own_name in map(objects.card_name_of, some)}
    found = {}
    for card, amounts in capacity.items():
        company = [objects.company_of(each) for each in on[card]]
        likes = not affinity or not company or any(its == affinity for its, _, _ in company)
        alone = anti_affinity and any(its == anti_affinity for _, its, _ in company)
        apart = any(its != exclusion for _, _, its in company)
        may_name = not own_name or (card in named if named else not company)
        if likes and not alone and not apart and may_name and objects.may_have(value, card):
            found[card] = amounts
    return found
