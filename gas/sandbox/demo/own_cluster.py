"""The demo of a user's own cluster: nodes and bound pods are put up as they are, the waiting pods are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from gas.sandbox.api.failure import ApiFailure
from gas.sandbox.api.verbs import Api
from gas.sandbox.demo.manifests import BadManifest, Manifests, NodeManifest, PodManifest
from gas.sandbox.demo.narration import Narration, counted
from gas.sandbox.demo.stage import create_node, create_pod, running_stage
from gas.sandbox.scheduler.scheduler import NAME as SCHEDULER

QUIET_SECONDS = 1.0
"""Without any news for so long after every pod was tried, nothing more is to come."""

PATIENCE = 300.0
"""Seconds after which no more is waited for."""

Manifest = TypeVar("Manifest", NodeManifest, PodManifest)


async def show_cluster(console: Console, file: Path, manifests: Manifests, flags: Sequence[str]) -> bool:
    """Tell where the waiting pods would go, in kube-scheduler's order: by priority, then the oldest first.

    Answers whether every object of the file could be used; what is wrong with the others is told.
    Raises BadManifest when there is no node, and ProcessEnded, also within an ExceptionGroup.
    """
    if not manifests.nodes:
        wanted = "it should be what `kubectl get nodes,pods -A -o yaml` writes"
        raise BadManifest("\n".join([f"{file} holds no node that can be used; {wanted}", *manifests.unusable]))
    bound = [pod for pod in manifests.pods if pod.spec.node_name and not pod.is_over]
    waiting = sorted((pod for pod in manifests.pods if not pod.spec.node_name and not _why_not_tried(pod)), key=_turn)
    narration = Narration(console)
    narration.say(
        f"{file}: {counted(len(manifests.nodes), 'node')}, {counted(len(bound), 'pod')} on them, {len(waiting)} waiting"
        f"{_not_looked_at(manifests)}"
    )
    narration.say("Nothing runs here: the nodes say what the file says, and pods get their node and cards on paper.")
    for fault in manifests.unusable:
        narration.warn(f"left out: {fault}")
    refused: list[NodeManifest | PodManifest] = []

    def attempt(create: Callable[[Manifest], None], given: Manifest) -> bool:
        try:
            create(given)
        except ApiFailure as failure:
            refused.append(given)
            kind = "Node" if isinstance(given, NodeManifest) else "Pod"
            narration.warn(f"left out: {file}, {kind} {given.name}: {failure}")
            return False
        return True

    def set_up(api: Api) -> None:
        for node in manifests.nodes:
            attempt(partial(create_node, api), node)
        for pod in bound:
            attempt(partial(create_pod, api), pod)

    async with running_stage(narration, set_up, flags) as stage:
        await stage.tell_troubles()
        for sentence in _limits(manifests.nodes, bound, waiting):
            narration.warn(sentence)
        submitted, all_tried = 0, True
        for pod in waiting:
            if attempt(stage.submit, pod) and all_tried:
                submitted += 1
                # One after the other: a scheduler that lists them gets them by name, not in their order.
                all_tried = await stage.until(partial(_are_tried, narration, submitted), patience=PATIENCE)
        await stage.until(partial(_are_tried, narration, submitted), quiet=QUIET_SECONDS, patience=PATIENCE)
    if not all_tried:
        narration.warn(f"not every pod was tried within {PATIENCE:g} seconds")
    narration.sum_up("Where the waiting pods would go", show_times=False)
    return not (manifests.unusable or refused)


def _are_tried(narration: Narration, count: int) -> bool:
    return sum(story.is_told for story in narration.newcomers) >= count


def _not_looked_at(manifests: Manifests) -> str:
    counts = Counter({f"{kind} object": count for kind, count in manifests.ignored.items()})
    counts.update(why for pod in manifests.pods if (why := _why_not_tried(pod)))
    named = [counted(count, noun) for noun, count in counts.items()]
    return f"; not looked at: {', '.join(named)}" if named else ""


def _why_not_tried(pod: PodManifest) -> str:
    """The noun for a pod that needs no node, or gets none from kube-scheduler; empty for the others."""
    if pod.is_over:
        return "ended pod"
    if pod.spec.node_name:
        return ""
    if pod.metadata.deletion_timestamp is not None:
        return "deleted pod"
    other = pod.spec.scheduler_name
    return f"{other} pod" if other and other != SCHEDULER else ""


def _turn(pod: PodManifest) -> tuple[int, str]:
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp or ""


def _limits(nodes: Sequence[NodeManifest], bound: Sequence[PodManifest], waiting: Sequence[PodManifest]) -> list[str]:
    """What the answer leaves out of account, as sentences."""
    names = {node.name for node in nodes}
    sentences = []
    for name, count in Counter(pod.spec.node_name for pod in bound if pod.spec.node_name not in names).items():
        sentences.append(f"{counted(count, 'pod')} on {name}, a node that the file does not hold")
    not_heeded = [
        (sum(node.keeps_pods_away for node in nodes), "node", "taints"),
        (sum(pod.spec.affinity is not None for pod in waiting), "waiting pod", "affinity"),
        (sum(bool(pod.spec.topology_spread_constraints) for pod in waiting), "waiting pod", "topology spread"),
    ]
    counts = [f"{what} of {counted(count, noun)}" for count, noun, what in not_heeded if count]
    if counts:
        sentences.append(f"this scheduler knows sums, node selectors and cordons only; not heeded: {', '.join(counts)}")
    return sentences
