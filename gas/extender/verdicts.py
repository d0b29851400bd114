"""Judge whether a need fits each of many nodes, remembering verdicts for nodes in equal states."""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

from cachetools import LRUCache

from gas.extender.hooks import NO_CARDS, PromisedCards
from gas.extender.nodes import Nodes
from gas.ledger.ledger import Ledger, LedgerState
from gas.placement.choice import Choice, Footprint
from gas.placement.inventory import UNUSED
from gas.placement.need import PodNeed
from gas.placement.place import place
from gas.placement.refusal import NoTimeLeft, Refusal, SearchLimitHit, UnknownNode
from gas.vocabularies.protocol import NodeFacts

T = TypeVar("T")

Turns = Generator[None, None, T]
"""Work that is done in turns: it yields whenever other work should get its turn, and returns a T."""


def at_once(work: Turns[T]) -> T:
    """Return the result of work, without letting other work run when it yields."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result


MOST_NEEDS = 1024
MOST_VERDICTS = 500_000
"""Different needs remembered, and verdicts of all of them, about 100 bytes each; beyond that the need that was asked
about longest ago is forgotten."""

MOST_CHOICES = 1024
"""Choices of cards remembered, by need and state: pods of a template are bound to nodes that are alike."""

NEEDS_BY_NAME = 16  # needs whose verdicts are also remembered by names of nodes: those asked about last

NODES_A_TURN = 500  # nodes whose state is looked up before other work gets its turn: some milliseconds
TURN = 0.02  # seconds after which other work gets its turn
PLENTY = 0.5  # seconds of a question in which each search gets all its steps
FEWER_STEPS = 50  # after that, each search gets its steps divided by this number

PATIENCE = 3.0
"""Seconds after which the remaining nodes are not evaluated; kube-scheduler gives an extender 5 s by default. Results
are remembered, so the next question about such a pod gets further."""

UNKNOWN = 0  # the state of a name without a node
SPARE_STATES = 1000  # states remembered beyond two for each node, so that small clusters are not swept all the time


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The result for one node: it fits, it fits on the preferred card, or the refusal and its sentence.

    Nodes with the same result share one verdict, so verdicts are compared and counted by identity.
    """

    preferred: bool = False
    refusal: Refusal | None = None
    sentence: str = ""


FITS = Verdict()
FITS_PREFERRED = Verdict(preferred=True)


class TimeBudget:
    """The time that one request may take.

    Most nodes take microseconds. A pod made to be hard can take a tenth of a second on each of thousands, while the
    same thread answers probes and renews the Lease. So other work runs in between, hard searches get fewer steps after
    a while, and the scheduler gets its response before it gives up.

    step_limit  of a search while there is plenty of time
    clock       returns seconds; the request begins now
    """

    def __init__(self, step_limit: int, clock: Callable[[], float]) -> None:
        self._step_limit = step_limit
        self._clock = clock
        self._started = self._turn = clock()

    def steps(self) -> int:
        """Return how many steps the next search may take; 0 if there is no time left."""
        spent = self._clock() - self._started
        if spent >= PATIENCE:
            return 0
        return self._step_limit if spent < PLENTY else max(self._step_limit // FEWER_STEPS, 1)

    def pause(self) -> Turns[None]:
        """Let other work run if the turn of this request is over."""
        if self._clock() - self._turn >= TURN:
            yield
            self._turn = self._clock()


class NodeStates:
    """Numbers for the states of nodes: nodes with the same number get the same result for every need.

    Two nodes are in the same state if they state the same about their cards and the same is booked on them. A number is
    never given to another state. `forget` must be called whenever a node or its bookings have changed.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._of_node: dict[str, int] = {}
        self._numbers: dict[tuple[int | None, LedgerState], int] = {}
        self._last = UNKNOWN

    @property
    def most(self) -> int:
        """How many states are worth remembering; if there are more, some belong to no node any more."""
        return 2 * len(self._nodes) + SPARE_STATES

    def forget(self, node: str) -> None:
        self._of_node.pop(node, None)

    def of(self, node: str, promised: Sequence[Footprint] = ()) -> int:
        """Return the number of the state that a node is in now, or UNKNOWN. Cards of ``promised`` count as booked."""
        if not promised and (number := self._of_node.get(node)) is not None:
            return number
        if (kind := self._nodes.kind(node)) is None:
            return UNKNOWN
        if promised:
            return self._number(kind, self._ledger.sums(node, promised).state())
        number = self._number(kind, self._ledger.state(node))
        self._of_node[node] = number
        return number

    def empty(self, node: str) -> int:
        """Return the number of the state that a known node would be in without any booking."""
        return self._number(self._nodes.kind(node), ())

    def look_up(self, names: Sequence[str], results: Mapping[int, T]) -> list[T | None]:
        """Return for each name the result of its state; None if that or the state is not known yet.

        One pass without a line of Python for each name, since thousands of names are looked up at once.
        """
        return list(map(results.get, map(self._of_node.get, names)))  # type: ignore[arg-type]  # None is never a key

    def in_use(self) -> set[int]:
        return set(self._of_node.values())

    def _number(self, kind: int | None, booked: LedgerState) -> int:
        if (number := self._numbers.get((kind, booked))) is not None:
            return number
        if len(self._numbers) >= self.most:
            in_use = self.in_use()
            self._numbers = {state: number for state, number in self._numbers.items() if number in in_use}
        self._last += 1
        self._numbers[kind, booked] = self._last
        return self._last


class Verdicts:
    """The results of `place` for named nodes. Pods of one template share a need, and most nodes are alike.

    The verdict of a state is remembered, not that of a node: a node that changes only gets another state. A need that
    is asked about repeatedly also remembers verdicts by the names of nodes, which saves one of two look-ups.

    step_limit  of one search for cards
    clock       returns seconds, for the time that one request may take
    on_stale    is called when `refresh` has something to do
    """

    def __init__(
        self,
        nodes: Nodes,
        ledger: Ledger,
        *,
        step_limit: int,
        clock: Callable[[], float],
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_stale = on_stale
        self._nodes = nodes
        self._ledger = ledger
        self._step_limit = step_limit
        self._clock = clock
        self.states = NodeStates(nodes, ledger)
        self._remembered: OrderedDict[PodNeed, dict[int, Verdict]] = OrderedDict()
        self._by_name: OrderedDict[PodNeed, dict[str, Verdict]] = OrderedDict()
        self._changed: set[str] = set()  # nodes whose verdicts the need that was asked about last has lost
        self._chosen: LRUCache[tuple[PodNeed, int], Choice | Refusal] = LRUCache(MOST_CHOICES)

    def forget(self, node: str) -> None:
        """Forget the state of a node that has changed, or whose bookings have."""
        self.states.forget(node)
        verdict = None
        for by_name in self._by_name.values():
            verdict = by_name.pop(node, None)
        if verdict is not None:
            self._changed.add(node)
            self._on_stale()

    def look_ahead(self) -> Turns[None]:
        for at, (name, _) in enumerate(list(self._nodes)):
            self.states.of(name)
            if at % NODES_A_TURN == 0:
                yield

    def of(self, need: PodNeed, names: Sequence[str], promised: PromisedCards = NO_CARDS) -> Turns[list[Verdict]]:
        """Return the verdict of each named node, in their order. Cards of ``promised``, by node, count as booked."""
        known = self._known(need)
        by_name = self._known_by_name(need)
        budget = TimeBudget(self._step_limit, self._clock)
        if by_name:
            verdicts = list(map(by_name.get, names))
        else:
            verdicts = self.states.look_up(names, known)
            if by_name is not None:
                by_name.update((name, verdict) for name, verdict in zip(names, verdicts, strict=True) if verdict)
        if promised:
            verdicts = [None if name in promised else verdict for name, verdict in zip(names, verdicts, strict=True)]
        if all_fit(verdicts):
            return cast(list[Verdict], verdicts)
        missing = [at for at, verdict in enumerate(verdicts) if verdict is None]
        for at in missing:
            name = names[at]
            promised_here = promised.get(name, ())
            if (verdict := known.get(self.states.of(name, promised_here))) is not None:
                if by_name is not None and not promised_here:
                    by_name[name] = verdict
            else:
                verdict = self._judge(known, need, name, budget.steps(), promised_here)
                yield from budget.pause()
            verdicts[at] = verdict
        if missing:
            self._forget_the_oldest()
        return cast(list[Verdict], verdicts)

    def refresh(self) -> Turns[None]:
        """Find the verdicts of changed nodes for the need that was asked about last, before it is asked about again.

        If no name of a question lacks one, the names need not be searched, which takes as long as all look-ups.
        """
        need = next(reversed(self._by_name))
        by_name, known, changed = self._by_name[need], self._known(need), self._changed
        budget = TimeBudget(self._step_limit, self._clock)
        while changed:
            name = changed.pop()
            if self._nodes.facts(name) is None:
                continue
            if known.get(self.states.of(name)) is None:
                self._judge(known, need, name, budget.steps(), ())
            if (verdict := known.get(self.states.of(name))) is not None:
                by_name[name] = verdict
            yield from budget.pause()
        self._forget_the_oldest()

    def hopeless(
        self, need: PodNeed, names: Iterable[str], facts: Callable[[str], NodeFacts | None]
    ) -> Turns[set[str]]:
        """Return the named nodes on which the pod would not fit even if nothing were booked there.

        facts  returns what is known of a node, which may come from the request
        """
        known = self._known(need)
        budget = TimeBudget(self._step_limit, self._clock)
        alike: dict[int, bool] = {}
        found = set()
        for name in names:
            if (node := facts(name)) is None:
                continue
            if (never := alike.get(id(node))) is None:
                state = self.states.empty(name) if self._nodes.facts(name) is node else UNKNOWN
                if (verdict := known.get(state)) is None and (steps := budget.steps()):
                    verdict = as_verdict(place(need, node.inventory, UNUSED, step_limit=steps))
                    if state != UNKNOWN and not isinstance(verdict.refusal, SearchLimitHit):
                        known[state] = verdict
                    yield from budget.pause()
                refusal = verdict.refusal if verdict is not None else None
                never = alike[id(node)] = refusal is not None and not isinstance(refusal, SearchLimitHit)
            if never:
                found.add(name)
        self._forget_the_oldest()
        return found

    def as_sent(
        self, need: PodNeed, nodes: Mapping[str, NodeFacts], promised: PromisedCards = NO_CARDS
    ) -> Turns[list[Verdict]]:
        """Return the verdicts of nodes that a request describes, with what is booked and promised under their names.

        Nodes described alike, with the same booked, share a verdict, but nothing is remembered for the next request.
        """
        budget = TimeBudget(self._step_limit, self._clock)
        alike: dict[tuple[int, LedgerState], Verdict] = {}
        verdicts = []
        for name, facts in nodes.items():
            of_others = promised.get(name, ())
            booked = self._ledger.sums(name, of_others).state() if of_others else self._ledger.state(name)
            state = (id(facts), booked)  # all facts live as long as this question
            if (verdict := alike.get(state)) is None:
                steps = budget.steps()
                verdict = as_verdict(self._place(need, name, facts, steps, of_others) if steps else NoTimeLeft())
                if not isinstance(verdict.refusal, SearchLimitHit | NoTimeLeft):
                    alike[state] = verdict
                yield from budget.pause()
            verdicts.append(verdict)
        return verdicts

    def choose(self, need: PodNeed, node: str, promised: Sequence[Footprint] = ()) -> Choice | Refusal:
        """Return the cards that the pod would get on a node now, or why it gets none."""
        if (facts := self._nodes.facts(node)) is None:
            return UnknownNode()
        key = (need, self.states.of(node, promised))
        if (chosen := self._chosen.get(key)) is None:
            chosen = self._chosen[key] = self._place(need, node, facts, self._step_limit, promised)
        return chosen

    def _known(self, need: PodNeed) -> dict[int, Verdict]:
        """Return what is remembered of a need, by state. Now and then, drop states that no node is in any more."""
        known = self._remembered.pop(need, {})
        if len(known) > self.states.most:
            in_use = self.states.in_use()
            known = {state: verdict for state, verdict in known.items() if state in in_use}
        self._remembered[need] = known
        return known

    def _known_by_name(self, need: PodNeed) -> dict[str, Verdict] | None:
        """Return what is remembered of a need by name; None if the need was not among the last ones asked about.

        It holds only what is remembered by state, and only of nodes that are known and have not changed since.
        """
        if need != next(reversed(self._by_name), need):
            self._changed = set()
        by_name = self._by_name.pop(need, None)
        self._by_name[need] = {} if by_name is None else by_name
        if len(self._by_name) > NEEDS_BY_NAME:
            self._by_name.popitem(last=False)
        return by_name

    def _forget_the_oldest(self) -> None:
        """Keep within the limits; due after every request that added something."""
        while len(self._remembered) > MOST_NEEDS or sum(map(len, self._remembered.values())) > MOST_VERDICTS:
            self._remembered.popitem(last=False)

    def _judge(
        self, known: dict[int, Verdict], need: PodNeed, node: str, steps: int, promised: Sequence[Footprint]
    ) -> Verdict:
        """Ask placement, and remember final results: not an unknown node, and not a search that was cut short."""
        facts = self._nodes.facts(node)
        if facts is None:
            return as_verdict(UnknownNode())
        if steps == 0:
            return as_verdict(NoTimeLeft())
        verdict = as_verdict(self._place(need, node, facts, steps, promised))
        if steps == self._step_limit or not isinstance(verdict.refusal, SearchLimitHit):
            known[self.states.of(node, promised)] = verdict
        return verdict

    def _place(
        self, need: PodNeed, node: str, facts: NodeFacts, step_limit: int, promised: Sequence[Footprint]
    ) -> Choice | Refusal:
        usage = self._ledger.sums(node, promised).usage() if promised else self._ledger.usage(node)
        return place(need, facts.inventory, usage, step_limit=step_limit)


def all_fit(verdicts: Sequence[Verdict | None]) -> bool:
    """Return whether every node fits, in one pass without a line of Python for each verdict."""
    return verdicts.count(FITS) == len(verdicts)


def as_verdict(result: Choice | Refusal) -> Verdict:
    if isinstance(result, Refusal):
        return _refused(result)
    return FITS_PREFERRED if result.preferred else FITS


@lru_cache(MOST_NEEDS)
def _refused(refusal: Refusal) -> Verdict:
    """Return the one verdict that all nodes with equal refusals share; there may be thousands."""
    return Verdict(refusal=refusal, sentence=str(refusal))
