"""A sample of the simulation's histories on the real control plane, under the same laws."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count, islice

import pytest

from simulation.plans import make_plan
from tests.e2e.cluster import Cluster
from tests.e2e.replay import FAULTS, Replay

SEEDS = int(os.environ.get("GAS_REPLAY_SEEDS", "4"))
"""``GAS_REPLAY_SEEDS=50`` replays more of them."""

LEAST_FAULTS = 2
"""Kinds of faults in each history."""


def sample() -> Iterator[int]:
    """Yield the seeds whose histories have several faults that can be carried out here.

    Pods have no priorities here, since the API server takes them from objects that the simulation does not have, and no
    features.
    """
    for seed in count(1):
        plan = make_plan(seed)
        if len(FAULTS & {step.act for step in plan.steps}) >= LEAST_FAULTS and not (
            plan.preemption or plan.mixed or plan.features
        ):
            yield seed


# asyncio leaves a connection to the collector whose server is killed during its TLS handshake, as histories do.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*(socket|Transport):pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", list(islice(sample(), SEEDS)))
def test_every_law_holds_on_the_real_control_plane(cluster: Cluster, seed: int) -> None:
    replay = Replay(cluster, make_plan(seed))
    replay.run()
    print(f"\nseed {seed}: {dict(replay.figures)}; not carried out: {dict(replay.left_out)}")
    assert replay.figures["bindings with cards"] > 0
