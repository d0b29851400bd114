"""Whether a need fits a node, remembered until the node changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from gas.extender.nodes import Nodes
from gas.intel.inventory import NodeFacts
from gas.ledger import Ledger
from gas.placement.choice import Choice
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import Refusal, SearchLimitHit, UnknownNode

MOST_NEEDS = 1024
"""Different needs remembered; beyond that the one asked about longest ago is forgotten."""

MOST_LIMIT_HITS = 8
"""Searches of one question that may reach the step limit; the rest of its nodes get a part of the steps."""

LESS_EFFORT = 50
"""The part that they get: one in so many steps."""


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
        self._remembered: OrderedDict[PodNeed, dict[str, Verdict]] = OrderedDict()

    def forget(self, node: str) -> None:
        """The node or its books changed."""
        for verdicts in self._remembered.values():
            verdicts.pop(node, None)

    def of(self, need: PodNeed, names: Iterable[str]) -> dict[str, Verdict]:
        """The verdict of each named node, by name; a name that comes twice is answered once.

        Where several searches were given up, the nodes after them are searched less, so that a pod made to be hard
        cannot stop everybody else for minutes.
        """
        known = self._known(need)
        verdicts = dict.fromkeys(names, FITS)
        hits = 0
        for name in verdicts:
            verdict = known.get(name)
            if verdict is None:
                limit = self._step_limit if hits < MOST_LIMIT_HITS else self._step_limit // LESS_EFFORT
                verdict = self._judge(need, name, limit)
                hits += isinstance(verdict.refusal, SearchLimitHit)
            verdicts[name] = verdict
        return verdicts

    def _known(self, need: PodNeed) -> dict[str, Verdict]:
        if (known := self._remembered.get(need)) is not None:
            self._remembered.move_to_end(need)
            return known
        if len(self._remembered) == MOST_NEEDS:
            self._remembered.popitem(last=False)
        return self._remembered.setdefault(need, {})

    def _judge(self, need: PodNeed, node: str, step_limit: int) -> Verdict:
        """Ask placement, and remember what is final: not a name without a node, not a search with less effort."""
        facts = self._nodes.facts(node)
        if facts is None:
            return as_verdict(UnknownNode())
        verdict = as_verdict(self._place(need, node, facts, step_limit))
        if step_limit == self._step_limit or not isinstance(verdict.refusal, SearchLimitHit):
            self._remembered[need][node] = verdict
        return verdict

    def choose(self, need: PodNeed, node: str) -> Choice | Refusal:
        """Which cards the pod would get on a node now, or why none."""
        facts = self._nodes.facts(node)
        return UnknownNode() if facts is None else self._place(need, node, facts, self._step_limit)

    def judge_as_sent(self, need: PodNeed, node: str, facts: NodeFacts) -> Verdict:
        """The same for a node that somebody describes, with what is booked under its name. Not remembered."""
        return as_verdict(self._place(need, node, facts, self._step_limit))

    def _place(self, need: PodNeed, node: str, facts: NodeFacts, step_limit: int) -> Choice | Refusal:
        use = self._ledger.use(node)
        return place(need, facts.inventory, use, balanced=self._balanced, step_limit=step_limit)


def as_verdict(answer: Choice | Refusal) -> Verdict:
    """The short form of placement's answer."""
    if isinstance(answer, Refusal):
        return Verdict(refusal=answer, sentence=str(answer))
    return FITS_PREFERRED if answer.preferred else FITS
