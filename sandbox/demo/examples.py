"""Show the demo of the examples: their pods are scheduled to nodes with fake cards, run for a while, and end."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from gas.values.errors import GasError
from sandbox.api.client import Object
from sandbox.api.kinds import NODES
from sandbox.api.verbs import Api
from sandbox.demo.manifests import BadManifest, Manifests, read_manifests
from sandbox.demo.output import Output, counted
from sandbox.demo.picture import Run
from sandbox.demo.sandbox import Sandbox, running_sandbox
from sandbox.hardware.described_node import bare_node, hardware_of, missing_fields
from sandbox.kubelet.containers import KubeletPace
from sandbox.programs import running_page

RUN_SECONDS = 5.0

PAUSE = 0.6  # seconds between two files, so that people can follow the output
DESCRIBED_WITHIN = 120.0  # Seconds for plugins to start, find their cards and write them. A busy machine needs many.
PATIENCE = 120.0  # seconds from the last file to the end of the demo, even if pods are still running


class NodeNotDescribed(GasError):
    """The plugins have not written everything that their nodes must show."""

    def __init__(self, missing: Mapping[str, Sequence[str]]) -> None:
        nodes = "; ".join(f"{node}: {', '.join(fields)}" for node, fields in missing.items())
        super().__init__(f"the plugins have not written these labels and resources in {DESCRIBED_WITHIN:g} s: {nodes}")


async def show_examples(
    console: Console, directory: Path, flags: Sequence[str], *, run: float = RUN_SECONDS, pause: float = PAUSE
) -> Run:
    """Submit the pods of each file in ``directory`` to the nodes of ``directory/nodes`` and print what happens.

    The pods run for ``run`` seconds, and files follow each other after ``pause`` seconds. Raises BadManifest and
    AmbiguousDriver; ApiFailure, NodeNotDescribed and ProcessEnded, also in an ExceptionGroup.
    """
    nodes, files = _read_examples(directory)
    output = Output(console, pods_run=True)

    hardware = {name: hardware_of(node) for name, node in nodes.items()}
    pace = KubeletPace(init=min(0.2, run), run=run, status=0.3)
    output.print_line(f"{counted(len(nodes), 'node')}; each pod runs for {run:g} seconds.")
    output.print_line(
        "The GPUs are fake: generated files in the form of sysfs. The demo does not use this machine's GPUs."
    )
    async with running_sandbox(output, partial(_create_nodes, nodes), flags, hardware=hardware, pace=pace) as sandbox:
        await _until_described(sandbox, nodes)
        _print_nodes(output, nodes, sandbox)
        submitted = 0
        for file, pods in files:
            output.print_heading(f"{directory.name}/{file.name}", _first_sentence(file))
            for pod in pods:
                sandbox.submit(pod)
            submitted += len(pods)
            await asyncio.sleep(pause)
        all_ended = await sandbox.until(
            lambda: (
                len(output.histories) == submitted and all(each.ended is not None for each in output.histories.values())
            ),
            patience=PATIENCE,
        )
    if not all_ended:
        output.print_warning(f"some pods are still running {PATIENCE:g} seconds after the last one was submitted")
    output.print_summary("Where the pods went", show_times=True)
    return Run(list(output.histories.values()), hardware)


async def show_page(console: Console, directory: Path, flags: Sequence[str]) -> None:
    """Run the same examples and the page until cancelled, with pods that do not end. Raises as `show_examples`."""
    nodes, files = _read_examples(directory)
    output = Output(Console(quiet=True), pods_run=True)  # the page shows it, and its address stays in sight

    hardware = {name: hardware_of(node) for name, node in nodes.items()}
    pace = KubeletPace(init=0.2, run=None, status=0.3)
    async with (
        running_sandbox(output, partial(_create_nodes, nodes), flags, hardware=hardware, pace=pace) as sandbox,
        running_page(sandbox.kubeconfig, sandbox.extender, flags) as (url, page),
    ):
        await _until_described(sandbox, nodes)
        console.print(f"\nThe page: {url}   (Ctrl-C ends the demo)\n")
        for _, pods in files:
            for pod in pods:
                sandbox.submit(pod)
            await asyncio.sleep(PAUSE)
        await page.until_it_ends()


def _create_nodes(nodes: Mapping[str, Object], api: Api) -> None:
    """Create nodes without what their plugins and kubelets will write on them. Raises ApiFailure."""
    for node in nodes.values():
        api.create(NODES, None, bare_node(node))


async def _until_described(sandbox: Sandbox, nodes: Mapping[str, Object]) -> None:
    """Wait until every plugin has registered with its kubelet and written its node. Raises NodeNotDescribed."""

    def missing() -> dict[str, list[str]]:
        fields = {name: missing_fields(node, sandbox.nodes.get(name, {"metadata": {}})) for name, node in nodes.items()}
        return {name: missing for name, missing in fields.items() if missing}

    if not await sandbox.until(lambda: not missing(), patience=DESCRIBED_WITHIN):
        raise NodeNotDescribed(missing())


def _print_nodes(output: Output, nodes: Mapping[str, Object], sandbox: Sandbox) -> None:
    output.print_heading("The nodes", "Each device plugin has found its cards and described them on its node:")
    for name, node in nodes.items():
        found, before = sandbox.nodes[name], bare_node(node)["metadata"].get("labels") or {}
        labels = {key: text for key, text in found["metadata"]["labels"].items() if key not in before}
        output.print_node(name, labels, found["status"]["allocatable"])


def _read_examples(directory: Path) -> tuple[dict[str, Object], list[tuple[Path, list[Object]]]]:
    """Read the nodes of all files in ``nodes/`` and each file of pods, the worked example first. Raises BadManifest."""
    nodes = {
        node.typed.name: node.written
        for file in sorted(directory.glob("nodes/*.yaml"))
        for node in _read_faultless(file).nodes
    }
    files = sorted(directory.glob("*.yaml"), key=lambda file: (file.stem != "worked-example", file.name))
    if not nodes or not files:
        raise BadManifest(f"expected files with pods in {directory} and with nodes in {directory / 'nodes'}")
    found = {file: _read_faultless(file) for file in files}
    return nodes, [(file, [each.written for each in (*of.pods, *of.sharepods)]) for file, of in found.items()]


def _read_faultless(file: Path) -> Manifests:
    found = read_manifests(file)
    if found.unusable:
        raise BadManifest("\n".join(found.unusable))
    return found


def flags_of(directory: Path) -> list[str]:
    """Return the extender's flags for a directory of examples, the lines of its file ``flags``. Raises BadManifest."""
    file = directory / "flags"
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise BadManifest(f"{file}: cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _first_sentence(file: Path) -> str:
    comment = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".:")
