"""The laws that hold in every history. They read the objects alone and share nothing with the product's decisions.

Those of a write are here. Those of Bindings, evictions and of a cluster at rest have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandbox.api.kinds import NODES, PODS
from sandbox.api.storage import Change, Storage
from simulation import objects
from simulation.laws_at_rest import AtRest
from simulation.laws_of_bindings import Bindings, Evictions
from simulation.objects import Object, annotations_of, asks_for_cards, is_over, quantity, requests_cards, use_of
from simulation.observed import BoundPod, LawBroken, Observed

Given = Mapping[str, set[str]]
"""By container: cards."""


class Laws(AtRest):
    """All laws. Every method raises LawBroken if one does not hold.

    by_us   prefix of the clients whose Bindings must give cards
    given   returns the cards that kubelet has given to the containers of a pod until now; None if that is not known
    clock   returns seconds
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
        self._by_us = by_us
        self._seen = storage.version
        super().__init__(Observed(clock))
        self._bindings = Bindings(self.observed)
        self._evictions = Evictions(self.observed)
        self._copies: set[str] = set()  # UIDs of the pods that were created with the receipt of another one
        self.calm = False
        self.bindings = 0
        self.receipts = 0

    def check_writes(self, binds_now: str) -> None:
        """Check all writes since the last call.

        binds_now  the client that wrote them; "reviewed" for a Binding that an extender has reviewed
        """
        for change in self._storage.changes(self._seen):
            self._seen = change.after.version
            if change.after.plural == NODES.plural:
                self.observed.see_node(change.after.key, None if change.gone else change.after.value)
            elif change.after.plural == PODS.plural:
                self._pod(change, binds_now)

    def edit(self, uid: str) -> None:
        """Leave a bound pod out from now on: its cards were edited, and a replica that starts believes that."""
        self.edited.add(uid)
        if (pod := self.observed.bound.get(uid)) is not None:
            pod.does_not_count()

    def _pod(self, change: Change, binds_now: str) -> None:
        value = change.after.value
        uid, node = value["metadata"]["uid"], value["spec"].get("nodeName")
        if uid not in self.observed.created:
            self.observed.created[uid] = change.after.version
            if objects.RECEIPT in annotations_of(value):
                self._copies.add(uid)
        has_ended = change.gone or is_over(value)
        if has_ended or not node:
            self.observed.forget(uid)
            if not has_ended and asks_for_cards(value):
                self._waits(uid, value)
            return
        self.observed.waiting.pop(uid, None)
        if not asks_for_cards(value):
            return
        if (pod := self.observed.bound.get(uid)) is not None:
            self._see_receipt(pod, value)
            return
        # Pods that ask for cards by annotations alone get none from kubelet; what a ledger books for them is left open.
        gets_cards = (binds_now.startswith(self._by_us) or binds_now == "reviewed") and requests_cards(value)
        use = use_of(value, annotations_of(value)) if gets_cards else None
        pod = BoundPod(uid, node, value, change.after.version, use, use)
        self.observed.bind(pod)
        if gets_cards:
            self.bindings += 1
            self._bindings.check(pod, calm=self.calm)

    def _waits(self, uid: str, value: Object) -> None:
        if objects.RECEIPT in annotations_of(value) and uid not in self._copies:
            raise LawBroken("devices", f"pod {value['metadata']['name']} waits, and has a receipt")
        self.observed.waiting[uid] = value
        if not value["status"].get("nominatedNodeName"):
            self._evictions.nomination_ended(uid)

    def _see_receipt(self, pod: BoundPod, value: Object) -> None:
        """See an update of a bound pod. Once kubelet gave other cards than decided, its decision does not count."""
        before, pod.value = pod.annotations, value
        text = pod.annotations.get(objects.RECEIPT, "")
        if text and text != before.get(objects.RECEIPT):
            self._check_receipt(pod, text)
        if pod.uid in self.edited or pod.annotations.keys().isdisjoint(objects.RECEIPTS):
            return
        pod.booked = use_of(value, pod.annotations)
        if pod.booked != pod.use:
            self.receipts += 1
            if self.calm and pod.use is not None and not value["spec"].get("initContainers"):
                raise LawBroken("devices", f"{pod.name} got {text!r} instead of {pod.use}, although nothing failed")
            pod.use = None
        pod.keeps_more = pod.keeps_more or _lacks_cards(pod)  # it also keeps decided cards, see docs/simulation.md

    def _check_receipt(self, pod: BoundPod, text: str) -> None:
        """Check that a receipt that was written just now says what kubelet has given to the containers of this pod."""
        if (given := self._given(pod.uid)) is None:
            return
        found = [given.get(each["name"], set()) for each in pod.value["spec"]["containers"]]
        if [set(cards) for cards in objects.cards_of(text)] != found:
            raise LawBroken("devices", f"the containers of {pod.name} have {found}, its receipt says {text!r}")

    def check_new_pod(self, sent: Object, pod: Object, refusal: str) -> None:
        """Check what the webhooks have made of a new pod: users ask for nothing that is wrong.

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

    def check_victims(
        self, pod: dict[str, Any], node: str, victims: list[str], asked: int, *, binding: bool = False
    ) -> None:
        """Check that only less important pods of the node are evicted for a pod, which then fits, and not ever more.

        asked    version of the API server's storage when the extender was asked: what was bound later it may not know
        binding  whether pods are being bound to the node, so that the extender knows more of it than the objects say
        """
        self._evictions.check(pod, node, victims, asked, now=self._seen, calm=self.calm and not binding)


def _lacks_cards(pod: BoundPod) -> bool:
    """Return whether a receipt says that a container has fewer cards than it asks for: two devices of the same card."""
    return any(
        len(cards) < objects.demand(each)[0]
        for kind, receipt in (("containers", objects.RECEIPT), ("initContainers", objects.INIT_RECEIPT))
        for each, cards in zip(
            pod.value["spec"].get(kind) or [], objects.cards_of(pod.annotations.get(receipt, "")), strict=False
        )
        if cards
    )
