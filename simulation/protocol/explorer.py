"""Visit every state of the model, breadth first."""

from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from typing import NamedTuple

from simulation.protocol.model import NONE, Pod, Rules, View, broken_law

State = tuple[tuple[str, ...], tuple[int, ...]]  # the phases of the replicas, and for each pod the number of its record


class Result(NamedTuple):
    """The result of an exploration, which ends at the first state that breaks a law."""

    states: int
    depth: int  # steps from the first state to the last ones
    law: str  # that is broken; empty if none is
    trace: tuple[str, ...]  # the fewest steps to the state that breaks it
    steps: frozenset[str]  # names of all steps that were possible anywhere


class Explorer:
    """A search through all states. Those that differ only in the names of pods, nodes and replicas count as one."""

    def __init__(self, rules: Rules, *, pods: int, nodes: int, replicas: int) -> None:
        self._rules = rules
        self._cards = range(nodes)
        self._start = (("follower",) * replicas, (Pod("waiting", NONE, (View(),) * replicas),) * pods)
        self._orders = [
            ((*cards, NONE), (*names, NONE))
            for cards, names in product(permutations(range(nodes)), permutations(range(replicas)))
        ]
        self._records: list[Pod] = []
        self._numbers: dict[Pod, int] = {}
        # What follows for one pod is computed once for each record.
        self._renamed = cache(self._rename)
        self._of_replica = cache(self._replica_steps)
        self._of_others = cache(self._other_steps)
        self._of_lead = cache(self._follow_lead)
        self._in_order = cache(self._sort_phases)

    def explore(self) -> Result:
        phases, waiting = self._start
        start = self._one_of_equals((phases, tuple(map(self._number, waiting))))
        before: dict[State, State | None] = {start: None}
        level, depth, taken = [start], 0, set[str]()
        while True:
            found = []
            for state in level:
                names = set()
                for text, after in self._next(state):
                    names.add(text.partition(":")[0])
                    if (after := self._one_of_equals(after)) not in before:
                        before[after] = state
                        found.append(after)
                taken |= names
                pods = [self._records[each] for each in state[1]]
                if law := broken_law(state[0], pods, len(self._cards), names):
                    return Result(len(before), depth, law, self._trace(state, before), frozenset(taken))
            if not found:
                return Result(len(before), depth, "", (), frozenset(taken))
            level, depth = found, depth + 1

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        phases, pods = state
        for replica, phase in enumerate(phases):
            views = [self._records[each].views[replica] for each in pods]
            for step, changed in self._rules.of_lead(phases, replica, views):
                after = (*phases[:replica], changed, *phases[replica + 1 :])
                yield f"{step}: r{replica}", (after, tuple(self._of_lead(step, each, replica) for each in pods))
            booked = {view.card for view in views}
            free = tuple(card for card in self._cards if card not in booked) if phase == "deciding" else None
            for at, pod in enumerate(pods):
                for step, record in self._of_replica(pod, replica, free):
                    yield f"{step}: r{replica}, p{at}", (phases, (*pods[:at], record, *pods[at + 1 :]))
        for at, pod in enumerate(pods):
            for step, record in self._of_others(pod):
                yield f"{step}: p{at}", (phases, (*pods[:at], record, *pods[at + 1 :]))

    def _number(self, pod: Pod) -> int:
        if pod not in self._numbers:
            self._numbers[pod] = len(self._records)
            self._records.append(pod)
        return self._numbers[pod]

    def _replica_steps(self, pod: int, replica: int, free: tuple[int, ...] | None) -> list[tuple[str, int]]:
        """``free``: None if the replica does not decide."""
        record = self._records[pod]
        steps = [*self._rules.outcomes(record, replica)]
        if free is not None:
            steps += self._rules.decisions(record, replica, free)
        return [(step, self._number(each)) for step, each in steps]

    def _other_steps(self, pod: int) -> list[tuple[str, int]]:
        return [(step, self._number(each)) for step, each in self._rules.of_others(self._records[pod])]

    def _follow_lead(self, step: str, pod: int, replica: int) -> int:
        return self._number(self._rules.follow_lead(step, self._records[pod], replica))

    def _one_of_equals(self, state: State) -> State:
        """Return one state for all that differ only in names."""
        phases, orders = self._in_order(state[0])
        return phases, min(tuple(sorted([self._renamed(pod, order) for pod in state[1]])) for order in orders)

    def _sort_phases(self, phases: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
        """Return the phases in order, and the orders of names that put them into it."""
        named = [tuple(phases[names.index(each)] for each in range(len(phases))) for _, names in self._orders]
        return min(named), [order for order, each in enumerate(named) if each == min(named)]

    def _rename(self, pod: int, order: int) -> int:
        """Name the cards and replicas in another order. Leave out Bindings that no longer matter."""
        record, (cards, names) = self._records[pod], self._orders[order]
        views = [record.views[names.index(each)] for each in range(len(record.views))]
        sent = (each for each in record.bindings if each.sender != NONE or self._rules.can_store(record, each))
        renamed = {each._replace(sender=names[each.sender], card=cards[each.card]) for each in sent}
        known = tuple(view._replace(card=cards[view.card]) for view in views)
        return self._number(Pod(record.stored, cards[record.card], known, tuple(sorted(renamed))))

    def _trace(self, state: State, before: dict[State, State | None]) -> tuple[str, ...]:
        """Return the steps to a state, in which every pod and replica keeps one name."""
        path = [state]
        while (last := before[path[-1]]) is not None:
            path.append(last)
        here, texts = path.pop(), []
        while path:
            wanted = path.pop()
            text, here = next(each for each in self._next(here) if self._one_of_equals(each[1]) == wanted)
            texts.append(text)
        return tuple(texts)
