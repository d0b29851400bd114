"""Traces of GPU pods: read from CSV files, or generated, and the order in which their pods arrive.

The files and the protocol are those of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (USENIX ATC'23): a list of nodes, and lists of pods that together ask for about as many GPUs as the
nodes have. Pods arrive one after the other and stay.
"""

import csv
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gas.values.errors import GasError

WHOLE = 1000
"""Thousandths of a card."""

NODES = "*node_list_gpu_node.csv"
PODS = "*pod_list_*.csv"
"""Names of the files; what stands for the last ``*`` is the name of the trace."""

DEMAND = 1.3
"""The GPUs that all pods of a run ask for, as a part of those that there are."""


class TraceNode(NamedTuple):
    """A node: thousandths of cores, MiB, cards."""

    name: str
    cpu: int
    memory: int
    cards: int
    model: str


class TracePod(NamedTuple):
    """A pod: thousandths of cores, MiB, cards, thousandths of each, and the models that it may use (all if empty)."""

    cpu: int
    memory: int
    cards: int
    milli: int
    models: frozenset[str] = frozenset()

    @property
    def gpu(self) -> int:
        return self.cards * self.milli

    def may_use(self, model: str) -> bool:
        return not self.models or model in self.models


@dataclass(frozen=True)
class Trace:
    """Nodes and pods, in the order of their names."""

    name: str
    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]

    @property
    def capacity(self) -> int:
        return sum(node.cards for node in self.nodes) * WHOLE


@dataclass(frozen=True)
class Run:
    """One order of arrival.

    ranks  of the nodes; of nodes with equal scores the one with the lowest rank is taken
    """

    trace: Trace
    seed: int
    pods: Sequence[TracePod]
    ranks: Sequence[int]


def read_traces(directory: Path) -> list[Trace]:
    """Read all traces of a folder. Raises GasError if it has no list of nodes."""
    nodes = [
        TraceNode(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
        for row in _rows(_only(directory, NODES))
    ]
    nodes.sort()
    traces = []
    for file in sorted(directory.glob(PODS)):
        rows = sorted(_rows(file), key=lambda row: row["name"])
        traces.append(Trace(file.stem.partition("pod_list_")[2], nodes, [_pod(row) for row in rows]))
    return traces


def generated_trace() -> Trace:
    """Make a small trace of the same shape: nodes have from 8 to 52 cores for each card, many pods share cards.

    The cores that a pod asks for hardly depend on its share of a card, as in the published traces: a pod with a large
    share may need few cores, and one with a small share many.
    """
    chance = random.Random(1)
    kinds = [(96, 384, 8, "large")] * 72 + [(104, 512, 2, "rich")] * 48
    kinds += [(32, 128, 4, "poor")] * 12 + [(8, 64, 1, "tiny")] * 8
    nodes = [
        TraceNode(f"node-{number:04}", cpu * 1000, memory * 1024, cards, model)
        for number, (cpu, memory, cards, model) in enumerate(kinds)
    ]
    sizes = (810, 810, 810, 470, 470, 320, 650, 230, 460, 590, 160, 550, 220)
    pods: list[TracePod] = []
    wanted = sum(node.cards for node in nodes) * WHOLE * 0.98
    while wanted > 0:
        kind = chance.random()
        if kind < 0.13:
            pod = TracePod(chance.choice((8000, 12_500, 16_500, 32_000)), 24_576, 0, 0)
        elif kind < 0.51:
            pod = TracePod(chance.choice((2000, 3000, 4000, 8000, 12_000)), 8192, 1, chance.choice(sizes))
        elif kind < 0.99:
            cpu = chance.choice((3000, 4000, 8000, 10_000, 11_000, 11_000, 12_000, 16_000, 19_000))
            pod = TracePod(cpu, 16_384, 1, WHOLE)
        else:
            cards = chance.choice((2, 4, 8, 8))
            pod = TracePod(chance.choice((8000, 11_000)) * cards, 32_768 * cards, cards, WHOLE)
        pods.append(pod)
        wanted -= pod.gpu
    return Trace("generated", nodes, pods)


def run_of(trace: Trace, seed: int) -> Run:
    """Shuffle the pods, and add some of them again or leave some out until they ask for DEMAND times the GPUs."""
    chance = random.Random(seed)
    pods = list(trace.pods)
    chance.shuffle(pods)
    limit = DEMAND * trace.capacity
    asked = sum(pod.gpu for pod in pods)
    while asked > limit:
        asked -= pods.pop(chance.randrange(len(pods))).gpu
    while (pod := chance.choice(trace.pods)).milli + asked <= limit:
        asked += pod.gpu
        pods.append(pod)
    ranks = list(range(len(trace.nodes)))
    chance.shuffle(ranks)
    return Run(trace, seed, pods, ranks)


def _only(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        raise GasError(
            f"{directory}: expected one file {pattern}, found {len(found)}; name the folder with the CSV files"
        )
    return found[0]


def _rows(file: Path) -> Iterable[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def _pod(row: dict[str, str]) -> TracePod:
    cards = int(row["num_gpu"])
    return TracePod(
        int(row["cpu_milli"]),
        int(row["memory_mib"]),
        cards,
        int(row["gpu_milli"]) if cards else 0,
        frozenset(filter(None, (row.get("gpu_spec") or "").split("|"))),
    )
