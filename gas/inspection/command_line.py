"""The commands of ``kubectl gas`` that show cards: what each takes, and how its result is shown."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from gas import commands
from gas.cluster.connection import ApiServer
from gas.commands import program_name, say
from gas.daemon.command import INTERRUPTED, print_text
from gas.inspection.cluster import Cluster, Missing
from gas.inspection.defrag import plan_moves, plan_notes, plan_report
from gas.inspection.fit import explained_report, fit_all, fit_report
from gas.inspection.gather import Where, connected, namespace_of, read_cluster, read_decisions, read_use
from gas.inspection.manifests import UnreadableManifest, one_shape, pod_of_requests, read_manifests
from gas.inspection.node_view import node_data, node_lines
from gas.inspection.objects import InspectedPod, not_checked
from gas.inspection.output import DONE, FORMATS, NOT_SO, UNREACHABLE, Look, as_data, written
from gas.inspection.report import BadExpression, BadSelector, Report, Selector, keep_rows, parse_selector, sort_rows
from gas.inspection.rows import card_report, node_report, pod_report, waste_notes, waste_of
from gas.inspection.why import explain, explanation_data, explanation_lines
from gas.values.errors import GasError
from gas.values.quoted import escaped, listed, quoted

T = TypeVar("T")

WHY_TIMEOUT = 5.0
"""Seconds in which `why` looks for suggestions; the reasons are complete in any case."""

DEFRAG_TIMEOUT = 10.0
"""Seconds in which `defrag` looks for a plan."""

EXIT_CODES = (
    "Exit code 0: done; 1: something does not fit, or does not exist; 2: wrong command line or file; 3: the cluster"
    " cannot be read; 130: interrupted."
)

Runner = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of a command that shows a table."""

    form: str
    sort_by: str
    conditions: tuple[str, ...]

    @property
    def is_for_people(self) -> bool:
        return self.form in ("table", "wide")

    def arranged(self, report: Report) -> Report:
        """Return a report with the rows and in the order that were asked for. Raises BadExpression."""
        return sort_rows(keep_rows(report, self.conditions), self.sort_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSelection:
    """The options that choose nodes and pods."""

    namespace: str
    everywhere: bool
    selector: str
    watch: bool

    @property
    def selected(self) -> Selector | None:
        """The labels that objects must have, None if all are shown. Raises BadSelector."""
        return parse_selector(self.selector) if self.selector else None


def _as_one(name: str, kind: Any, *options: Callable[[Runner], Runner]) -> Callable[[Runner], Runner]:
    """Add options to a command, which gets them as one value of this class."""

    def add_to(command: Runner) -> Runner:
        @wraps(command)
        def with_one(**given: Any) -> int:
            fields = {field: given.pop(field) for field in kind.__dataclass_fields__}
            return command(**given, **{name: kind(**fields)})

        added: Runner = with_one
        for add in reversed(options):
            added = add(added)
        return added

    return add_to


def _form(*forms: str) -> Callable[[Runner], Runner]:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help="Format of the output.",
    )


_WHERE = _as_one(
    "where",
    Where,
    click.option("--kubeconfig", metavar="FILE", default="", help="Kubeconfig with which to reach the cluster."),
    click.option("--context", metavar="NAME", default="", help="Context of the kubeconfig."),
)
_NAMESPACE = click.option("-n", "--namespace", metavar="NAME", default="", help="Namespace of the pods.")
_TABLE = _as_one(
    "table",
    TableOptions,
    _form(*FORMATS),
    click.option(
        "--sort-by", metavar="COLUMN", default="", help="Sort by a column; a hyphen before it reverses the order."
    ),
    click.option(
        "--where",
        "conditions",
        metavar="CONDITION",
        multiple=True,
        help="Show only rows such as health!=ok, model~flex or memory.max>80 (percent booked). May be repeated.",
    ),
)
_SELECTION = _as_one(
    "selection",
    ObjectSelection,
    _NAMESPACE,
    click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the pods of all namespaces."),
    click.option("-l", "--selector", metavar="LABELS", default="", help="Show only objects with these labels."),
    click.option("-w", "--watch", is_flag=True, help="Draw again whenever something changes."),
)


def _command(details: str) -> Callable[[Runner], click.Command]:
    """Define a command that reads the cluster. Errors become a sentence and an exit code."""

    def define(command: Runner) -> click.Command:
        @wraps(command)
        def run(**given: Any) -> int:
            try:
                with _without_collecting():
                    return command(**given)
            except GasError as error:
                say(str(error))
                is_own = isinstance(error, Missing | BadExpression | BadSelector | UnreadableManifest)
                return error.exit_code if is_own else UNREACHABLE
            except KeyboardInterrupt:
                return INTERRUPTED

        defined = commands.command(command.__name__, details, epilog=EXIT_CODES)(_WHERE(run))
        defined.params = [*defined.params[2:], *defined.params[:2]]  # options of all commands come last
        return defined

    return define


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep the garbage collector from walking over a large cluster again and again: a third of a command's time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def look() -> Look:
    """Return how tables are drawn on this output."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return Look(
        width=shutil.get_terminal_size((100, 24)).columns if terminal else None,
        colours=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        unicode=encoding.startswith("utf"),
    )


def _print(text: str, code: int = DONE) -> int:
    return print_text(program_name(), text, exit_code=code, unwritten=UNREACHABLE) if text else code


def _read(where: Where, use: Callable[[ApiServer, Cluster], Awaitable[T]], *, counts_hosts: bool = False) -> T:
    """Read the cluster and use it while the API server is connected."""

    async def read() -> T:
        async with connected(where) as api:
            return await use(api, await read_cluster(api, counts_hosts=counts_hosts))

    return asyncio.run(read())


async def _with_use(api: ApiServer, cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    notes = await read_use(api, cluster)
    return cluster, (*cluster.settings.notes, *notes)


async def _alone(_api: ApiServer, cluster: Cluster) -> Cluster:
    return cluster


def _show(
    where: Where,
    table: TableOptions,
    make: Callable[[Cluster], Report],
    nothing: str,
    *,
    watch: bool,
    counts_hosts: bool = False,
) -> int:
    """Make a report of the cluster, and show it once, or again and again."""

    def prepared(cluster: Cluster) -> Report:
        return table.arranged(make(cluster))

    if watch:
        from gas.inspection.watching import watch_report

        gc.enable()  # unlike other commands, this one runs for long
        return asyncio.run(
            watch_report(where, prepared, table.form, look, program=program_name(), counts_hosts=counts_hosts)
        )
    cluster, notes = _read(where, _with_use, counts_hosts=counts_hosts)
    report = prepared(cluster)
    code = _print(written(report, table.form, look()))
    if table.is_for_people:
        say(*notes, *([] if report.rows else [nothing]))
    return code


def _show_pods(where: Where, table: TableOptions, selection: ObjectSelection) -> int:
    selected = selection.selected
    only = None if selection.everywhere else selection.namespace or namespace_of(where)
    nothing = "no pod that asks for GPUs was found" + (f" in namespace {only}; -A shows all" if only else "")
    # a table leaves out why pods wait
    explains = table.form != "table" or any("note" in each for each in (table.sort_by, *table.conditions))
    return _show(
        where,
        table,
        lambda cluster: pod_report(cluster, namespace=only, selector=selected, explains=explains),
        nothing,
        watch=selection.watch,
        counts_hosts=explains,
    )


@_command("-l selects nodes by their labels, or pods with `top pods`. -n and -A matter to `top pods` only.")
@click.argument("what", type=click.Choice(["nodes", "cards", "pods"]), default="cards")
@_TABLE
@_SELECTION
def top(*, what: str, where: Where, table: TableOptions, selection: ObjectSelection) -> int:
    """Show a report of nodes, cards or pods."""
    if what == "pods":
        return _show_pods(where, table, selection)
    selected = selection.selected
    make = card_report if what == "cards" else node_report
    return _show(where, table, lambda cluster: make(cluster, selected), "no card was found", watch=selection.watch)


@_command("Their cards and what they book of them; `-o wide` adds why waiting pods wait.")
@_TABLE
@_SELECTION
def pods(*, where: Where, table: TableOptions, selection: ObjectSelection) -> int:
    """Show a report of pods."""
    return _show_pods(where, table, selection)


@_command(
    "Remainders of cards that no container of the cluster's GPU pods could take, and memory that is booked and not"
    " used."
)
@_TABLE
def waste(*, where: Where, table: TableOptions) -> int:
    """Show the waste of each card, and the sums."""
    cluster, notes = _read(where, _with_use)
    found = waste_of(cluster)
    code = _print(written(table.arranged(found.report), table.form, look()))
    if table.is_for_people:
        say(*notes, *waste_notes(found))
    return code


def _nodes_in_cluster(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of nodes for completion; nothing if the cluster cannot be read."""
    try:
        names = _read(Where(), _alone).node_names
    except GasError:
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def _pods_in_cluster(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of GPU pods for completion, with their namespaces; nothing if the cluster cannot be read."""
    try:
        keys = [pod.key for pod in _read(Where(), _alone).gpu_pods]
    except GasError:
        return []
    return sorted(key for key in keys if key.startswith(incomplete) and key.isprintable())


@_command("Its cards, tiles, NUMA nodes and links, and what each pod holds of which card.")
@click.argument("node", shell_complete=_nodes_in_cluster)
@_form("table", "json", "yaml")
def inspect(*, node: str, form: str, where: Where) -> int:
    """Show one node."""

    async def with_use(api: ApiServer, cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
        cluster.node(node)
        return cluster, await read_use(api, cluster, [node])

    cluster, notes = _read(where, with_use)
    if form != "table":
        return _print(as_data(node_data(cluster, node), form))
    code = _print("\n".join(node_lines(cluster, node, look())) + "\n")
    say(*notes)
    return code


@_command(
    "POD is a name, or NAMESPACE/NAME. Each suggestion has been placed before it is made. Of a pod that runs, its cards"
    " are explained."
)
@click.argument("pod", metavar="POD", shell_complete=_pods_in_cluster)
@_form("table", "json", "yaml")
@_NAMESPACE
def why(*, pod: str, form: str, namespace: str, where: Where) -> int:
    """Explain one pod."""
    space, name = _names(pod, namespace or namespace_of(where))

    async def with_decisions(api: ApiServer, cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
        cluster.pod(space, name)
        return cluster, await read_decisions(api, cluster)

    cluster, notes = _read(where, with_decisions, counts_hosts=True)
    asked = cluster.pod(space, name)
    until = time.monotonic() + WHY_TIMEOUT
    explanation = explain(cluster, asked, lambda: time.monotonic() >= until)
    if form != "table":
        return _print(as_data(explanation_data(explanation), form))
    code = _print("".join(f"{escaped(line)}\n" for line in explanation_lines(asked.key, explanation)))
    say(*cluster.settings.notes, *notes)
    if explanation.groups:
        say(*cluster.unknown_resources(asked))
        _say_not_checked([asked])
    if not explanation.is_complete:
        say(f"there may be more or better suggestions: the search ended after {WHY_TIMEOUT:g} s")
    return code


def _names(text: str, default: str, prefix: str = "") -> tuple[str, str]:
    """Return the namespace and the name of a pod, written as NAME or NAMESPACE/NAME. Raises click.UsageError."""
    namespace, slash, name = text.removeprefix(prefix).rpartition("/")
    if not name or "/" in namespace or bool(namespace) != bool(slash):
        raise click.UsageError(f"expected a pod as {prefix}NAME or {prefix}NAMESPACE/NAME, found {quoted(text)}")
    return namespace or default, name


@_command(
    "The pods of each FILE (`-` for standard input), with their replicas, are placed one after the other on what is"
    " free now. Exit code 0 if all of them fit."
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--explain", is_flag=True, help="Show each pod with its node and cards, and all reasons of the nodes.")
@_form(*FORMATS)
@_NAMESPACE
def fit(*, files: tuple[str, ...], explain: bool, form: str, namespace: str, where: Where) -> int:
    """Place the pods of manifests."""
    default = namespace or namespace_of(where)
    read = [read_manifests(file, _text_of(file), default) for file in files]
    wanted = [each for found, _ in read for each in found]
    if not wanted:
        raise UnreadableManifest(f"file {quoted(files[0])}: expected pods or objects that create pods, found none")
    cluster = _read(where, _alone, counts_hosts=True)
    fitted = fit_all(cluster, wanted)
    report = explained_report(fitted) if explain else fit_report(fitted)
    all_fit = all(each.fitting == each.count for each in fitted)
    code = _print(written(report, form, look()), DONE if all_fit else NOT_SO)
    say(*cluster.settings.notes)
    if not all_fit:
        say(*dict.fromkeys(sentence for each in wanted for sentence in cluster.unknown_resources(each.pod)))
    _say_not_checked([each.pod for each in wanted])
    if others := [name for _, found in read for name in found]:
        say(f"not looked at, because only pods matter: {listed(others)}")
    return code


@_command(
    "SHAPE is a manifest (`-` for standard input) of which one pod is placed, pod/NAME or pod/NAMESPACE/NAME for one"
    " that waits, or requests such as gpu.intel.com/i915=1,gpu.intel.com/memory.max=14G. Nothing is evicted. Exit code"
    " 0 if there is a plan."
)
@click.argument("shape", metavar="SHAPE", type=click.Path(allow_dash=True))
@_form(*FORMATS)
@_NAMESPACE
def defrag(*, shape: str, form: str, namespace: str, where: Where) -> int:
    """Plan moves that make room for a pod."""
    space = namespace or namespace_of(where)
    is_file = shape == "-" or os.path.exists(shape)  # noqa: PTH110 -- Path.exists raises for a name that is too long
    asked: InspectedPod | tuple[str, str]
    if is_file:
        asked = one_shape(shape, read_manifests(shape, _text_of(shape), space)[0])
    elif "=" in shape:
        asked = pod_of_requests(shape, space)
    elif shape.startswith("pod/"):
        asked = _names(shape, space, "pod/")
    else:
        raise UnreadableManifest(
            f"shape {quoted(shape)}: expected a file, pod/NAME or requests such as gpu.intel.com/i915=1, found no such"
            " file"
        )
    cluster = _read(where, _alone, counts_hosts=True)
    pod = cluster.pod(*asked) if isinstance(asked, tuple) else asked
    if pod.node_name:
        raise UnreadableManifest(
            f"pod {quoted(pod.key)}: expected a pod that waits, found one on node {quoted(pod.node_name)}"
        )
    until = time.monotonic() + DEFRAG_TIMEOUT
    plan = plan_moves(cluster, pod, lambda: time.monotonic() >= until)
    code = _print(written(plan_report(plan, pod.key), form, look()), DONE if plan.node else NOT_SO)
    unknown = [] if plan.node else list(cluster.unknown_resources(pod))
    say(*cluster.settings.notes, *(unknown or plan_notes(plan)))
    _say_not_checked([pod, *(cluster.pods.by_key[move.uid] for move in plan.moves)])
    return code


def _say_not_checked(asked: Sequence[InspectedPod]) -> None:
    if unchecked := list(dict.fromkeys(rule for pod in asked for rule in not_checked(pod))):
        say(f"not looked at: {', '.join(unchecked)}")


def _text_of(file: str) -> str:
    """Return the content of a file, ``-`` for standard input. Raises UnreadableManifest."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableManifest(f"file {quoted(file)}: expected text in UTF-8, found {error}") from error
    except OSError as error:
        raise UnreadableManifest(f"file {quoted(file)}: cannot be read: {error.strerror}") from error


@_command("Serves the page on this machine, only for this machine, until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    metavar="N",
    help="Port on this machine's loopback address.",
)
def page(*, port: int, where: Where) -> int:
    """Serve the page."""
    from gas.inspection.page.program import show_page

    gc.enable()  # unlike other commands, this one runs for long
    asyncio.run(show_page(where, port, lambda url: say(f"the page is at {url}; Ctrl-C ends it")))
    return DONE
