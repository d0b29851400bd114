"""Reports of the decider to the parts that act on them."""

from __future__ import annotations

from gas.objects import Pod


class Observer:
    """Receives what the decider reports. The methods of this base class ignore it.

    A method must return at once and must not call the decider.
    """

    def node_changed(self, node: str) -> None:
        """A node, what is booked on it, or one of its bound pods has changed."""

    def cards_freed(self, node: str) -> None:
        """Cards or resources of a node may have become free."""

    def node_is_invalid(self, node: str, problems: tuple[str, ...]) -> None:
        """Labels, annotations or resources of a changed node cannot be used; one sentence each."""

    def allocation_corrected(self, pod: Pod) -> None:
        """The ledger follows a receipt: kubelet gave a bound pod other cards than were decided."""

    def booking_mismatch(self, pod: Pod, sentence: str) -> None:
        """The annotations of a bound pod are not what is booked for it. Reported once for each sentence."""

    def reservation_vanished(self, uid: str, pod: str) -> None:
        """A complete list of pods does not contain a reserved pod (``namespace/name``), so its bind is in doubt."""
