"""The laws that hold in every history. They read the objects alone and share nothing with the product's decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from gas.sandbox.api.kinds import NODES, PODS
from gas.sandbox.api.storage import Change, Storage
from simulation import objects
from simulation.objects import RESOURCES, Use, asks_for_cards, capacity_of, fits, is_over, quantity, use_of

Books = Mapping[str, tuple[str, Mapping[str, Mapping[str, int]]]]
"""By UID: the node, and the amounts by card and resource."""

Given = Mapping[str, set[str]]
"""By container: cards."""


MOST_ROUNDS = 2
"""How often pods bound by the extender may be evicted for one nomination, each time pods that came after the last.

The first eviction counts; another may follow because the leader has not seen the nomination yet.
"""

KNOWN_AFTER = 1.0
"""Seconds after which the extender has seen a change, if nothing fails."""

_RECEIPTS = (objects.RECEIPT, objects.INIT_RECEIPT)


class LawBroken(Exception):
    """A law does not hold. ``law`` is its name, ``sentence`` what was found."""

    def __init__(self, law: str, sentence: str) -> None:
        super().__init__(f"{law}: {sentence}")
        self.law = law
        self.sentence = sentence


class Laws:
    """The state that the laws are about, kept current write by write.

    by_us   prefix of the clients whose Bindings must give cards
    given   returns the cards that kubelet has given to the containers of a pod until now; None if that is not known
    clock   returns seconds
    bound   by UID: the pods that are bound and have not ended
    calm    whether nothing fails, so that containers get the cards that were decided
    """

    def __init__(
        self,
        storage: Storage,
        by_us: str,
        given: Callable[[str], Given | None] = lambda _uid: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._storage = storage
        self._given = given
        self._clock = clock
        self._changed: dict[str, float] = {}  # by node: when it or its pods changed
        self._by_us = by_us
        self._seen = storage.version
        self._most: dict[str, Use] = {}
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._bound: dict[str, tuple[str, Mapping[str, Any], Use | None]] = {}
        self._by_node: dict[str, set[str]] = {}
        self._created: dict[str, int] = {}  # by UID: the version of the API server's storage then
        self._bound_at: dict[str, int] = {}
        self._victims: set[str] = set()
        self._rounds: dict[str, tuple[str, int, int]] = {}  # by UID: the node, the version then, and how many count
        self._keeps_more: set[str] = set()
        self._liked: dict[tuple[str, str], dict[str, int]] = {}  # affinities, and when each was first decided
        self._booked: dict[str, Use | None] = {}  # the same, but as receipts say
        self.calm = False
        self.edited: set[str] = set()
        self.bindings = 0
        self.receipts = 0

    def follow(self, binds_now: str) -> None:
        """Take in all writes since the last call. Raises LawBroken."""
        for change in self._storage.changes(self._seen):
            self._seen = change.after.version
            if change.after.plural == NODES.plural:
                self._node(change)
            elif change.after.plural == PODS.plural:
                self._pod(change, binds_now)

    def _node(self, change: Change) -> None:
        name = change.after.key
        self._changed[name] = self._clock()
        if change.gone:
            self._nodes.pop(name, None)
            return
        self._nodes[name] = change.after.value
        most = self._most.setdefault(name, {})
        for card, amounts in capacity_of(change.after.value).items():
            mine = most.setdefault(card, {})
            for resource, amount in amounts.items():
                mine[resource] = max(mine.get(resource, 0), amount)

    def _pod(self, change: Change, binds_now: str) -> None:
        value = change.after.value
        uid, node = value["metadata"]["uid"], value["spec"].get("nodeName")
        self._created.setdefault(uid, change.after.version)
        if change.gone or is_over(value) or not node:
            self._forget(uid)
            if not change.gone and not is_over(value) and asks_for_cards(value):
                if objects.RECEIPT in (value["metadata"].get("annotations") or {}):
                    raise LawBroken("devices", f"pod {value['metadata']['name']} waits, and has a receipt")
                self._waiting[uid] = value
                if not value["status"].get("nominatedNodeName"):
                    self._rounds.pop(uid, None)
            return
        self._waiting.pop(uid, None)
        annotations = value["metadata"].get("annotations") or {}
        if not asks_for_cards(value):
            return
        if uid in self._bound:
            self._see_receipt(uid, value)
            return
        use = use_of(value, annotations)
        if binds_now.startswith(self._by_us) or binds_now == "reviewed":
            self.bindings += 1
            self._check_complete(value, use)
        else:
            use = None
        self._bound[uid] = (node, value, use)
        self._bound_at[uid] = change.after.version
        self._booked[uid] = use
        self._by_node.setdefault(node, set()).add(uid)
        self._changed[node] = self._clock()
        if use is not None:
            self._check_node(node)
            self._check_moment(uid)
            self._check_tiles(uid)
            self._check_company(uid)

    def check_new_pod(self, sent: Mapping[str, Any], pod: Mapping[str, Any], refusal: str) -> None:
        """Check what the webhooks have made of a new pod: users ask for nothing that is wrong. Raises LawBroken.

        In KubeShare's words a pod must state its amounts as resources, which no user can edit. The others stay as sent.
        """
        name = pod["metadata"]["name"]
        if refusal:
            raise LawBroken("new pods", f"pod {name} is refused: {refusal}")
        resources = pod["spec"]["containers"][0].get("resources", {})
        found = {field: {name: int(quantity(text)) for name, text in part.items()} for field, part in resources.items()}
        if (stated := objects.stated_share(sent)) is None:
            if pod != sent:
                raise LawBroken("new pods", f"pod {name} is changed: {sent} became {pod}")
        elif found != {"limits": stated, "requests": stated}:
            raise LawBroken("new pods", f"pod {name} states {found}, expected limits and requests {stated}")

    def edit(self, uid: str) -> None:
        """Leave a bound pod out from now on: its cards were edited, and a replica that starts believes that."""
        self.edited.add(uid)
        if uid in self._bound:
            node, value, _ = self._bound[uid]
            self._bound[uid] = node, value, None
            self._booked[uid] = None

    def _forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._booked.pop(uid, None)
        if (bound := self._bound.pop(uid, None)) is not None:
            self._by_node[bound[0]].discard(uid)
            self._changed[bound[0]] = self._clock()

    def _see_receipt(self, uid: str, value: Mapping[str, Any]) -> None:
        """Take in an update of a bound pod. Once kubelet gave other cards than decided, it no longer counts."""
        node, before, use = self._bound[uid]
        annotations = value["metadata"].get("annotations") or {}
        text = annotations.get(objects.RECEIPT, "")
        if text and text != (before["metadata"].get("annotations") or {}).get(objects.RECEIPT):
            self._check_receipt(uid, value, text)
        if uid not in self.edited and (objects.RECEIPT in annotations or objects.INIT_RECEIPT in annotations):
            self._booked[uid] = use_of(value, annotations)
            self.receipts += self._booked[uid] != use
            if self.calm and use is not None and self._booked[uid] != use and not value["spec"].get("initContainers"):
                raise LawBroken("devices", f"{self._name(uid)} got {text!r} instead of {use}, although nothing failed")
            if self._booked[uid] != use:
                use = None
            if _lacks_cards(value, annotations):
                self._keeps_more.add(uid)  # it also keeps decided cards, see docs/simulation.md
        self._bound[uid] = (node, value, use)

    def _check_receipt(self, uid: str, value: Mapping[str, Any], text: str) -> None:
        """Check that a receipt that was written just now says what kubelet has given to the containers of this pod."""
        if (given := self._given(uid)) is None:
            return
        found = [given.get(each["name"], set()) for each in value["spec"]["containers"]]
        if [set(cards) for cards in objects.cards_of(text)] != found:
            raise LawBroken("devices", f"the containers of {self._name(uid)} have {found}, its receipt says {text!r}")

    def check_devices(self, given: Mapping[str, Given]) -> None:
        """Check that each running pod has on it the cards that its containers have. Raises LawBroken.

        given  by UID and container: the cards that kubelet has given
        """
        for uid, containers in given.items():
            if uid not in self._bound or uid in self.edited:
                continue
            value = self._bound[uid][1]
            annotations = value["metadata"].get("annotations") or {}
            text = annotations.get(objects.RECEIPT) or annotations.get(objects.CARDS)
            if "deletionTimestamp" in value["metadata"] or value.get("status", {}).get("phase") != "Running":
                continue
            stated = objects.cards_of(text) if text else []
            found = [containers.get(each["name"], set()) for each in value["spec"]["containers"]]
            if [set(cards) for cards in stated] != found:
                raise LawBroken("devices", f"the containers of {self._name(uid)} have {found}, the pod says {text!r}")

    def _check_complete(self, value: Mapping[str, Any], use: Use | None) -> None:
        key = f"pod {value['metadata']['name']}"
        if use is None:
            raise LawBroken("cards written", f"{key} was bound by the extender without cards")
        annotations = value["metadata"].get("annotations") or {}
        found = [len(set(cards)) for cards in objects.cards_of(annotations[objects.CARDS])]
        wanted = [_count(each) for each in value["spec"]["containers"]]
        if len(use) != 1 if objects.share_of(value) is not None else found != wanted:
            raise LawBroken("cards written", f"{key} asked for {wanted} cards, and got {use}")
        said = objects.in_own_words(value)
        own = said and {card: {name: use.get(card, {}).get(name, 0) for name in said[card]} for card in said}
        if said is not None and (own != said or said.keys() != use.keys()):
            raise LawBroken("cards written", f"{key} has {use}, and says {said} in its own words")

    def used(self, node: str) -> Use:
        """Return what the pods on a node take together."""
        return self._used_by(self._by_node.get(node, ()))

    def _used_by(self, uids: Iterable[str]) -> Use:
        total: Use = {}
        for uid in uids:
            for card, amounts in (self._bound[uid][2] or {}).items():
                mine = total.setdefault(card, {})
                for resource, amount in amounts.items():
                    mine[resource] = mine.get(resource, 0) + amount
        return total

    def _check_node(self, node: str) -> None:
        most = self._most.get(node, {})
        for card, amounts in self.used(node).items():
            for resource, amount in amounts.items():
                if amount > most.get(card, {}).get(resource, 0):
                    names = sorted(self._bound[uid][1]["metadata"]["name"] for uid in self._by_node[node])
                    raise LawBroken(
                        "capacity",
                        f"{card} of node {node}: {amount} of {resource} given, "
                        f"it never had more than {most.get(card, {}).get(resource, 0)}; pods {', '.join(names)}",
                    )

    def _check_moment(self, uid: str) -> None:
        """Check that a pod's decision has a later time than those of pods that were bound before it was created."""
        node, value, _ = self._bound[uid]
        for other in self._by_node[node] - {uid}:
            if self._bound_at[other] > self._created[uid] or self._bound[other][2] is None:
                continue
            if objects.decided_at(self._bound[other][1]) >= objects.decided_at(value):
                raise LawBroken("moments", f"{self._name(uid)} was decided after {self._name(other)}, but says before")

    def _check_tiles(self, uid: str) -> None:
        """Check the tiles of a pod that was bound just now: as many as it asks for, which no other pod has."""
        node, value, _ = self._bound[uid]
        of_containers = _tiles(value)
        name = f"pod {value['metadata']['name']}"
        for container, cards, tiles in zip(
            value["spec"]["containers"],
            objects.cards_of(value["metadata"]["annotations"][objects.CARDS]),
            of_containers,
            strict=False,
        ):
            wanted = objects.demand(container)[1].get("tiles", 0)
            found = {card: sum(of == card for of, _ in tiles) for card in cards if wanted}
            if any(count != wanted for count in found.values()) or any(card not in cards for card, _ in tiles):
                raise LawBroken("tiles", f"{name} asked for {wanted} tiles of each of {cards}, and got {sorted(tiles)}")
        others = [
            each
            for other in self._by_node[node] - {uid}
            if (bound := self._bound[other])[2] is not None
            for each in _tiles(bound[1])
        ]
        given = [tile for tiles in (*of_containers, *others) for tile in tiles]
        if repeated := sorted({tile for tile in set().union(*of_containers) if given.count(tile) > 1}):
            raise LawBroken("tiles", f"{name} has {repeated} of node {node}, which another container has")

    def _check_company(self, uid: str) -> None:
        """Check the cards of a pod that was bound just now: labels, and the name of its card."""
        node, value, use = self._bound[uid]
        affinity, anti_affinity, exclusion = objects.company_of(value)
        decided = objects.decided_at(value)
        for card in use or {}:
            liked = self._liked.setdefault((node, card), {})
            liked[affinity] = min(liked.get(affinity, decided), decided)
        own_name = (value["metadata"].get("annotations") or {}).get(objects.CARD_NAME, "")
        name = f"pod {value['metadata']['name']}"
        for other in self._by_node[node] - {uid}:
            _, value_of, use_of_other = self._bound[other]
            its_name = (value_of["metadata"].get("annotations") or {}).get(objects.CARD_NAME, "")
            shared = sorted((use or {}).keys() & (use_of_other or {}).keys())
            if own_name and its_name and use_of_other is not None and (own_name == its_name) != bool(shared):
                raise LawBroken("names", f"{name} has a card named {own_name}, {self._name(other)} one {its_name}")
            its_affinity, its_anti_affinity, its_exclusion = objects.company_of(value_of)
            for card in shared:
                if exclusion != its_exclusion:
                    raise LawBroken("company", f"{name} shares {card} with {self._name(other)}: exclusion")
                if anti_affinity and anti_affinity == its_anti_affinity:
                    raise LawBroken("company", f"{name} shares {card} with {self._name(other)}: anti-affinity")
                # Bindings are not written in the order of their decisions, and only the later pod has chosen company.
                its = objects.decided_at(value_of), its_affinity, self._name(other)
                pair = its, (decided, affinity, self._name(uid))
                (_, has, earlier), (at, likes, later) = sorted(pair, key=lambda each: each[0])
                # The pod that it likes may have ended a moment ago, or keep cards that were reserved for it.
                unseen = self._liked[node, card][likes] >= at and not self._reserves(node, likes)
                if likes and likes != has and unseen:
                    raise LawBroken("company", f"pod {later} shares {card} with {earlier}: affinity")

    def _reserves(self, node: str, affinity: str) -> bool:
        """Return whether cards may be reserved for a pod of an affinity that others bound without any."""
        bound = (self._bound[uid] for uid in self._by_node[node])
        return any(use is None and objects.company_of(value)[0] == affinity for _, value, use in bound)

    def check_victims(
        self, pod: Mapping[str, Any], node: str, victims: list[str], asked: int, *, binding: bool = False
    ) -> None:
        """Check that only less important pods of the node are evicted for a pod, which then fits, and not ever more.

        asked    version of the API server's storage when the extender was asked: what was bound later it may not know
        binding  whether pods are being bound to the node, so that the extender knows more of it than the objects say

        Raises LawBroken.
        """
        priority = pod["spec"].get("priority") or 0
        for uid in victims:
            if uid not in self._bound:
                continue  # it ended a moment ago
            other_node, value, _ = self._bound[uid]
            if other_node != node or (value["spec"].get("priority") or 0) >= priority:
                raise LawBroken(
                    "preemption",
                    f"{self._name(uid)} on {other_node} is evicted for {pod['metadata']['name']} on {node}",
                )
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        self._check_room_is_kept(uid, name, node, victims)
        affinity = objects.company_of(pod)[0]
        named = objects.CARD_NAME in (pod["metadata"].get("annotations") or {})
        if not (pod["spec"].get("initContainers") or affinity or named):
            stay = {uid for uid in self._by_node.get(node, ()) if self._bound_at[uid] <= asked} - set(victims)
            if not fits(pod, self._open_cards(pod, self._most.get(node, {}), stay), self._used_by(stay)):
                raise LawBroken("preemption", f"{len(victims)} pods of {node} are too few for {name}")
            if not binding and self._is_known(node):
                self._check_each_must_go(pod, node, victims, stay)

    def _is_known(self, node: str) -> bool:
        """Return whether the extender must know what is on a node, as the objects say it."""
        return (
            self.calm
            and self._clock() - self._changed.get(node, 0.0) > KNOWN_AFTER
            and all(self._bound[uid][2] is not None for uid in self._by_node.get(node, ()))
            and not any(value["status"].get("nominatedNodeName") == node for value in self._waiting.values())
        )

    def _check_each_must_go(
        self, pod: Mapping[str, Any], node: str, victims: list[str], stay: AbstractSet[str]
    ) -> None:
        """Check that a pod does not fit beside any of the pods that are evicted for it."""
        for uid in victims:
            uids = stay | {uid}
            cards = self._open_cards(pod, capacity_of(self._nodes[node]), uids)
            if self._room_by_sums(pod, node, uids) and fits(pod, cards, self._used_by(uids)):
                raise LawBroken(
                    "preemption", f"{self._name(uid)} is evicted for {pod['metadata']['name']} without need"
                )

    def _check_room_is_kept(self, uid: str, name: str, node: str, victims: list[str]) -> None:
        """Check that pods which the extender binds after room was made for a nominated pod do not take it repeatedly.

        Pods that others bind may take it, and the leader may name victims again that it has not seen leave.
        """
        nominated, before, rounds = self._rounds.get(uid, (node, 0, 0))
        taken = any(
            self._bound_at[each] > before and self._bound[each][2] is not None
            for each in set(victims) - self._victims
            if each in self._bound
        )
        rounds = taken + (rounds if nominated == node else 0)
        self._rounds[uid] = node, self._storage.version, rounds
        self._victims.update(victims)
        if rounds > MOST_ROUNDS:
            raise LawBroken("preemption", f"pods that had just been bound were evicted for {name} {rounds} times")

    def check_books(self, replica: str, books: Books) -> None:
        """Compare a ledger with the objects, once nothing changes any more."""
        wanted = {uid: (self._bound[uid][0], use) for uid, use in self._booked.items() if use is not None}
        for uid, (node, use) in wanted.items():
            if uid in self.edited or uid in self._keeps_more:
                continue
            accepted = [(node, use)]
            if self._names_missing_cards(uid):
                decided = use_of(self._bound[uid][1], _without_receipts(self._bound[uid][1]))
                if decided is None:
                    continue
                accepted.append((node, decided))
            if uid not in books:
                raise LawBroken("books", f"{replica} has no booking of pod {self._name(uid)} on {node}")
            booked_node, booked = books[uid]
            found = {
                card: {name: amount for name, amount in amounts.items() if name in RESOURCES and amount}
                for card, amounts in booked.items()
            }
            if not any(booked_node == where and self._is_booked(found, what, where) for where, what in accepted):
                raise LawBroken(
                    "books",
                    f"{replica} booked {found} on {booked_node} for {self._name(uid)}, expected {use} on {node}",
                )
        for uid, (node, _) in books.items():
            # Cards reserved for a pod that another client bound to the same node stay booked while it lives.
            bound_without = uid in self._bound and self._bound[uid][0] == node and self._booked[uid] is None
            if uid not in wanted and uid not in self.edited and not bound_without:
                raise LawBroken("books", f"{replica} has a booking on {node} for {uid}, which holds no cards")

    def _is_booked(self, found: Use, wanted: Use, node: str) -> bool:
        """Return whether a booking is as wanted. Parts of a card are not known while the node lacks the card."""
        has = capacity_of(self._nodes[node]) if node in self._nodes else {}
        return found.keys() == wanted.keys() and all(
            found[card] == amounts or (card not in has and found[card].items() <= amounts.items())
            for card, amounts in wanted.items()
        )

    def _names_missing_cards(self, uid: str) -> bool:
        """Return whether a receipt names cards that the node does not have now, so that the decision may count."""
        node, value, _ = self._bound[uid]
        receipts = [(value["metadata"].get("annotations") or {}).get(name) for name in _RECEIPTS]
        named = {card for text in receipts if text for cards in objects.cards_of(text) for card in cards}
        return not named <= capacity_of(self._nodes[node]).keys() if node in self._nodes else bool(named)

    def check_waiting(self, replica: str, waiting: AbstractSet[str]) -> None:
        """Compare the pods that a replica knows to wait with the objects, once nothing changes any more."""
        for uid in waiting - self._waiting.keys():
            raise LawBroken("books", f"{replica} waits for {uid} to be bound, which is bound or gone")
        for uid in self._waiting.keys() - waiting:
            raise LawBroken("books", f"{replica} does not know that {self._waiting[uid]['metadata']['name']} waits")

    def check_bound(self) -> None:
        """Check that no pod waits that fits. Raises LawBroken."""
        for value in self._waiting.values():
            spec = value["spec"]
            if "deletionTimestamp" in value["metadata"] or spec.get("initContainers"):
                continue
            if spec.get("schedulerName") == objects.OTHER_SCHEDULER:
                continue
            for name, node in self._nodes.items():
                # Cards may stay reserved for pods that another client bound without any, see `check_books`.
                if any(self._bound[uid][2] is None for uid in self._by_node.get(name, ())):
                    continue
                open_cards = self._open_cards(value, capacity_of(node), self._by_node.get(name, ()))
                uids = self._by_node.get(name, set())
                if self._room_by_sums(value, name, uids) and fits(value, open_cards, self.used(name)):
                    raise LawBroken("progress", f"pod {value['metadata']['name']} waits, but fits node {name}")

    def _open_cards(self, value: Mapping[str, Any], cards: Use, uids: Iterable[str]) -> Use:
        """Return the cards on which a pod may join these pods, by its labels and the name of its card."""
        affinity, anti_affinity, exclusion = objects.company_of(value)
        own_name = _card_name(value)
        on: dict[str, list[Mapping[str, Any]]] = {card: [] for card in cards}
        for uid in uids:
            for card in self._bound[uid][2] or {}:
                on.setdefault(card, []).append(self._bound[uid][1])
        named = {card for card, pods in on.items() if own_name and own_name in map(_card_name, pods)}
        found = {}
        for card, some in cards.items():
            company = [objects.company_of(each) for each in on[card]]
            likes = not affinity or not company or any(its == affinity for its, _, _ in company)
            alone = anti_affinity and any(its == anti_affinity for _, its, _ in company)
            apart = any(its != exclusion for _, _, its in company)
            may_name = not own_name or (card in named if named else not company)
            if likes and not alone and not apart and may_name:
                found[card] = some
        return found

    def _room_by_sums(self, value: Mapping[str, Any], node: str, uids: Iterable[str]) -> bool:
        total: dict[str, Any] = {}
        for each in [value, *(self._bound[uid][1] for uid in uids)]:
            for container in each["spec"]["containers"]:
                for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
                    total[name] = total.get(name, 0) + quantity(text)
        allocatable = self._nodes[node]["status"]["allocatable"]
        return all(amount <= quantity(allocatable.get(name, "0")) for name, amount in total.items())

    def _name(self, uid: str) -> str:
        bound = self._bound.get(uid)
        return bound[1]["metadata"]["name"] if bound else uid


def _card_name(value: Mapping[str, Any]) -> str:
    return str((value["metadata"].get("annotations") or {}).get(objects.CARD_NAME, ""))


def _without_receipts(value: Mapping[str, Any]) -> dict[str, str]:
    annotations = value["metadata"].get("annotations") or {}
    return {name: text for name, text in annotations.items() if name not in _RECEIPTS}


def _lacks_cards(value: Mapping[str, Any], annotations: Mapping[str, str]) -> bool:
    """Return whether a receipt says that a container has fewer cards than it asks for: two devices of the same card."""
    return any(
        len(cards) < _count(each)
        for kind, receipt in (("containers", objects.RECEIPT), ("initContainers", objects.INIT_RECEIPT))
        for each, cards in zip(
            value["spec"].get(kind) or [], objects.cards_of(annotations.get(receipt, "")), strict=False
        )
        if cards
    )


def _count(container: Mapping[str, Any]) -> int:
    return objects.demand(container)[0]


def _tiles(value: Mapping[str, Any]) -> list[set[tuple[str, str]]]:
    """Return the tiles of each container of a pod."""
    return objects.tiles_of((value["metadata"].get("annotations") or {}).get(objects.TILES, ""))
