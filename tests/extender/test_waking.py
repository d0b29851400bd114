"""Refused pods are woken when cards become free: one patch for many releases, and no release is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.errors import GasError
from gas.extender.metrics import Metrics
from gas.extender.waking import Waker
from tests.extender.eventually import beside, eventually, turns

NEVER = 3600.0


class Waking:
    """A waker whose patches a test answers.

    patched  the nodes asked about, in order
    looks    how often it looked whether somebody waits
    answers  what becomes of a node's patch, True when not named
    """

    def __init__(self, *, pause: float = 0.0, retry_pause: float = 0.0) -> None:
        self.patched: list[str] = []
        self.annotations: list[Mapping[str, str]] = []
        self.answers: dict[str, bool | GasError] = {}
        self.somebody_waits = True
        self.looks = 0
        self.go = asyncio.Event()
        self.go.set()
        self.metrics = Metrics("1")
        self.waker = Waker(
            self._patch,
            self.metrics,
            anybody_waits=self._anybody_waits,
            pause=pause,
            retry_pause=retry_pause,
        )

    def _anybody_waits(self) -> bool:
        self.looks += 1
        return self.somebody_waits

    async def _patch(self, node: str, annotations: Mapping[str, str]) -> bool:
        self.patched.append(node)
        self.annotations.append(annotations)
        await self.go.wait()
        answer = self.answers.get(node, True)
        if isinstance(answer, GasError):
            raise answer
        return answer

    def wakes(self) -> float | None:
        return self.metrics.registry.get_sample_value("gas_extender_wakes_total")


async def test_a_release_patches_its_node() -> None:
    waking = Waking()
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        await eventually(lambda: waking.wakes() == 1)
        await turns()
    assert waking.looks == 1, "it sleeps until the next release"
    assert waking.patched == ["n1"]
    (annotations,) = waking.annotations
    assert annotations["gas-released"].isdigit()


async def test_without_a_release_nothing_is_patched() -> None:
    waking = Waking()
    async with beside(waking.waker.run()):
        await turns()
    assert not waking.patched


async def test_when_nobody_waits_nothing_is_patched() -> None:
    waking = Waking()
    waking.somebody_waits = False
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        await turns()
        waking.somebody_waits = True
        waking.waker.released("n2")
        await eventually(lambda: waking.patched)
    assert waking.patched == ["n2"]


async def test_many_releases_are_one_patch() -> None:
    waking = Waking(pause=NEVER)
    async with beside(waking.waker.run()):
        for number in range(100):
            waking.waker.released(f"n{number}")
        await eventually(lambda: waking.wakes() == 1)
        waking.waker.released("n1")
        await turns()
    assert waking.patched == ["n99"]


async def test_a_release_during_a_patch_is_not_lost() -> None:
    waking = Waking()
    waking.go.clear()
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        await eventually(lambda: waking.patched == ["n1"])
        waking.waker.released("n1")
        waking.go.set()
        await eventually(lambda: waking.wakes() == 2)
    assert waking.patched == ["n1", "n1"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(False, id="gone"),
        pytest.param(ApiRefused(422, "Invalid", "no"), id="refused"),
        pytest.param(Forbidden("Forbidden", "no"), id="forbidden"),
    ],
)
async def test_when_one_node_cannot_be_patched_the_next_one_is(answer: bool | GasError) -> None:
    waking = Waking()
    waking.answers = {"n2": answer}
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        waking.waker.released("n2")
        await eventually(lambda: waking.wakes() == 1)
    assert waking.patched == ["n2", "n1"]


async def test_nodes_that_are_all_gone_are_given_up() -> None:
    waking = Waking()
    waking.answers = {"n1": False}
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        await eventually(lambda: waking.patched)
        await turns()
        assert waking.patched == ["n1"]
        waking.waker.released("n2")
        await eventually(lambda: waking.wakes() == 1)


async def test_while_the_api_server_is_away_it_is_tried_again() -> None:
    waking = Waking(pause=NEVER)
    waking.answers = {"n1": ApiUnavailable("away"), "n2": ApiUnavailable("away")}
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        waking.waker.released("n2")
        await eventually(lambda: len(waking.patched) > 3)
        assert set(waking.patched) == {"n2"}, "one try is enough to know"
        waking.answers.clear()
        await eventually(lambda: waking.wakes() == 1)


async def test_while_the_api_server_is_away_it_is_not_asked_all_the_time() -> None:
    waking = Waking(retry_pause=NEVER)
    waking.answers = {"n1": ApiUnavailable("away")}
    async with beside(waking.waker.run()):
        waking.waker.released("n1")
        await eventually(lambda: waking.patched)
        waking.waker.released("n1")
        await turns()
    assert waking.patched == ["n1"]
