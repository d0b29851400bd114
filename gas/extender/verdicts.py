"""Whether a need fits a node, remembered until the node changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

from gas.extender.effort import Effort
from gas.extender.nodes import Nodes
from gas.intel.inventory import NodeFacts
from gas.ledger import Ledger
from gas.placement.choice import Choice
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import NoTimeLeft, Refusal, SearchLimitHit, UnknownNode

MOST_NEEDS = 1024
MOST_VERDICTS = 1_000_000
"""Different needs remembered, and verdicts of all of them, about 60 bytes each; beyond that the need that was asked
about longest ago is forgotten."""


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

    async def of(self, need: PodNeed, names: Iterable[str]) -> dict[str, Verdict]:
        """The verdict of each named node, by name; a name that comes twice is answered once."""
        known = self._known(need)
        verdicts = {name: known.get(name) for name in names}
        effort = Effort(self._step_limit)
        for name, verdict in verdicts.items():
            if verdict is None:
                verdicts[name] = await effort.spend(partial(self._judge, need, name))
        return cast(dict[str, Verdict], verdicts)

    async def as_sent(self, need: PodNeed, nodes: Mapping[str, NodeFacts]) -> dict[str, Verdict]:
        """The same for nodes that somebody describes, with what is booked under their names. Not remembered."""
        effort = Effort(self._step_limit)
        return {
            name: await effort.spend(partial(self._judge_as_sent, need, name, facts)) for name, facts in nodes.items()
        }

    def _known(self, need: PodNeed) -> dict[str, Verdict]:
        if (known := self._remembered.get(need)) is not None:
            self._remembered.move_to_end(need)
            return known
        while self._remembered and len(self._remembered) >= min(MOST_NEEDS, MOST_VERDICTS // (len(self._nodes) or 1)):
            self._remembered.popitem(last=False)
        return self._remembered.setdefault(need, {})

    def _judge(self, need: PodNeed, node: str, step_limit: int) -> Verdict:
        """Ask placement, and remember what is final: not a name without a node, not a search with less effort."""
        facts = self._nodes.facts(node)
        if facts is None:
            return as_verdict(UnknownNode())
        if step_limit == 0:
            return as_verdict(NoTimeLeft())
        verdict = as_verdict(self._place(need, node, facts, step_limit))
        if step_limit == self._step_limit or not isinstance(verdict.refusal, SearchLimitHit):
            self._known(need)[node] = verdict
        return verdict

    def _judge_as_sent(self, need: PodNeed, node: str, facts: NodeFacts, step_limit: int) -> Verdict:
        if step_limit == 0:
            return as_verdict(NoTimeLeft())
        return as_verdict(self._place(need, node, facts, step_limit))

    def choose(self, need: PodNeed, node: str) -> Choice | Refusal:
        """Which cards the pod would get on a node now, or why none."""
        facts = self._nodes.facts(node)
        return UnknownNode() if facts is None else self._place(need, node, facts, self._step_limit)

    def _place(self, need: PodNeed, node: str, facts: NodeFacts, step_limit: int) -> Choice | Refusal:
        use = self._ledger.use(node)
        return place(need, facts.inventory, use, balanced=self._balanced, step_limit=step_limit)


def as_verdict(answer: Choice | Refusal) -> Verdict:
    """The short form of placement's answer."""
    if isinstance(answer, Refusal):
        return _refused(answer)
    return FITS_PREFERRED if answer.preferred else FITS


@lru_cache(MOST_NEEDS)
def _refused(refusal: Refusal) -> Verdict:
    """Thousands of nodes give equal refusals: one verdict serves them all."""
    return Verdict(refusal=refusal, sentence=str(refusal))
