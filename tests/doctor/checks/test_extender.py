"""The check of the extender: whether it runs, is ready and is called over TLS."""

from __future__ import annotations

from typing import Any

import pytest

from gas.doctor.snapshot import Reply, ServiceSeen
from tests.doctor.snapshots import NOT_SEEN, call, faults, program_pod, scheduler

EXTENDER = program_pod("gas-0", "gas:1", "gas-extender", node="cp")
ORIGINAL = program_pod("original-0", "docker.io/intel/gpu-extender", "/extender", node="cp")


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        pytest.param({"pods": (), "calls": ()}, "problem", "no pod runs an extender", id="none-runs"),
        pytest.param(
            {"pods": (program_pod("gas-0", "gas:1", "gas-extender", ready=False),)},
            "problem",
            "none is ready",
            id="not-ready",
        ),
        pytest.param({"pods": (ORIGINAL,)}, "warning", "instead of gas-extender", id="the-original-runs"),
        pytest.param({"pods": (EXTENDER, ORIGINAL)}, "warning", "beside gas-extender", id="both-run"),
        pytest.param(
            {
                "pods": (EXTENDER,),
                "calls": (call(connected="", failure="127.0.0.1:9001: Connection refused", reply=None),),
            },
            "problem",
            "Connection refused",
            id="not-reached-from-the-scheduler's-machine",
        ),
        pytest.param(
            {
                "pods": (EXTENDER,),
                "calls": (call(connected="", failure="x", reply=None, scheduler=scheduler(is_here=False)),),
            },
            "unknown",
            "from another machine",
            id="not-reached-from-elsewhere",
        ),
        pytest.param({"calls": (call(reply=Reply(error="EOF")),)}, "problem", "does not decide", id="turned-away"),
        pytest.param(
            {"calls": (call(reply=Reply(error="the ledger is not complete yet")),)}, "problem", "ledger", id="no-ledger"
        ),
        pytest.param(
            {"calls": (call(reply=None, client=NOT_SEEN, not_asked="x"),)},
            "unknown",
            "no filter request",
            id="no-certificate",
        ),
        pytest.param(
            {"calls": (call(service=ServiceSeen(name="s", namespace="n", exists=False)),)},
            "problem",
            "does not exist",
            id="no-service",
        ),
        pytest.param(
            {"calls": (call(service=ServiceSeen(name="s", namespace="n", exists=True)),)},
            "problem",
            "no ready extender",
            id="no-endpoint",
        ),
    ],
)
def test_an_extender_that_does_not_work_is_reported(changes: dict[str, Any], level: str, words: str) -> None:
    ((found, text),) = faults("extender", **changes)
    assert found == level
    assert words in text


def test_a_ready_extender_is_ok() -> None:
    assert faults("extender", pods=(EXTENDER,)) == []
