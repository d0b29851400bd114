"""The demo of the examples: their pods are submitted to their nodes, run for a while, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from gas.errors import GasError
from gas.sandbox.api.verbs import Api
from gas.sandbox.demo.manifests import BadManifest, Manifests, NodeManifest, PodManifest, read_manifests
from gas.sandbox.demo.narration import Narration, counted
from gas.sandbox.demo.stage import Stage, create_bare_node, running_stage
from gas.sandbox.hardware.described_node import bare_node, hardware_of, missing_fields
from gas.sandbox.kubelet.containers import KubeletPace

RUN_SECONDS = 5.0
"""How long the pods of the examples run."""

PAUSE = 0.6
"""Seconds between two files, so that the lines can be followed."""

DESCRIBED_WITHIN = 30.0
"""Seconds for the plugins to start, find their cards and write them on their nodes."""

PATIENCE = 120.0
"""Seconds after the last file after which the demo ends, whatever still happens."""


class NodeNotDescribed(GasError):
    """The plugins have not written what their nodes must say."""

    def __init__(self, missing: Mapping[str, Sequence[str]]) -> None:
        nodes = "; ".join(f"{node}: {', '.join(fields)}" for node, fields in missing.items())
        super().__init__(
            f"after {DESCRIBED_WITHIN:g} s the plugins have not written on their nodes what they should: {nodes}"
        )


async def show_examples(
    console: Console, directory: Path, flags: Sequence[str], *, run: float = RUN_SECONDS, pause: float = PAUSE
) -> None:
    """Submit the files of ``directory`` one after the other to the nodes in its ``nodes/`` and tell what happens.

    run    seconds that the pods run
    pause  seconds between two files

    Raises BadManifest, and ApiFailure, NodeNotDescribed or ProcessEnded, also within an ExceptionGroup.
    """
    nodes, files = _read_examples(directory)
    narration = Narration(console)

    def set_up(api: Api) -> None:
        for node in nodes:
            create_bare_node(api, node)

    hardware = {node.name: hardware_of(node.as_object()) for node in nodes}
    pace = KubeletPace(init=min(0.2, run), run=run, status=0.3)
    narration.say(f"{counted(len(nodes), 'node')}; every pod runs for {run:g} seconds.")
    narration.say("The GPUs are fake: files like those that the kernel shows. Nothing of this machine's own is read.")
    async with running_stage(narration, set_up, flags, hardware=hardware, pace=pace) as stage:
        narration.look_inside = stage.inside
        await _until_described(stage, nodes)
        _tell_nodes(narration, nodes, stage)
        submitted = 0
        for file, pods in files:
            narration.chapter(f"{directory.name}/{file.name}", _first_sentence(file))
            for pod in pods:
                stage.submit(pod)
            submitted += len(pods)
            await asyncio.sleep(pause)
        all_ended = await stage.until(
            lambda: len(narration.stories) == submitted and all(each.is_over for each in narration.stories.values()),
            patience=PATIENCE,
        )
    if not all_ended:
        narration.warn(f"some pods have not ended {PATIENCE:g} seconds after the last was submitted")
    narration.sum_up("Where the pods went", show_times=True)


async def _until_described(stage: Stage, nodes: Sequence[NodeManifest]) -> None:
    """Until every plugin has registered with its kubelet and written its node. Raises NodeNotDescribed."""

    def missing() -> dict[str, list[str]]:
        named = {
            node.name: missing_fields(node.as_object(), stage.nodes.get(node.name, {"metadata": {}})) for node in nodes
        }
        return {name: fields for name, fields in named.items() if fields}

    if not await stage.until(lambda: not missing(), patience=DESCRIBED_WITHIN):
        raise NodeNotDescribed(missing())


def _tell_nodes(narration: Narration, nodes: Sequence[NodeManifest], stage: Stage) -> None:
    """What the plugins wrote, and kubelet on their word."""
    narration.chapter("The nodes", "What each plugin has found, and what its node now says")
    for node in nodes:
        found, before = stage.nodes[node.name], bare_node(node.as_object())["metadata"].get("labels") or {}
        labels = {name: text for name, text in found["metadata"]["labels"].items() if name not in before}
        narration.tell_node(node.name, labels, found["status"]["allocatable"])


def _read_examples(directory: Path) -> tuple[list[NodeManifest], list[tuple[Path, list[PodManifest]]]]:
    """The nodes of all files below ``nodes/``, and each file of pods, the worked example first. Raises BadManifest."""
    nodes = [node for file in sorted(directory.glob("nodes/*.yaml")) for node in _faultless(file).nodes]
    files = sorted(directory.glob("*.yaml"), key=lambda file: (file.stem != "worked-example", file.name))
    if not nodes or not files:
        raise BadManifest(f"expected files with pods in {directory} and with nodes in {directory / 'nodes'}")
    return nodes, [(file, _faultless(file).pods) for file in files]


def _faultless(file: Path) -> Manifests:
    found = read_manifests(file)
    if found.unusable:
        raise BadManifest("\n".join(found.unusable))
    return found


def _first_sentence(file: Path) -> str:
    """Of the comment that the file begins with."""
    comment = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".:")
