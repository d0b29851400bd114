"""The model of the protocol keeps its laws, every planted fault breaks one, and its steps are those of the code."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from simulation.protocol.explorer import Explorer
from simulation.protocol.model import PLANTED, STEPS, Rules

TWICE = "a card is given twice"
LAWS = {"a settled reservation is kept": "a pod that fits waits without end"}


def test_every_state_keeps_the_laws() -> None:
    result = Explorer(Rules(), pods=2, nodes=1, replicas=2).explore()
    assert (result.law, result.states) == ("", 6445)
    assert result.steps == set(STEPS)


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
