"""Show the demo of a user's own cluster: nodes and bound pods are created as they are, waiting pods are scheduled."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from gas.inspection.objects import InspectedNode, InspectedPod, not_checked
from sandbox.api.client import Object
from sandbox.api.failure import ApiFailure
from sandbox.api.kinds import NODES
from sandbox.api.verbs import Api
from sandbox.demo.manifests import BadManifest, Manifest, Manifests
from sandbox.demo.output import Output, counted
from sandbox.demo.sandbox import create_pod, running_sandbox
from sandbox.programs import running_page
from sandbox.scheduler.scheduler import NAME as SCHEDULER

QUIET_SECONDS = 1.0  # seconds without a change, after every pod was tried, after which the demo ends
PATIENCE = 300.0  # seconds after which the demo ends in any case


async def show_cluster(
    console: Console, file: Path, manifests: Manifests, flags: Sequence[str], *, page: bool = False
) -> bool:
    """Print where the waiting pods would go. They are tried in kube-scheduler's order: by priority, then by age.

    page  whether to serve the page afterwards, until cancelled

    Returns whether every object of the file could be used; a warning is printed for each of the others.
    Raises BadManifest if there is no node, and ProcessEnded, also in an ExceptionGroup.
    """
    if not manifests.nodes:
        wanted = "write the file with `kubectl get nodes,pods -A -o yaml`"
        raise BadManifest("\n".join([f"{file}: no usable node in this file; {wanted}", *manifests.unusable]))
    bound = [pod for pod in manifests.pods if pod.typed.node_name and not pod.typed.is_over]
    shares = _waiting_sharepods(manifests)
    if shares:
        flags = [*flags, "--vocabularies=intel,kubeshare", "--sharepods"]
    unbound = [pod for pod in manifests.pods if not pod.typed.node_name]
    waiting = [pod for pod in (*unbound, *shares) if not _kind_if_ignored(pod.typed)]
    waiting.sort(key=lambda pod: (-pod.typed.priority, pod.typed.metadata.creation_timestamp or ""))
    output = Output(console)
    output.print_line(
        f"{file}: {counted(len(manifests.nodes), 'node')}, {counted(len(bound), 'pod')} with a node, "
        f"{counted(len(waiting), 'waiting pod')}{_ignored(manifests)}"
    )
    output.print_line("Nothing runs: pods are only bound to the nodes of the file and get cards written on them.")
    for fault in manifests.unusable:
        output.print_warning(f"ignored: {fault}")
    refused: list[str] = []

    def attempt(create: Callable[[Object], object], given: Object, name: str) -> bool:
        try:
            create(given)
        except ApiFailure as failure:
            refused.append(name)
            output.print_warning(f"ignored: {file}, {name}: {failure}")
            return False
        return True

    def set_up(api: Api) -> None:
        for node in manifests.nodes:
            attempt(partial(api.create, NODES, None), node.written, f"Node {node.typed.name}")
        for pod in bound:
            attempt(partial(create_pod, api), pod.written, f"Pod {pod.typed.key}")

    async with running_sandbox(output, set_up, flags) as sandbox:
        await sandbox.print_problems()
        for sentence in _limitations(manifests.nodes, bound, waiting):
            output.print_warning(sentence)
        submitted, all_tried = 0, True
        for pod in waiting:
            if attempt(sandbox.submit, pod.written, f"Pod {pod.typed.key}") and all_tried:
                submitted += 1
                # One after another: a scheduler that lists the pods would get them sorted by name.
                all_tried = await sandbox.until(partial(_are_tried, output, submitted), patience=PATIENCE)
        await sandbox.until(partial(_are_tried, output, submitted), quiet=QUIET_SECONDS, patience=PATIENCE)
        if not all_tried:
            output.print_warning(f"some pods were not tried within {PATIENCE:g} seconds")
        output.print_summary("Where the waiting pods would go", show_times=False)
        if page:
            async with running_page(sandbox.kubeconfig, sandbox.extender, flags) as (url, process):
                console.print(f"\nThe page: {url}   (Ctrl-C ends the demo)\n")
                await process.until_it_ends()
    return not (manifests.unusable or refused)


def _are_tried(output: Output, count: int) -> bool:
    return sum(history.is_printed for history in output.submitted) >= count


def _ignored(manifests: Manifests) -> str:
    counts = Counter({f"{kind} object": count for kind, count in manifests.ignored.items()})
    counts += Counter({"SharePod object": len(manifests.sharepods) - len(_waiting_sharepods(manifests))})
    counts.update(why for pod in manifests.pods if (why := _kind_if_ignored(pod.typed)))
    named = [counted(count, noun) for noun, count in counts.items()]
    return f"; ignored: {', '.join(named)}" if named else ""


def _waiting_sharepods(manifests: Manifests) -> list[Manifest[InspectedPod]]:
    """Return the SharePods that have neither a node nor a pod in the file."""
    pods = {pod.typed.key for pod in manifests.pods}
    return [each for each in manifests.sharepods if not each.typed.node_name and each.typed.key not in pods]


def _kind_if_ignored(pod: InspectedPod) -> str:
    """Return a noun for a pod that needs no node or that this scheduler does not try; empty for other pods."""
    if pod.is_over:
        return "ended pod"
    if pod.node_name:
        return ""
    if pod.metadata.deletion_timestamp is not None:
        return "deleted pod"
    if pod.spec.scheduling_gates:
        return "gated pod"
    other = pod.spec.scheduler_name
    return f"{other} pod" if other and other != SCHEDULER else ""


def _limitations(
    nodes: Sequence[Manifest[InspectedNode]],
    bound: Sequence[Manifest[InspectedPod]],
    waiting: Sequence[Manifest[InspectedPod]],
) -> list[str]:
    """Return sentences about what the result does not take into account."""
    names = {node.typed.name for node in nodes}
    sentences = []
    for name, count in Counter(pod.typed.node_name for pod in bound if pod.typed.node_name not in names).items():
        sentences.append(f"{counted(count, 'pod')} on node {name}, which is not in the file")
    ignored = Counter(rule for pod in waiting for rule in not_checked(pod.typed))
    if counts := [f"{rule} of {counted(count, 'waiting pod')}" for rule, count in ignored.items()]:
        sentences.append(f"not looked at: {', '.join(counts)}")
    return sentences
