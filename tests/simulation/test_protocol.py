"""The model of the protocol keeps its laws, every planted fault breaks one, and its steps are those of the code."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from gas.extender.bookings import TABLE, Event, State
from simulation.protocol.explorer import Explorer
from simulation.protocol.model import PLANTED, STEPS, Rules

TWICE = "a card is given twice"
LAWS = {"a settled reservation is kept": "a pod that fits waits without end"}

Row = tuple[State, Event]

NOT_MODELLED: dict[str, set[Row]] = {
    "nominations change who gets a card, and no booking": {
        (State.UNKNOWN, Event.NOMINATED),
        *((State.PROMISED, event) for event in TABLE[State.PROMISED]),
    },
    "a pod is bound once, so a replica that knows where it is bound never sees it elsewhere": {
        (State.WRITTEN, Event.ELSEWHERE),
        (State.HELD, Event.ELSEWHERE),
    },
}


class _Noting(dict[Event, State]):
    """The events of a state, which note each one that happens."""

    def __init__(self, state: State, taken: set[Row]) -> None:
        super().__init__(TABLE[state])
        self._state = state
        self._taken = taken

    def get(self, event: Event, default: State) -> State:  # type: ignore[override]
        if event in self:
            self._taken.add((self._state, event))
        return super().get(event, default)


def test_every_state_keeps_the_laws() -> None:
    result = Explorer(Rules(), pods=2, nodes=1, replicas=2).explore()
    assert (result.law, result.states) == ("", 9747)
    assert result.steps == set(STEPS)


def test_the_model_takes_every_row_of_the_table_but_those_that_are_named_here() -> None:
    taken: set[Row] = set()
    rules = Rules(table={state: _Noting(state, taken) for state in TABLE})
    assert Explorer(rules, pods=1, nodes=2, replicas=2).explore().law == ""
    rows = {(state, event) for state, events in TABLE.items() for event in events}
    assert rows - taken == set().union(*NOT_MODELLED.values())


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_fault_breaks_a_law(name: str) -> None:
    assert Explorer(PLANTED[name], pods=2, nodes=1, replicas=2).explore().law == LAWS.get(name, TWICE)


def test_a_trace_names_the_fewest_steps() -> None:
    result = Explorer(PLANTED["a Binding without a response counts as failed"], pods=2, nodes=2, replicas=1).explore()
    assert result.law == "a bound pod has another card than was decided"
    assert result.trace == (
        "elect: r0",
        "end earlier bindings: r0",
        "read pods: r0",
        "bind: r0, p0",
        "no response: r0, p0",
        "bind: r0, p0",
        "store: p0",
    )


@pytest.mark.parametrize(("step", "name"), STEPS.items())
def test_the_code_of_each_step_exists(step: str, name: str) -> None:
    """If it was renamed, name it in the model. If it does something else now, change the model as well."""
    assert resolve_name(name), step
