"""Check the laws that hold in every history.

They read the objects alone and share nothing with the product's decisions. Those of a write, and of a cluster in which
nothing changes any more, are here; those of Bindings and evictions are in `simulation.laws_of_bindings`.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from typing import Any

from sandbox.api.kinds import NODES, POD_GROUPS, PODS, SHAREPODS
from sandbox.api.storage import Change, Storage
from simulation import objects
from simulation.laws_of_bindings import Bindings, Evictions
from simulation.laws_of_pod_groups import PodGroups
from simulation.laws_of_promises import Promises
from simulation.laws_of_sharepods import SharePods
from simulation.objects import (
    RESOURCES,
    Object,
    Use,
    annotations_of,
    asks_for_cards,
    is_over,
    quantity,
    requests_cards,
    use_of,
)
from simulation.observed import BoundPod, LawBroken, Observed

Given = Mapping[str, set[str]]

Books = Mapping[str, tuple[str, Mapping[str, Mapping[str, int]]]]  # by UID, node and amounts by card and resource

NO_SUMS: Mapping[str, Use] = {}


MOST_REVIEWED = 3  # most decisions within a minute for a pod whose Bindings do not follow their reviews


class Laws:
    """All laws. Every method raises LawBroken if one is broken."""

    def __init__(
        self,
        storage: Storage,
        # returns the cards that kubelet has given to the containers of a pod so far; None if that is not known
        given: Callable[[str], Given | None] = lambda _uid: None,
        clock: Callable[[], float] = lambda: 0.0,
        # returns the only node that a pod can be bound to, because its volumes are there; None if there is no such node
        tied: Callable[[str], str | None] = lambda _uid: None,
    ) -> None:
        self.tied = tied
        self._storage = storage
        self._given = given
        self._seen = storage.version
        self.observed = Observed(clock)
        self.edited: set[str] = set()  # UIDs of the pods whose cards were edited
        self._bindings = Bindings(self.observed)
        self._evictions = Evictions(self.observed)
        self.promises = Promises(self.observed)
        self.pod_groups = PodGroups(self.observed)
        self.sharepods = SharePods(clock)
        self._refused: dict[str, set[str]] = {}  # by UID, the decisions of Bindings that were refused
        self._copies: set[str] = set()  # UIDs of the pods that were created with the receipt of another one
        self.calm = False  # nothing fails
        self.skips_failed_binds = (
            False  # the scheduler binds by itself if a pod that may take promised cards lets a bind fail
        )
        self.calm_devices = False  # nothing fails on nodes, so that containers get the cards that were decided
        self.bindings = 0
        self.receipts = 0

    def check_writes(self, binds_now: str) -> None:
        """Check all writes since the last call.

        ``binds_now`` is the client that wrote them; "reviewed" for a Binding that an extender has reviewed.
        """
        for change in self._storage.changes(self._seen):
            self._seen = change.after.version
            if change.after.plural == NODES.plural:
                self.observed.see_node(change.after.key, None if change.gone else change.after.value)
                self.promises.changed(change.after.key)
            elif change.after.plural == PODS.plural:
                self._pod(change, binds_now)
                self.sharepods.see_pod(change, calm=self.calm)
                self.pod_groups.see_pod(change)
            elif change.after.plural == POD_GROUPS.plural:
                self.pod_groups.see(change)
            elif change.after.plural == SHAREPODS.plural:
                self.sharepods.see(change)

    def edit(self, uid: str) -> None:
        """Ignore a bound pod from now on: its cards were edited, and a replica that starts trusts the edit."""
        self.edited.add(uid)
        if (pod := self.observed.bound.get(uid)) is not None:
            pod.use = pod.booked = None

    def _pod(self, change: Change, binds_now: str) -> None:
        value = change.after.value
        uid, node = value["metadata"]["uid"], value["spec"].get("nodeName")
        if uid not in self.observed.created:
            self.observed.created[uid] = change.after.version
            if objects.RECEIPT in annotations_of(value):
                self._copies.add(uid)
        has_ended = change.gone or is_over(value)
        if has_ended or not node:
            if (pod := self.observed.bound.get(uid)) is not None:
                self.promises.room(pod.node)
            self.observed.forget(uid)
            if not has_ended and asks_for_cards(value):
                self._waits(uid, value)
            else:
                self.promises.ends(uid)
            return
        self.observed.waiting.pop(uid, None)
        if not asks_for_cards(value):
            return
        if (pod := self.observed.bound.get(uid)) is not None:
            self._see_receipt(pod, value)
            return
        # Pods that ask for cards by annotations alone get none from kubelet; a ledger may book anything for them.
        gets_cards = (binds_now.startswith("extender") or binds_now == "reviewed") and requests_cards(value)
        if binds_now == "scheduler" and self.calm and not self.skips_failed_binds and requests_cards(value):
            name = value["metadata"]["name"]
            raise LawBroken("cards written", f"pod {name} was bound without the extender, although nothing failed")
        use = use_of(value, annotations_of(value)) if gets_cards else None
        pod = BoundPod(uid, node, value, change.after.version, use, use)
        self.observed.bind(pod)
        if gets_cards:
            self.bindings += 1
            self._bindings.check(pod, calm=self.calm)
            self.promises.check(pod)
        else:
            self.promises.changed(node)
        self.promises.ends(uid)

    def _waits(self, uid: str, value: Object) -> None:
        if objects.RECEIPT in annotations_of(value) and uid not in self._copies:
            raise LawBroken("devices", f"pod {value['metadata']['name']} waits, and has a receipt")
        self.observed.waiting[uid] = value
        self.promises.waits(uid, value)
        if not value["status"].get("nominatedNodeName"):
            self._evictions.rounds.pop(uid, None)

    def _see_receipt(self, pod: BoundPod, value: Object) -> None:
        """Record an update of a bound pod. Once kubelet gave other cards than decided, its decision does not count."""
        before, pod.value = pod.annotations, value
        for name, kind in objects.RECEIPTS.items():
            if (text := pod.annotations.get(name, "")) and text != before.get(name):
                self._check_receipt(pod, kind, text)
        if pod.uid in self.edited or pod.annotations.keys().isdisjoint(objects.RECEIPTS):
            return
        pod.booked = use_of(value, pod.annotations)
        if pod.booked != pod.use:
            self.receipts += 1
            if self.calm_devices and pod.use is not None and not value["spec"].get("initContainers"):
                found = pod.annotations.get(objects.RECEIPT)
                raise LawBroken("devices", f"{pod.name} got {found!r} instead of {pod.use}, although nothing failed")
            pod.use = None
        pod.keeps_more = pod.keeps_more or _lacks_cards(pod)  # it also keeps decided cards, see docs/simulation.md

    def _check_receipt(self, pod: BoundPod, kind: str, text: str) -> None:
        """Check that a new receipt says what kubelet has given to the containers of this pod.

        It may repeat the decision about init containers, which kubelet does not list.
        """
        if (given := self._given(pod.uid)) is None:
            return
        found, stated = _cards_given(pod, kind, given), _sets(text)
        decided = _sets(pod.annotations.get(objects.INIT_CARDS, "")) if kind == "initContainers" else []
        either = zip_longest(found, decided)
        if len(stated) != len(found) or any(one not in others for one, others in zip(stated, either, strict=False)):
            raise LawBroken("devices", f"the {kind} of {pod.name} have {found}, its receipt says {text!r}")

    def check_new_pod(self, sent: Object, pod: Object, refusal: str) -> None:
        """Check how the webhooks changed a new pod. Users ask for nothing that is wrong, so it must not be refused.

        A pod with KubeShare's annotations gets its amounts as resources, which no user can edit. Other pods stay as
        sent, but for the mark of a pod without fault.
        """
        name = pod["metadata"]["name"]
        if refusal:
            raise LawBroken("new pods", f"pod {name} is refused: {refusal}")
        resources = pod["spec"]["containers"][0].get("resources", {})
        found = {field: {name: int(quantity(text)) for name, text in part.items()} for field, part in resources.items()}
        if (stated := objects.stated_share(sent)) is None:
            annotations = {**annotations_of(sent), "gas-checked": "true"}
            if pod not in (sent, {**sent, "metadata": {**sent["metadata"], "annotations": annotations}}):
                raise LawBroken("new pods", f"pod {name} is changed: {sent} became {pod}")
        elif found != {"limits": stated, "requests": stated}:
            raise LawBroken("new pods", f"pod {name} states {found}, expected limits and requests {stated}")

    def check_refused(self, binding: Object) -> None:
        """Check that a pod is not given cards again and again for Bindings that others refuse after the review."""
        given = self._refused.setdefault(binding["metadata"]["uid"], set())
        given.add(annotations_of(binding)[objects.TIMESTAMP])
        if len(given) > MOST_REVIEWED:
            raise LawBroken("reviews", f"pod {binding['metadata']['name']} was given cards {len(given)} times")

    def check_victims(
        self, pod: dict[str, Any], node: str, victims: list[str], asked: int, *, binding: bool = False
    ) -> None:
        """Check that only less important pods of the node are evicted for a pod, which then fits, and not repeatedly.

        asked    version of the API server's storage when the extender was asked: it may not know what was bound later
        binding  pods are being bound to the node, so that the extender knows more of it than the objects say
        """
        self._evictions.check(pod, node, victims, asked, now=self._seen, calm=self.calm and not binding)

    def check_devices(self, given: Mapping[str, Given], variables: Mapping[str, Mapping[str, str]]) -> None:
        """Check that each running pod's annotations state the cards that kubelet has given, by UID and container.

        If nothing fails, they are also true of init containers, and the containers' variables name the pod's tiles.
        """
        for uid, containers in given.items():
            pod = self.observed.bound.get(uid)
            if pod is None or uid in self.edited:
                continue
            if "deletionTimestamp" in pod.value["metadata"] or pod.value.get("status", {}).get("phase") != "Running":
                continue
            for receipt, kind in objects.RECEIPTS.items():
                text = pod.annotations.get(receipt) or pod.annotations.get(objects.DECISIONS[kind]) or ""
                found = _cards_given(pod, kind, containers)
                stated = _sets(text) if text else [set[str]()] * len(found)
                if stated != found and (kind == "containers" or self.calm_devices):
                    raise LawBroken("devices", f"the {kind} of {pod.name} have {found}, the pod says {text!r}")
            if self.calm_devices and pod.annotations.keys().isdisjoint(objects.RECEIPTS):
                self._check_variables(pod, variables[uid])

    def _check_variables(self, pod: BoundPod, variables: Mapping[str, str]) -> None:
        """Check the variables of a pod whose containers have the cards that were decided."""
        places = objects.cards_of(pod.annotations.get(objects.CARDS, ""))
        for each, cards, tiles in zip(
            pod.value["spec"]["containers"], places, objects.tiles_of_containers(pod.value), strict=False
        ):
            found, wanted = variables.get(each["name"], ""), objects.tile_variable(cards, tiles)
            if found != wanted:
                raise LawBroken("tiles", f"{each['name']} of {pod.name} was given {found!r}, expected {wanted!r}")

    def check_books(self, replica: str, books: Books, sums: Mapping[str, Use] = NO_SUMS) -> None:
        """Compare a ledger with the objects, and its sums by node with its bookings."""
        for uid, pod in self.observed.bound.items():
            if pod.booked is None or uid in self.edited or pod.keeps_more:
                continue
            if not (accepted := _accepted(self.observed, pod)):
                continue
            if uid not in books:
                raise LawBroken("books", f"{replica} has no booking of pod {pod.name} on {pod.node}")
            node, booked = books[uid]
            found = {
                card: {name: amount for name, amount in amounts.items() if name in RESOURCES and amount}
                for card, amounts in booked.items()
            }
            has = self.observed.capacity(pod.node)
            if node != pod.node or not any(_is_booked(found, wanted, has) for wanted in accepted):
                wanted = f"expected {pod.booked} on {pod.node}"
                raise LawBroken("books", f"{replica} booked {found} on {node} for {pod.name}, {wanted}")
        by_node: dict[str, list[Mapping[str, Mapping[str, int]]]] = {}
        for on, footprint in books.values():
            by_node.setdefault(on, []).append(footprint)
        for node, amounts in sums.items():
            together = objects.added(by_node.get(node, ()))
            if amounts != together:
                raise LawBroken("books", f"{replica} has sums of {amounts} for {node}, its bookings are {together}")
        for uid, (node, _) in books.items():
            # Cards reserved for a pod that another client bound to the same node stay booked while it lives.
            pod_there = self.observed.bound.get(uid)
            if uid not in self.edited and (pod_there is None or (pod_there.booked is None and pod_there.node != node)):
                raise LawBroken("books", f"{replica} has a booking on {node} for {uid}, which holds no cards")

    def check_waiting(self, replica: str, waiting: AbstractSet[str]) -> None:
        """Compare the waiting pods that a replica knows with the objects."""
        for uid in sorted(waiting - self.observed.waiting.keys()):
            raise LawBroken("books", f"{replica} waits for {uid} to be bound, which is bound or gone")
        for uid in sorted(self.observed.waiting.keys() - waiting):
            name = self.observed.waiting[uid]["metadata"]["name"]
            raise LawBroken("books", f"{replica} does not know that {name} waits")

    def check_node(self, node: str, cards: Iterable[int]) -> None:
        """Check what a device plugin has written on its node about these cards."""
        expected, records = objects.intels_capacity(cards), objects.recorded_cards(self.observed.nodes[node])
        has = {
            card: {name: amounts[name] for name in expected.get(card, amounts)}
            for card, amounts in self.observed.capacity(node).items()
        }
        if has != expected or records != [*cards]:
            raise LawBroken("nodes", f"{node} says that it has {has}, and cards {records}; it has {expected}")

    def check_bound(self) -> None:
        """Check that no pod waits that fits."""
        for value in self.observed.waiting.values():
            spec = value["spec"]
            if "deletionTimestamp" in value["metadata"] or spec.get("initContainers"):
                continue
            if spec.get("schedulerName") == objects.OTHER_SCHEDULER or objects.group_of(value):
                continue
            tied = self.tied(value["metadata"]["uid"])
            for node in self.observed.nodes if tied is None else self.observed.nodes.keys() & {tied}:
                # What is booked for pods that another client bound, or that were edited, is not known, see `most_of`.
                pods = [self.observed.most_of(pod) for pod in self.observed.on(node)]
                if all(pod.use is not None for pod in pods) and self.observed.fits(value, node, pods):
                    raise LawBroken("progress", f"pod {value['metadata']['name']} waits, but fits node {node}")
        self.pod_groups.check_at_end()


def _sets(text: str) -> list[set[str]]:
    return [set(cards) for cards in objects.cards_of(text)]


def _cards_given(pod: BoundPod, kind: str, given: Given) -> list[set[str]]:
    return [given.get(each["name"], set()) for each in pod.value["spec"].get(kind) or []]


def _lacks_cards(pod: BoundPod) -> bool:
    """Return whether a receipt says that a container has fewer cards than it asks for: two devices of the same card."""
    return any(
        len(cards) < objects.demand(each)[0]
        for receipt, kind in objects.RECEIPTS.items()
        for each, cards in zip(
            pod.value["spec"].get(kind) or [], objects.cards_of(pod.annotations.get(receipt, "")), strict=False
        )
        if cards
    )


def _accepted(observed: Observed, pod: BoundPod) -> list[Use]:
    """Return the uses of which a ledger may book any for a pod; nothing if it may book anything.

    If a receipt names cards that the node does not have now, the decision may count.
    """
    assert pod.booked is not None
    named = {
        card for name in objects.RECEIPTS for cards in objects.cards_of(pod.annotations.get(name, "")) for card in cards
    }
    if named <= observed.capacity(pod.node).keys():
        return [pod.booked]
    without = {name: text for name, text in pod.annotations.items() if name not in objects.RECEIPTS}
    decided = use_of(pod.value, without)
    return [] if decided is None else [pod.booked, decided]


def _is_booked(found: Use, wanted: Use, has: Use) -> bool:
    """Return whether a booking is as wanted. Parts of a card are not known while the node lacks the card."""
    return found.keys() == wanted.keys() and all(
        found[card] == amounts or (card not in has and found[card].items() <= amounts.items())
        for card, amounts in wanted.items()
    )
