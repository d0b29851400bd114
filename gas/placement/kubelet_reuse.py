"""What kubelet hands on from ended init containers to the containers after them, without being asked.

Kubelet keeps a pool of what the pod's init containers were given and serves every later container of the pod
from it first. A container that wants no fewer cards than the pool has gets the whole pool and more; one that
wants fewer gets some of the pool, and kubelet chooses which. What a sidecar or an app container gets leaves
the pool; what an init container gets stays in it. A choice that aims elsewhere would not be what the
containers really get.

The pool is kept by card here, while kubelet's holds device ids, of which a shared card has several: the rule
says what to aim at, and what was really given is corrected later.
"""

from __future__ import annotations

from collections.abc import Iterable

from gas.cards import Card
from gas.placement.need import Role

Pool = frozenset[Card]
EMPTY: Pool = frozenset()


def obeys(pool: Pool, cards: Iterable[Card]) -> bool:
    """Whether a container that comes while the pool is so would be given exactly these cards."""
    given = frozenset(cards)
    return pool <= given if len(pool) <= len(given) else given <= pool


def pool_after(pool: Pool, role: Role, cards: Iterable[Card]) -> Pool:
    """The pool once a container of this role has got its cards."""
    return pool | frozenset(cards) if role is Role.INIT else pool - frozenset(cards)
