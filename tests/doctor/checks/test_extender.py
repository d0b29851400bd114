"""The check of the extender: whether it runs, is ready and is called over TLS."""

from __future__ import annotations

from typing import Any

import pytest

from gas.doctor.snapshot import Reply, ServiceSeen
from tests.doctor.snapshots import CASE, NOT_SEEN, assert_case, call, case, fine, program_pod, scheduler

EXTENDER = program_pod("gas-0", "gas:1", "gas-extender", node="cp")
ORIGINAL = program_pod("original-0", "docker.io/intel/gpu-extender", "/extender", node="cp")


@pytest.mark.parametrize(
    CASE,
    [
        case("none-runs", "problem", "no pod runs an extender", pods=(), calls=()),
        case(
            "not-ready", "problem", "none is ready", pods=(program_pod("gas-0", "gas:1", "gas-extender", ready=False),)
        ),
        case("the-original-runs", "warning", "instead of gas-extender", pods=(ORIGINAL,)),
        case("both-run", "warning", "beside gas-extender", pods=(EXTENDER, ORIGINAL)),
        case(
            "not-reached-from-the-scheduler's-machine",
            "problem",
            "Connection refused",
            pods=(EXTENDER,),
            calls=(call(connected="", failure="127.0.0.1:9001: Connection refused", reply=None),),
        ),
        case(
            "not-reached-from-elsewhere",
            "unknown",
            "from another machine",
            pods=(EXTENDER,),
            calls=(call(connected="", failure="x", reply=None, scheduler=scheduler(is_here=False)),),
        ),
        case("turned-away", "problem", "does not decide", calls=(call(reply=Reply(error="EOF")),)),
        case("no-ledger", "problem", "ledger", calls=(call(reply=Reply(error="the ledger is not complete yet")),)),
        case(
            "no-certificate", "unknown", "no filter request", calls=(call(reply=None, client=NOT_SEEN, not_asked="x"),)
        ),
        case(
            "no-service",
            "problem",
            "does not exist",
            calls=(call(service=ServiceSeen(name="s", namespace="n", exists=False)),),
        ),
        case(
            "no-endpoint",
            "problem",
            "no ready extender",
            calls=(call(service=ServiceSeen(name="s", namespace="n", exists=True)),),
        ),
        fine("ready", pods=(EXTENDER,)),
    ],
)
def test_the_extender(changes: dict[str, Any], level: str, words: str) -> None:
    assert_case("extender", changes, level, words)
