"""The devices of ended init containers, which kubelet gives to the pod's later containers without asking.

Kubelet keeps a pool of the devices that the pod's init containers got, and serves every later container of the pod
from it first. A container that wants at least as many cards as the pool has gets the whole pool, and more if it wants
more. A container that wants fewer gets some of the pool, and kubelet chooses which. The devices of a sidecar or an
app container leave the pool; those of an init container stay in it. A choice that does not follow this rule would
differ from what the containers get.

The pool here consists of cards, while kubelet's consists of device ids, of which a shared card has several. So the
rule says what to aim at, and a receipt corrects the ledger if kubelet gave something else.
"""

from __future__ import annotations

from collections.abc import Iterable

from gas.placement.need import Role
from gas.values.cards import Card

Pool = frozenset[Card]
EMPTY: Pool = frozenset()


def follows_reuse(pool: Pool, cards: Iterable[Card]) -> bool:
    """Return whether kubelet can give exactly these cards to a container that starts with this pool."""
    given = frozenset(cards)
    return pool <= given if len(pool) <= len(given) else given <= pool


def pool_after(pool: Pool, role: Role, cards: Iterable[Card]) -> Pool:
    """Return the pool after a container of this role got its cards."""
    return pool | frozenset(cards) if role is Role.INIT else pool - frozenset(cards)
