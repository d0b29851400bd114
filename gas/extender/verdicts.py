"""Whether a need fits a node, remembered for nodes in equal states."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

from gas.extender.effort import Effort
from gas.extender.node_states import NodeStates
from gas.extender.nodes import Nodes
from gas.ledger import BooksState, Ledger
from gas.placement.choice import Choice
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import NoTimeLeft, Refusal, SearchLimitHit, UnknownNode
from gas.vocabulary import NodeFacts

MOST_NEEDS = 1024
MOST_VERDICTS = 500_000
"""Different needs remembered, and verdicts of all of them, about 100 bytes each; beyond that the need that was asked
about longest ago is forgotten."""


LOOKED_AT_ONCE = 500
"""Nodes whose books are looked into before others get their turn: some milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The short answer for one node: it fits, it fits on the preferred card, or the refusal and its sentence.

    Nodes with the same answer share one verdict, so they are compared and counted by identity.
    """

    preferred: bool = False
    refusal: Refusal | None = None
    sentence: str = ""


FITS = Verdict()
FITS_PREFERRED = Verdict(preferred=True)


class Verdicts:
    """Answers `place` for named nodes. Pods of one template share a need, and most nodes are alike.

    What is remembered is the verdict of a state, not of a node: a node that changes only gets another state.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger, *, balanced: str | None, step_limit: int) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._balanced = balanced
        self._step_limit = step_limit
        self._states = NodeStates(nodes, ledger)
        self._remembered: OrderedDict[PodNeed, dict[int, Verdict]] = OrderedDict()

    def forget(self, node: str) -> None:
        """The node or its books changed."""
        self._states.forget(node)

    async def look_ahead(self) -> None:
        """Find out the state of every node, letting others run meanwhile."""
        for at, (name, _) in enumerate(list(self._nodes)):
            self._states.of(name)
            if at % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def of(self, need: PodNeed, names: Sequence[str]) -> list[Verdict]:
        """The verdict of each named node, in their order."""
        known = self._known(need)
        verdicts = self._states.look_up(names, known)
        if None in set(verdicts):
            effort = Effort(self._step_limit)
            for at, name in enumerate(names):
                if verdicts[at] is None:
                    verdicts[at] = known.get(self._states.of(name))
                if verdicts[at] is None:
                    verdicts[at] = await effort.spend(partial(self._judge, known, need, name))
            self._forget_the_oldest()
        return cast(list[Verdict], verdicts)

    async def as_sent(self, need: PodNeed, nodes: Mapping[str, NodeFacts]) -> list[Verdict]:
        """The same for nodes that somebody describes, with what is booked under their names.

        Nodes described alike, with the same booked, share a verdict, but nothing is remembered for the next question.
        """
        effort = Effort(self._step_limit)
        alike: dict[tuple[int, BooksState], Verdict] = {}
        verdicts = []
        for name, facts in nodes.items():
            state = (id(facts), self._ledger.state(name))  # all facts live as long as this question
            if (verdict := alike.get(state)) is None:
                verdict = await effort.spend(partial(self._judge_as_sent, need, name, facts))
                if not isinstance(verdict.refusal, SearchLimitHit | NoTimeLeft):
                    alike[state] = verdict
            verdicts.append(verdict)
        return verdicts

    def _known(self, need: PodNeed) -> dict[int, Verdict]:
        """What is remembered of a need, by state; states that no node is in any more are dropped now and then."""
        known = self._remembered.pop(need, {})
        if len(known) > self._states.most:
            in_use = self._states.in_use()
            known = {state: verdict for state, verdict in known.items() if state in in_use}
        self._remembered[need] = known
        return known

    def _forget_the_oldest(self) -> None:
        """After every question that added something: a need that is known is asked about more and more nodes."""
        while len(self._remembered) > MOST_NEEDS or sum(map(len, self._remembered.values())) > MOST_VERDICTS:
            self._remembered.popitem(last=False)

    def _judge(self, known: dict[int, Verdict], need: PodNeed, node: str, step_limit: int) -> Verdict:
        """Ask placement, and remember what is final: not a name without a node, not a search with less effort."""
        facts = self._nodes.facts(node)
        if facts is None:
            return as_verdict(UnknownNode())
        if step_limit == 0:
            return as_verdict(NoTimeLeft())
        verdict = as_verdict(self._place(need, node, facts, step_limit))
        if step_limit == self._step_limit or not isinstance(verdict.refusal, SearchLimitHit):
            known[self._states.of(node)] = verdict
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
        usage = self._ledger.usage(node)
        return place(need, facts.inventory, usage, balanced=self._balanced, step_limit=step_limit)


def as_verdict(answer: Choice | Refusal) -> Verdict:
    """The short form of placement's answer."""
    if isinstance(answer, Refusal):
        return _refused(answer)
    return FITS_PREFERRED if answer.preferred else FITS


@lru_cache(MOST_NEEDS)
def _refused(refusal: Refusal) -> Verdict:
    """Thousands of nodes give equal refusals: one verdict serves them all."""
    return Verdict(refusal=refusal, sentence=str(refusal))
