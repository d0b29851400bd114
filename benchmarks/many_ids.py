"""The time that kubelet waits for the plugin where an id stands for a unit of memory, and the memory of so many ids."""

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.plugin import TIME_GOAL, Times, bare_plugin, running_plugin
from benchmarks.plugin_kubelet import CONTAINER, NAMESPACE, NODE, PATIENCE, Kubelet, PluginConnection, waiting_pod
from benchmarks.processes import MB, resident_bytes
from benchmarks.results import Figure, Results
from gas.cluster.objects import MERGE_PATCH
from gas.plugin.kubelet.device_server import REPLY_WITHIN
from gas.values.amounts import MemoryUnit
from gas.values.cards import Card
from gas.vocabularies.aliyun.names import GPU_MEM
from sandbox.api.kinds import NODES, PODS
from sandbox.api.server import ApiServer
from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus, write_tree

CARDS = 2
UNITS = 16_000
"""MiB of a card, and so its ids."""

RUNNING, UNITS_OF_RUNNING = 20, 400
"""Pods that hold a quarter of all ids."""

ROUNDS = 60
WARM_UP = 5
SETTLE = 0.05
"""Seconds until a new pod has reached the plugin."""


@dataclass(frozen=True, slots=True)
class Case:
    """The pods that wait for devices when kubelet calls the plugin; kubelet has admitted one of them.

    units  that each of them asks for
    """

    what: str
    units: int


CASES = (
    Case("a pod of 8,138 ids", units=8138),
    Case("a pod of 100 ids", units=100),
)


def many_ids() -> Results:
    """Measure both calls with 32,000 ids in kubelet's list, and the plugin's memory with and without them."""
    times, late, (ours, intel) = asyncio.run(_measure())
    figures = [
        Figure.medians(f"{method}, {case.what}, median", each.ours, each.bare, TIME_GOAL)
        for (case, method), each in times.items()
    ]
    calls = len(CASES) * ROUNDS
    figures += [
        Figure(f"preferences later than {REPLY_WITHIN:g} s, of {calls}", late, unit=""),
        Figure("resident memory; other: with Intel's words only", ours, intel, unit="MB"),
    ]
    title = (
        f"{CARDS * UNITS:,} ids on {CARDS} cards, of which {RUNNING} pods hold {RUNNING * UNITS_OF_RUNNING:,};"
        f" {ROUNDS} calls of each method in each case, in turn"
    )
    return Results("many-ids", title, figures, other="bare plugin")


class _Bench:
    """A node with a kubelet, both plugins and the pods that hold ids."""

    def __init__(self, server: ApiServer, kubelet: Kubelet, bare: PluginConnection) -> None:
        self._server = server
        self._kubelet = kubelet
        self._bare = bare
        self._names = (f"pod-{number}" for number in count())
        self._chance = random.Random(1)
        self.late = 0
        """Questions that had no reply in time."""

    def fill(self) -> list[str]:
        """Create the pods that run there, before any plugin is called, and return the ids that they hold."""
        held: list[str] = []
        for number in range(RUNNING):
            card = number % CARDS
            first = number // CARDS * UNITS_OF_RUNNING
            ids = [f"card{card}-{slot}" for slot in range(first, first + UNITS_OF_RUNNING)]
            name = self._create(UNITS_OF_RUNNING, Card(card))
            status = {"status": {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"}}
            self._server.api.patch(PODS, NAMESPACE, name, (MERGE_PATCH, json.dumps(status).encode()), "status")
            self._kubelet.show(NAMESPACE, name, {CONTAINER: ids})
            held += ids
        return held

    async def measure(self, case: Case, free: Sequence[str]) -> dict[tuple[Case, str], Times]:
        prefers, allocates = Times(), Times()
        card = Card(1)
        name = self._create(case.units, card)
        for turn in range(WARM_UP + ROUNDS):
            await asyncio.sleep(SETTLE)
            self._kubelet.show(NAMESPACE, name, {CONTAINER: []})
            await asyncio.to_thread(self._ask, case, card, free, prefers, allocates)
            self._server.api.delete(PODS, NAMESPACE, name, {"gracePeriodSeconds": 0})
            self._kubelet.drop(NAMESPACE, name)
            card = Card(turn % CARDS)
            name = self._create(case.units, card)
            if turn < WARM_UP:
                prefers, allocates = Times(), Times()
        self._server.api.delete(PODS, NAMESPACE, name, {"gracePeriodSeconds": 0})
        return {(case, "GetPreferredAllocation"): prefers, (case, "Allocate"): allocates}

    def _ask(self, case: Case, card: Card, free: Sequence[str], prefers: Times, allocates: Times) -> None:
        """Call both plugins one after the other, in random order, so that a slow moment affects both."""
        offered = self._chance.sample(free, len(free))
        both = [(self._kubelet.plugin, prefers.ours, allocates.ours), (self._bare, prefers.bare, allocates.bare)]
        self._chance.shuffle(both)
        for plugin, prefer_times, allocate_times in both:
            preferred = plugin.prefer(offered, case.units)
            if not preferred.ids:
                self.late += 1  # kubelet would choose for itself
            given = plugin.allocate(list(preferred.ids or offered[: case.units]))
            prefer_times.append(preferred.seconds)
            allocate_times.append(given.seconds)
            if (
                plugin is not self._bare
                and preferred.ids
                and {path for path in given.ids if "/card" in path} != {f"/dev/dri/{card}"}
            ):
                raise RuntimeError(f"{case.what}: expected {card}, found {sorted(given.ids)}")

    def _create(self, units: int, card: Card) -> str:
        name = next(self._names)
        self._server.api.create(PODS, NAMESPACE, waiting_pod(name, units, [card], resource=GPU_MEM))
        return name


async def _measure() -> tuple[dict[tuple[Case, str], Times], int, tuple[float, float]]:
    """Return the times of each call, how many preferences came late, and the resident memory with and without ids."""
    with TemporaryDirectory(prefix="gas-") as name:
        directory = Path(name)
        write_tree(directory / "tree", fake_gpus(replace(FLEX_170, memory=UNITS * MemoryUnit.MIB.bytes), CARDS))
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(ApiServer())
            server.api.create(NODES, None, {"metadata": {"name": NODE}})
            kubelet = Kubelet(directory / "kubelet", GPU_MEM)
            stack.enter_context(kubelet.serving())
            await stack.enter_async_context(bare_plugin(directory))
            bare = await asyncio.to_thread(PluginConnection, directory / "bare.sock")
            stack.callback(bare.channel.close)
            bench = _Bench(server, kubelet, bare)
            held = frozenset(bench.fill())
            stack.callback(kubelet.hang_up)
            async with running_plugin(directory, server.url, "--vocabularies=intel,aliyun") as plugin:
                if not await asyncio.to_thread(kubelet.watched.wait, PATIENCE):
                    raise RuntimeError(f"the plugin has not registered after {PATIENCE:g} s")
                free = [id_ for id_ in kubelet.devices if id_ not in held]
                times: dict[tuple[Case, str], Times] = {}
                for case in CASES:
                    times |= await bench.measure(case, free)
                ours = resident_bytes(plugin.pid) / MB
            async with running_plugin(directory, server.url) as plugin:
                await asyncio.sleep(10)
                return times, bench.late, (ours, resident_bytes(plugin.pid) / MB)
