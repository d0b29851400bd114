"""The laws of a cluster in which nothing changes any more."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from simulation import objects
from simulation.objects import RESOURCES, Use, use_of
from simulation.observed import BoundPod, LawBroken, Observed

Books = Mapping[str, tuple[str, Mapping[str, Mapping[str, int]]]]
"""By UID: the node, and the amounts by card and resource."""

NO_SUMS: Mapping[str, Use] = {}


class AtRest:
    """The laws of a cluster in which nothing changes any more. Every method raises LawBroken.

    edited  UIDs of the pods whose cards were edited
    """

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.edited: set[str] = set()

    def check_devices(self, given: Mapping[str, Mapping[str, set[str]]]) -> None:
        """Check that each running pod has on it the cards that its containers have. Raises LawBroken.

        given  by UID and container: the cards that kubelet has given
        """
        for uid, containers in given.items():
            pod = self.observed.bound.get(uid)
            if pod is None or uid in self.edited:
                continue
            text = pod.annotations.get(objects.RECEIPT) or pod.annotations.get(objects.CARDS)
            if "deletionTimestamp" in pod.value["metadata"] or pod.value.get("status", {}).get("phase") != "Running":
                continue
            stated = objects.cards_of(text) if text else []
            found = [containers.get(each["name"], set()) for each in pod.value["spec"]["containers"]]
            if [set(cards) for cards in stated] != found:
                raise LawBroken("devices", f"the containers of {pod.name} have {found}, the pod says {text!r}")

    def check_books(self, replica: str, books: Books, sums: Mapping[str, Use] = NO_SUMS) -> None:
        """Compare a ledger with the objects, and its sums by node with its bookings. Raises LawBroken."""
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
        for node, amounts in sums.items():
            together = objects.added(footprint for on, footprint in books.values() if on == node)
            if amounts != together:
                raise LawBroken("books", f"{replica} has sums of {amounts} for {node}, its bookings are {together}")
        for uid, (node, _) in books.items():
            # Cards reserved for a pod that another client bound to the same node stay booked while it lives.
            pod_there = self.observed.bound.get(uid)
            if uid not in self.edited and (pod_there is None or (pod_there.booked is None and pod_there.node != node)):
                raise LawBroken("books", f"{replica} has a booking on {node} for {uid}, which holds no cards")

    def check_waiting(self, replica: str, waiting: AbstractSet[str]) -> None:
        """Compare the pods that a replica knows to wait with the objects. Raises LawBroken."""
        for uid in sorted(waiting - self.observed.waiting.keys()):
            raise LawBroken("books", f"{replica} waits for {uid} to be bound, which is bound or gone")
        for uid in sorted(self.observed.waiting.keys() - waiting):
            name = self.observed.waiting[uid]["metadata"]["name"]
            raise LawBroken("books", f"{replica} does not know that {name} waits")

    def check_bound(self) -> None:
        """Check that no pod waits that fits. Raises LawBroken."""
        for value in self.observed.waiting.values():
            spec = value["spec"]
            if "deletionTimestamp" in value["metadata"] or spec.get("initContainers"):
                continue
            if spec.get("schedulerName") == objects.OTHER_SCHEDULER:
                continue
            for node in self.observed.nodes:
                pods = self.observed.on(node)
                # Cards may stay reserved for pods that another client bound without any, see `check_books`.
                if all(pod.use is not None for pod in pods) and self.observed.fits(value, node, pods):
                    raise LawBroken("progress", f"pod {value['metadata']['name']} waits, but fits node {node}")


def _accepted(observed: Observed, pod: BoundPod) -> list[Use]:
    """Return what may be booked for a pod; nothing if anything may.

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
