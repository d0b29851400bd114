"""Check the laws of a new Binding: the cards and tiles of the pod, and with whom it shares them."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, combinations

from simulation import objects
from simulation.objects import Object
from simulation.observed import BoundPod, LawBroken, Observed, fits_with, used_by


class Bindings:
    """The laws of pods that the extender has bound, or whose Bindings it has reviewed."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._liked: dict[tuple[str, str], dict[str, int]] = {}  # affinities, and when each was first decided

    def check(self, pod: BoundPod, *, calm: bool) -> None:
        """Check a pod that was just bound. Raises LawBroken. ``calm``: nothing fails."""
        self._check_complete(pod)
        self._check_capacity(pod.node)
        self._check_time(pod)
        self._check_tiles(pod)
        self._check_company(pod, calm=calm)
        self._check_rules(pod, calm=calm)

    def _check_complete(self, pod: BoundPod) -> None:
        if pod.use is None:
            raise LawBroken("cards written", f"pod {pod.name} was bound by the extender without cards")
        found = [len(set(cards)) for cards in objects.cards_of(pod.annotations[objects.CARDS])]
        wanted = [objects.demand(each)[0] for each in pod.value["spec"]["containers"]]
        if len(pod.use) != 1 if objects.share_of(pod.value) is not None else found != wanted:
            raise LawBroken("cards written", f"pod {pod.name} asked for {wanted} cards, and got {pod.use}")
        if (said := objects.in_own_words(pod.value)) is None:
            return
        own = {card: {name: pod.use.get(card, {}).get(name, 0) for name in said[card]} for card in said}
        if own != said or said.keys() != pod.use.keys():
            raise LawBroken("cards written", f"pod {pod.name} has {pod.use}, and says {said} in its own words")

    def _check_capacity(self, node: str) -> None:
        pods, most = self._observed.on(node), self._observed.most.get(node, {})
        for card, amounts in used_by(pods).items():
            for resource, amount in amounts.items():
                if amount > (had := most.get(card, {}).get(resource, 0)):
                    names = ", ".join(sorted(each.name for each in pods))
                    found = f"{card} of node {node}: {amount} of {resource} given"
                    raise LawBroken("capacity", f"{found}, it never had more than {had}; pods {names}")

    def _check_time(self, pod: BoundPod) -> None:
        """Check that a pod's decision is later than those of pods that were bound before it was created."""
        for other in self._observed.others(pod):
            if other.version > self._observed.created[pod.uid] or other.use is None:
                continue
            if objects.decided_at(other.value) >= objects.decided_at(pod.value):
                raise LawBroken("moments", f"{pod.name} was decided after {other.name}, but says before")

    def _check_tiles(self, pod: BoundPod) -> None:
        """Check that a pod has as many tiles as it asks for, which no other container has."""
        of_containers = objects.tiles_of_containers(pod.value)
        places = objects.cards_of(pod.annotations[objects.CARDS])
        for container, cards, tiles in zip(pod.value["spec"]["containers"], places, of_containers, strict=False):
            wanted = objects.demand(container)[1].get("tiles", 0)
            found = {card: sum(of == card for of, _ in tiles) for card in cards if wanted}
            if any(count != wanted for count in found.values()) or any(card not in cards for card, _ in tiles):
                asked = f"pod {pod.name} asked for {wanted} tiles of each of {cards}"
                raise LawBroken("tiles", f"{asked}, and got {sorted(tiles)}")
        others = (each.value for each in self._observed.others(pod) if each.use is not None)
        of_others = (tiles for value in others for tiles in objects.tiles_of_containers(value))
        given = [tile for tiles in (*of_containers, *of_others) for tile in tiles]
        if repeated := sorted({tile for tile in set().union(*of_containers) if given.count(tile) > 1}):
            raise LawBroken("tiles", f"pod {pod.name} has {repeated} of node {pod.node}, which another container has")

    def _check_rules(self, pod: BoundPod, *, calm: bool) -> None:
        """Check the pod's lists of cards, its NUMA node, and the labels that disable cards."""
        if denied := [card for card in pod.cards if not objects.may_have(pod.value, card)]:
            raise LawBroken("lists", f"pod {pod.name} has {denied}, which its lists of cards leave out")
        if len(objects.card_groups(pod.value, pod.cards)) > 1:
            raise LawBroken("groups", f"pod {pod.name} has {sorted(pod.cards)}, which it may not have together")
        tiles = set().union(*objects.tiles_of_containers(pod.value))
        if objects.LINKED in pod.annotations and {objects.linked_tile(*each) for each in tiles} != tiles:
            raise LawBroken("links", f"pod {pod.name} has {sorted(tiles)}, which no links join")
        disabled = self._observed.disabled.get(pod.node, {})
        for card in pod.cards:
            if calm and self._observed.clock() - disabled.get(card, math.inf) > KNOWN_AFTER:
                raise LawBroken("disabled cards", f"pod {pod.name} was given {card}, which a label disables")

    def _check_company(self, pod: BoundPod, *, calm: bool) -> None:
        """Check the affinity labels on the cards of a pod, and the name of its card."""
        affinity, anti_affinity, exclusion = objects.company_of(pod.value)
        decided, own_name = objects.decided_at(pod.value), objects.card_name_of(pod.value)
        for card in pod.cards:
            liked = self._liked.setdefault((pod.node, card), {})
            liked[affinity] = min(liked.get(affinity, decided), decided)
        for other in self._observed.others(pod):
            shared = [card for card in pod.cards if card in other.cards]
            its_name = objects.card_name_of(other.value)
            if own_name and its_name and other.use is not None and (own_name == its_name) != bool(shared):
                raise LawBroken("names", f"pod {pod.name} has a card named {own_name}, {other.name} one {its_name}")
            _, its_anti_affinity, its_exclusion = objects.company_of(other.value)
            for card in shared:
                if exclusion != its_exclusion:
                    raise LawBroken("company", f"pod {pod.name} shares {card} with {other.name}: exclusion")
                if anti_affinity and anti_affinity == its_anti_affinity:
                    raise LawBroken("company", f"pod {pod.name} shares {card} with {other.name}: anti-affinity")
                both = sorted((other, pod), key=lambda each: objects.decided_at(each.value))
                self._check_affinity(card, *both, calm=calm)

    def _check_affinity(self, card: str, earlier: BoundPod, later: BoundPod, *, calm: bool) -> None:
        """Check two pods on a card. Only the one that was decided later has chosen to share it."""
        likes, has = objects.company_of(later.value)[0], objects.company_of(earlier.value)[0]
        if not likes or likes == has:
            return
        # The pod of its affinity may have ended a moment ago, or have cards that were reserved for it.
        unseen = self._liked[later.node, card][likes] >= objects.decided_at(later.value)
        if unseen and not self._may_have_reserved(later.node, likes, calm=calm):
            raise LawBroken("company", f"pod {later.name} shares {card} with {earlier.name}: affinity")

    def _may_have_reserved(self, node: str, affinity: str, *, calm: bool) -> bool:
        """Return whether cards may have been reserved for a pod of an affinity that was not bound with them.

        Others have bound it without any or, if something fails, its Binding was not written.
        """
        unknown = [pod.value for pod in self._observed.on(node) if pod.use is None]
        waiting = [] if calm else self._observed.waiting.values()
        return any(objects.company_of(value)[0] == affinity for value in (*unknown, *waiting))


MOST_ROUNDS = 2
"""Most evictions, for one nomination, of pods bound by the extender, each time of pods that came after the last.

The first eviction counts; another may follow because the leader has not seen the nomination yet.
"""

MOST_TRIED = 8  # most pods of which every set is tried as victims

KNOWN_AFTER = 1.0  # seconds after which the extender has seen a change, if nothing fails


class Evictions:
    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._evicted: set[str] = set()
        self.rounds: dict[
            str, tuple[str, int, int]
        ] = {}  # by UID, until a nomination ends: the node, the version then, and how many count
        self._evictions: dict[str, list[tuple[int, int]]] = {}  # by node: the version then, and for which priority

    def check(self, pod: Object, node: str, uids: list[str], asked: int, *, now: int, calm: bool) -> None:
        """Check what `Laws.check_victims` does. Raises LawBroken.

        ``now`` is the version now. ``calm``: nothing fails, and nothing else happens on the node.
        """
        name, priority = pod["metadata"]["name"], _priority(pod)
        victims = [self._observed.bound[uid] for uid in uids if uid in self._observed.bound]  # others have ended
        for each in victims:
            if each.node != node or _priority(each.value) >= priority:
                raise LawBroken("preemption", f"{each.name} on {each.node} is evicted for {name} on {node}")
        self._check_room_is_kept(pod, node, priority, victims, now=now)
        rules = objects.LINKED in objects.annotations_of(pod) or objects.company_of(pod)[0] or objects.card_name_of(pod)
        if pod["spec"].get("initContainers") or rules:
            return
        stay = [each for each in self._observed.on(node) if each.version <= asked and each not in victims]
        if not fits_with(pod, self._observed.most.get(node, {}), stay) or (
            calm and not self._observed.fits(pod, node, stay)
        ):
            raise LawBroken("preemption", f"{len(uids)} pods of {node} are too few for {name}")
        if calm and self._is_known(node):
            self._check_cost(pod, node, victims)

    def _check_cost(self, pod: Object, node: str, victims: Collection[BoundPod]) -> None:
        """Check that no set of less important pods would cost less, trying every one that is not too large."""
        on_node, cost = self._observed.on(node), _cost(victims)
        may_go = [each for each in on_node if _priority(each.value) < _priority(pod)]
        sizes: Iterable[int] = range(len(may_go) + 1)
        if len(may_go) > MOST_TRIED:
            may_go, sizes = list(victims), [len(victims) - 1]
        for others in chain.from_iterable(combinations(may_go, size) for size in sizes):
            stay = [each for each in on_node if each not in others]
            if _cost(others) < cost and self._observed.fits(pod, node, stay):
                names, instead = (sorted(each.name for each in some) for some in (victims, others))
                why = f"{names} of {node} are evicted for {pod['metadata']['name']}"
                raise LawBroken("preemption", f"{why}, {instead} would do and cost less")

    def _is_known(self, node: str) -> bool:
        """Return whether the extender must know what the objects say about a node."""
        observed = self._observed
        return (
            observed.clock() - observed.changed.get(node, 0.0) > KNOWN_AFTER
            and all(pod.use is not None for pod in observed.on(node))
            and not any(value["status"].get("nominatedNodeName") == node for value in observed.waiting.values())
        )

    def _check_room_is_kept(self, pod: Object, node: str, priority: int, victims: list[BoundPod], *, now: int) -> None:
        """Check that pods which the extender binds after room was made for a nominated pod do not take it repeatedly.

        Pods that others bind may take it, and the leader may name victims again that it has not seen leave. A more
        important pod may take it too, for itself or until its own room is elsewhere, and then less important ones.
        """
        uid = pod["metadata"]["uid"]
        seen = self._observed.waiting.get(uid)
        is_nominated = seen is not None and bool(seen["status"].get("nominatedNodeName"))
        nominated, before, rounds = self.rounds.get(uid, (node, 0, 0)) if is_nominated else (node, 0, 0)
        new = (each for each in victims if each.uid not in self._evicted)
        taken = any(each.version > before and each.use is not None for each in new) and not any(
            version > before > 0 and important > priority for version, important in self._claims(node)
        )
        rounds = taken + (rounds if nominated == node else 0)
        self.rounds[uid] = node, now, rounds
        self._evicted.update(each.uid for each in victims)
        self._evictions.setdefault(node, []).append((now, priority))
        if rounds > MOST_ROUNDS:
            name = pod["metadata"]["name"]
            raise LawBroken("preemption", f"pods that had just been bound were evicted for {name} {rounds} times")

    def _claims(self, node: str) -> Iterator[tuple[int, int]]:
        """Yield versions at which pods were bound to a node, or others evicted for them there, and their priorities."""
        yield from self._evictions.get(node, ())
        yield from ((pod.version, _priority(pod.value)) for pod in self._observed.on(node))


def _priority(pod: Object) -> int:
    return pod["spec"].get("priority") or 0


def _cost(victims: Collection[BoundPod]) -> tuple[object, ...]:
    """Return what evicting pods costs: disruptions that no budget allows, then pods by priority, then all of them.

    Pods that are leaving already count only in the last.
    """
    staying = [each.value for each in victims if "deletionTimestamp" not in each.value["metadata"]]
    apps = Counter(objects.budget_of(value) for value in staying)
    violations = sum(max(apps[app] - allowed, 0) for allowed, app in enumerate(objects.APPS[:2]))
    priorities = Counter(map(_priority, staying))
    return violations, [priorities[each] for each in objects.PRIORITIES[::-1]], len(victims)
