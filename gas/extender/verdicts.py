"""Whether a need fits a node, remembered until the node changes."""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import LRUCache

from gas.extender.nodes import Nodes
from gas.intel.inventory import NodeFacts
from gas.ledger import Ledger
from gas.placement.choice import Choice
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal, UnknownNode

MOST_NEEDS = 1024
"""Different needs remembered; beyond that the one asked about longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The short answer for one node: it fits, it fits on the preferred card, or the refusal and its sentence."""

    preferred: bool = False
    refusal: Refusal | None = None
    sentence: str = ""


FITS = Verdict()
FITS_PREFERRED = Verdict(preferred=True)


class Verdicts:
    """Answers `place` for named nodes. Pods of one template share a need and most nodes have not changed since.

    A node's verdicts are forgotten when its labels, its resources or its books change; nothing else enters them.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger, *, balanced: str | None, step_limit: int) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._balanced = balanced
        self._step_limit = step_limit
        self._remembered: LRUCache[PodNeed, dict[str, Verdict]] = LRUCache(MOST_NEEDS)

    def forget(self, node: str) -> None:
        """The node or its books changed."""
        for verdicts in self._remembered.values():
            verdicts.pop(node, None)

    def of(self, need: PodNeed) -> dict[str, Verdict]:
        """The verdicts known for a need by node name, to look into before `judge`."""
        if (known := self._remembered.get(need)) is None:
            known = self._remembered[need] = {}
        return known

    def judge(self, need: PodNeed, node: str) -> Verdict:
        """Ask placement about one node and remember its answer."""
        verdict = as_verdict(self.choose(need, node))
        if not isinstance(verdict.refusal, UnknownNode):
            self.of(need)[node] = verdict
        return verdict

    def choose(self, need: PodNeed, node: str) -> Choice | Refusal:
        """Which cards the pod would get on a node now, or why none."""
        facts = self._nodes.facts(node)
        return UnknownNode() if facts is None else self._place(need, node, facts)

    def judge_as_sent(self, need: PodNeed, node: str, facts: NodeFacts) -> Verdict:
        """The same for a node that somebody describes, with what is booked under its name. Not remembered."""
        return as_verdict(self._place(need, node, facts))

    def _place(self, need: PodNeed, node: str, facts: NodeFacts) -> Choice | Refusal:
        use = self._ledger.use(node)
        return place(need, facts.inventory, use, balanced=self._balanced, step_limit=self._step_limit)


def as_verdict(answer: Choice | Refusal) -> Verdict:
    """The short form of placement's answer."""
    if isinstance(answer, Refusal):
        return Verdict(refusal=answer, sentence=str(answer))
    return FITS_PREFERRED if answer.preferred else FITS
