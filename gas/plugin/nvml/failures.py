"""Decide which failures of NVIDIA's cards count, and when a card that has failed may be given out again.

A message of the driver (Xid) counts unless it is ignored: by default those for which NVIDIA's catalogue demands nothing
or a restart of the application. A card that has failed is unhealthy until there is a proof, for `RECOVERED_AFTER`:

- its driver says that it demands nothing (from driver 570 on), or
- of an older driver, that the card was away, as in a reset or a reload of the driver, and replies again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gas.plugin.nvml.nvml_library import Failure, NvmlCard

RECOVERED_AFTER = 60.0  # seconds for which the proof must hold, without another failure

_OFF_THE_BUS = 79
_DEMANDS = {
    1: "reset it",
    2: "restart the node",
    3: "end the programs that use it together with other cards",
    4: "drain the node, then reset it",
    5: "recover its IMEX domain",
    6: "reset its PCIe bus",
    7: "restart the node",
}
"""By number, the recovery actions of NVML but 0, which is none."""


@dataclass(slots=True)
class _Failed:
    failure: Failure
    was_away: bool = False
    good_since: float | None = None


class Failures:
    """Remember which cards and instances have failed, by UUID; that of a divided card stands for all its instances."""

    def __init__(self, ignored: Collection[int]) -> None:
        self._ignored = ignored
        self._failed: dict[str, _Failed] = {}

    def update(
        self, cards: Collection[NvmlCard], reported: Iterable[Failure], now: float, *, unread: Collection[str] = ()
    ) -> None:
        """Note what cards have reported, and forget failures after their proof.

        ``cards`` are those that reply, ``unread`` the UUIDs of others that may still be there.
        """
        for failure in reported:
            if failure.xid not in self._ignored:
                for uuid in _concerned(failure, cards):
                    self._failed[uuid] = _Failed(failure)
        replying = {uuid: each for each in cards for uuid in (each.uuid, each.card_uuid)}
        for uuid, failed in list(self._failed.items()):
            if (card := replying.get(uuid)) is None:
                failed.was_away |= uuid not in unread
                failed.good_since = None
            elif card.recovery or (card.recovery is None and not failed.was_away):
                failed.good_since = None
            elif failed.good_since is None:
                failed.good_since = now
            elif now - failed.good_since >= RECOVERED_AFTER:
                del self._failed[uuid]

    def fault(self, card: NvmlCard) -> str | None:
        """Return why a card must not be given out and what to do, a clause; None if it may."""
        demand = _DEMANDS.get(card.recovery, f"do its recovery action {card.recovery}") if card.recovery else ""
        failed = self._failed.get(card.card_uuid) or self._failed.get(card.uuid)
        if failed is not None:
            what = demand or ("restart the node" if failed.failure.xid == _OFF_THE_BUS else "reset it")
            return f"{failed.failure.sentence}; {what}; it returns {RECOVERED_AFTER:g} s after that"
        return f"its driver demands: {demand}" if demand else None


def _concerned(failure: Failure, cards: Iterable[NvmlCard]) -> Collection[str]:
    """Return the UUIDs of the instances that a failure is about, or that of the card if it is about all of it."""
    places = (failure.gpu_instance, failure.compute_instance)
    instances = [
        each.uuid
        for each in cards
        if each.card_uuid == failure.uuid
        and all(place in (None, own) for place, own in zip(places, each.place, strict=True))
    ]
    return instances if instances and failure.gpu_instance is not None else (failure.uuid,)
