"""Find pods that wait only because the memory of cards is unknown, so that an event on them can say so.

kube-scheduler compares a pod with the sums of a node before it asks the extender. A node whose cards' memory is unknown
states no sum of it, so kube-scheduler refuses such a pod without asking, and its own event names only the resource.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from gas.extender.verdicts import Turns, Verdicts
from gas.placement.inventory import UNUSED
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal
from gas.values.amounts import MEMORY_MAX
from gas.values.card_facts import MOST_MEMORY
from gas.values.cards import Card
from gas.vocabularies.protocol import NodeFacts

NODES_A_TURN = 20  # unlike nodes that are tried before others get their turn: some milliseconds


class Unknown(NamedTuple):
    """Nodes on which a pod would fit if the memory of their cards were known."""

    node: str  # the first of them
    cards: tuple[Card, ...]  # of that node whose memory is unknown
    others: int  # how many more nodes there are

    @property
    def sentence(self) -> str:
        """The message of an event of the pod."""
        named = ", ".join(map(str, self.cards))
        more = f" and of cards of {self.others} more node{'s' if self.others > 1 else ''}" if self.others else ""
        return (
            f"no node states as much {MEMORY_MAX} as the pod requests: the memory of {named} of node {self.node}{more}"
            f" is unknown; the event GPUMemoryUnknown of the node says why; let gas-plugin open render nodes, or set"
            f" GPU_MEMORY_OVERRIDE"
        )


def nodes_of_unknown_memory(
    needs: Iterable[PodNeed], nodes: Mapping[str, NodeFacts], verdicts: Verdicts
) -> Turns[dict[PodNeed, Unknown]]:
    """Return the needs that no node could meet even if it were empty, but some node if the memory were known."""
    found: dict[PodNeed, Unknown] = {}
    unknown = {name: facts for name, facts in nodes.items() if facts.unknown_memory}
    if not unknown:
        return found
    for need in needs:
        if not _wants_memory(need):
            continue
        would_fit = yield from _would_fit(need, unknown)
        if would_fit and len((yield from verdicts.hopeless(need, nodes, nodes.get))) == len(nodes):
            first = would_fit[0]
            found[need] = Unknown(first, tuple(sorted(unknown[first].unknown_memory)), len(would_fit) - 1)
        yield
    return found


def _wants_memory(need: PodNeed) -> bool:
    return any(
        MEMORY_MAX in (*dict(container.per_card), *(ratio.resource for ratio in container.ratios))
        for container in need.containers
    )


def _would_fit(need: PodNeed, nodes: Mapping[str, NodeFacts]) -> Turns[list[str]]:
    """Return the nodes on which the pod would fit if their cards of unknown memory had as much as a card can have."""
    found: list[str] = []
    alike: dict[int, bool] = {}
    for name, facts in nodes.items():
        if (fits := alike.get(id(facts))) is None:
            supposed = {
                card: {**amounts, MEMORY_MAX: MOST_MEMORY} if card in facts.unknown_memory else amounts
                for card, amounts in facts.inventory.capacity.items()
            }
            result = place(need, replace(facts.inventory, capacity=supposed), UNUSED)
            fits = alike[id(facts)] = not isinstance(result, Refusal)
            if len(alike) % NODES_A_TURN == 0:
                yield
        if fits:
            found.append(name)
    return found
