"""Define the commands of ``kubectl gas`` that show cards."""

import asyncio
import gc
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any

import click

from gas import commands
from gas.cluster.errors import ApiRefused, Forbidden
from gas.cluster.reader import Reads
from gas.commands import program_name, say
from gas.daemon.command import INTERRUPTED, print_text
from gas.inspection.cluster import Cluster, Missing
from gas.inspection.connection import Where, completed, connection_options
from gas.inspection.gather import (
    NOT_MEASURED,
    read_cluster,
    read_decisions,
    read_explanation,
    read_namespaces,
    read_use,
    reading,
)
from gas.inspection.manifests import LARGEST, UnreadableManifest, one_shape, pod_of_requests, read_manifests
from gas.inspection.objects import InspectedPod, not_checked
from gas.inspection.output import DONE, FORMATS, NOT_SO, UNREACHABLE, Look, as_data, written
from gas.inspection.report import BadExpression, Report, Selector, keep_rows, parse_selector, sort_rows
from gas.inspection.rows import card_report, node_report, pod_report, waste_notes, waste_of
from gas.values.errors import GasError
from gas.values.quoted import escaped, listed, quoted

WHY_TIMEOUT = 5.0  # seconds for finding the suggestions of `why`; the reasons are complete in any case
DEFRAG_TIMEOUT = 10.0  # seconds for finding the plan of `defrag`

EXIT_CODES = (
    "Exit code 0: done; 1: something does not fit, or does not exist; 2: wrong command line or file; 3: the cluster"
    " cannot be read; 130: interrupted."
)

Runner = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Where):
    """The options that several commands have; a command that lacks one has its default."""

    form: str = "table"
    sort_by: str = ""
    conditions: tuple[str, ...] = ()
    namespace: str = ""
    everywhere: bool = False
    selector: str = ""
    watch: bool = False
    no_headers: bool = False

    @property
    def is_for_people(self) -> bool:
        return self.form in ("table", "wide")

    @property
    def labels(self) -> Selector | None:
        """The labels that objects must have; None if all are shown. Raises BadExpression."""
        return parse_selector(self.selector) if self.selector else None

    @property
    def pod_namespace(self) -> str:
        return self.namespace or self.own_namespace

    def written(self, report: Report) -> str:
        return written(report, self.form, look(), headers=not self.no_headers)

    def arranged(self, report: Report) -> Report:
        """Return the selected rows of a report in the selected order, or a note if none is. Raises BadExpression."""
        kept = keep_rows(report, self.conditions)
        if report.rows and not kept.rows:
            rows = "row meets" if len(report.rows) == 1 else "rows meet"
            kept = replace(kept, notes=(*kept.notes, f"none of {len(report.rows)} {rows} --where"))
        return sort_rows(kept, self.sort_by)


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


def _of_cluster(names: Callable[[Cluster], Iterable[str]]) -> Callable[[Where], Iterable[str]]:
    return lambda where: names(_read(where)[0])


def _columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a column of the command's report."""
    make = _REPORTS.get(str(context.params.get("what") or context.info_name), card_report)
    complete = completed(_of_cluster(lambda cluster: [column.name for column in make(cluster).columns]))
    return complete(context, parameter, incomplete)


_REPORTS: Mapping[str, Callable[[Cluster], Report]] = {
    "nodes": node_report,
    "pods": lambda cluster: pod_report(cluster, explains=False),
    "waste": lambda cluster: waste_of(cluster).report,
}

_NAMESPACE = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="",
    help="Namespace of the pods.",
    shell_complete=completed(lambda where: asyncio.run(read_namespaces(where))),
)
_NODE = click.argument("node", shell_complete=completed(_of_cluster(lambda cluster: cluster.node_names)))
_NO_HEADERS = click.option("--no-headers", is_flag=True, help="Print tables without headers.")


def _table(command: Runner) -> Runner:
    by = click.option(
        "--sort-by",
        metavar="COLUMN",
        default="",
        help="Sort by a column; a hyphen before it reverses the order.",
        shell_complete=_columns,
    )
    conditions = click.option(
        "--where",
        "conditions",
        metavar="CONDITION",
        multiple=True,
        help="Show only rows such as health!=ok, model~flex or memory.max>80 (percent booked). May be repeated.",
        shell_complete=_columns,
    )
    return _form(*FORMATS)(by(conditions(_NO_HEADERS(command))))


def _selection(command: Runner) -> Runner:
    everywhere = click.option(
        "-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the pods of all namespaces."
    )
    labels = click.option("-l", "--selector", metavar="LABELS", default="", help="Show only objects with these labels.")
    watch = click.option("-w", "--watch", is_flag=True, help="Draw again whenever something changes.")
    return _NAMESPACE(everywhere(labels(watch(command))))


def _command(details: str) -> Callable[[Runner], click.Command]:
    """Define a command that reads the cluster. Errors become a sentence and an exit code."""
    shared = {each.name for each in fields(Options)}

    def define(command: Runner) -> click.Command:
        @wraps(command)
        def run(**given: Any) -> int:
            options = Options(**{name: given.pop(name) for name in shared & given.keys()})
            try:
                return command(options, **given)
            except GasError as error:
                say(str(error))
                is_own = isinstance(error, Missing | BadExpression | UnreadableManifest)
                return error.exit_code if is_own else UNREACHABLE
            except KeyboardInterrupt:
                return INTERRUPTED

        defined = commands.command(command.__name__, details, epilog=EXIT_CODES)(run)
        defined.params += connection_options()  # options of all commands come last
        return defined

    return define


def look() -> Look:
    terminal = sys.stdout is not None and sys.stdout.isatty()
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    width = None
    if terminal:
        from shutil import get_terminal_size

        width = get_terminal_size((100, 24)).columns
    return Look(
        width=width,
        colours=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        unicode=encoding.startswith("utf"),
    )


def _print(text: str, code: int = DONE) -> int:
    return print_text(program_name(), text, exit_code=code, unwritten=UNREACHABLE) if text else code


Ask = Callable[[Reads, Cluster], Awaitable[tuple[str, ...]]]
"""Reads more into a cluster, and returns sentences about what could not be read."""


def _read(where: Where, ask: Ask | None = None, *, counts_hosts: bool = False) -> tuple[Cluster, tuple[str, ...]]:
    """Read the cluster, and what ``ask`` adds. Return it with sentences about what is not known."""

    async def read() -> tuple[Cluster, tuple[str, ...]]:
        async with reading(where) as api:
            cluster = await read_cluster(api, counts_hosts=counts_hosts)
            return cluster, await ask(api, cluster) if ask is not None else ()

    return asyncio.run(read())


def _show(options: Options, make: Callable[[Cluster], Report], nothing: str, *, counts_hosts: bool = False) -> int:
    def prepared(cluster: Cluster) -> Report:
        return options.arranged(make(cluster))

    if options.watch:
        from gas.inspection.watching import watch_report

        gc.enable()  # unlike other commands, this one runs for long
        return asyncio.run(
            watch_report(options, prepared, options.form, look, program=program_name(), counts_hosts=counts_hosts)
        )
    cluster, notes = _read(options, read_use, counts_hosts=counts_hosts)
    report = prepared(cluster)
    code = _print(options.written(report))
    if options.is_for_people:
        asked = options.form == "wide" or re.search("used|busy", " ".join((options.sort_by, *options.conditions)))
        shown = [note for note in notes if asked or note != NOT_MEASURED]
        say(*cluster.settings.notes, *shown, *(report.notes or ([] if report.rows else [nothing])))
    return code


def _show_pods(options: Options) -> int:
    labels = options.labels
    only = None if options.everywhere else options.pod_namespace
    nothing = "no pod that asks for GPUs was found" + (f" in namespace {only}; -A shows all" if only else "")
    # A table leaves out why pods wait.
    explains = options.form != "table" or any("note" in each for each in (options.sort_by, *options.conditions))
    return _show(
        options,
        lambda cluster: pod_report(cluster, namespace=only, selector=labels, explains=explains),
        nothing,
        counts_hosts=explains,
    )


class _Kind(click.Choice[str]):
    """The plural of a kind, also as its singular."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(f"{value}s" if f"{value}s" in self.choices else value, param, ctx)


@_command("-l selects nodes by their labels, or pods with `top pods`. -n and -A matter to `top pods` only.")
@click.argument("what", type=_Kind(["nodes", "cards", "pods"]), default="cards")
@_table
@_selection
def top(options: Options, *, what: str) -> int:
    if what == "pods":
        return _show_pods(options)
    labels = options.labels
    make = card_report if what == "cards" else node_report
    return _show(options, lambda cluster: make(cluster, labels), "no card was found")


@_command("Their cards and what they book of them; `-o wide` adds why waiting pods wait.")
@_table
@_selection
def pods(options: Options) -> int:
    return _show_pods(options)


@_command(
    "Remainders of cards that no container of the cluster's GPU pods could take, and memory that is booked and not"
    " used."
)
@_table
def waste(options: Options) -> int:
    cluster, notes = _read(options, read_use)
    found = waste_of(cluster)
    report = options.arranged(found.report)
    code = _print(options.written(report))
    if options.is_for_people:
        say(*cluster.settings.notes, *notes, *report.notes, *waste_notes(found))
    return code


@_command("Its cards, tiles, NUMA nodes and links, and what each pod holds of which card.")
@_NODE
@_form("table", "json", "yaml")
def inspect(options: Options, *, node: str) -> int:
    node = node.removeprefix("node/")
    from gas.inspection.node_view import node_data, node_lines

    cluster, notes = _read(options, lambda api, cluster: read_use(api, cluster, [node]))
    if options.form != "table":
        return _print(as_data(node_data(cluster, node), options.form))
    code = _print("\n".join(node_lines(cluster, node, look())) + "\n")
    say(*notes)
    return code


_CARD = click.argument("card")


@_command(
    "CARD is its number, PCI address or UUID. Pods on it stay. It stays closed when the node starts again and gives its"
    " cards other numbers."
)
@_NODE
@_CARD
def cordon(options: Options, *, node: str, card: str) -> int:
    return _set_cordon(options, node, card, is_closed=True)


@_command("CARD is its number, PCI address or UUID.")
@_NODE
@_CARD
def uncordon(options: Options, *, node: str, card: str) -> int:
    return _set_cordon(options, node, card, is_closed=False)


def _set_cordon(options: Options, node: str, card: str, *, is_closed: bool) -> int:
    from gas.inspection.cordon import set_cordon

    said = asyncio.run(set_cordon(options, node.removeprefix("node/"), card, is_closed=is_closed))
    return _print(f"{escaped(said)}\n")


@_command(
    "POD is a name, or NAMESPACE/NAME, also after pod/, sharepod/ or shp/. Each suggestion has been placed before it is"
    " made. Of a pod that runs, its cards are explained."
)
@click.argument(
    "pod",
    metavar="POD",
    shell_complete=completed(_of_cluster(lambda cluster: sorted(pod.key for pod in cluster.gpu_pods))),
)
@_form("table", "json", "yaml")
@_NAMESPACE
def why(options: Options, *, pod: str) -> int:
    from gas.inspection.why import explain, explanation_data, explanation_lines

    prefix = next((each for each in ("pod/", "sharepod/", "shp/") if pod.startswith(each)), "")
    names = _names(pod, options.pod_namespace, prefix)
    try:
        cluster, notes = _read(options, read_decisions, counts_hosts=True)
    except Forbidden as forbidden:
        return _why_by_the_extender(options, *names, forbidden)
    asked = cluster.pod(*names)
    until = time.monotonic() + WHY_TIMEOUT
    explanation = explain(cluster, asked, lambda: time.monotonic() >= until)
    if options.form != "table":
        return _print(as_data(explanation_data(explanation), options.form))
    code = _print("".join(f"{escaped(line)}\n" for line in explanation_lines(asked.key, explanation)))
    say(*cluster.settings.notes, *notes)
    if explanation.groups:
        say(*cluster.unknown_resources(asked))
        _say_not_checked([asked])
    if not explanation.is_complete:
        say(f"there may be more or better suggestions: the search ended after {WHY_TIMEOUT:g} s")
    return code


def _why_by_the_extender(options: Options, namespace: str, name: str, forbidden: Forbidden) -> int:
    """Explain a pod to a user who may not read the nodes."""
    from gas.inspection.why import Explanation, explanation_data, explanation_lines

    try:
        found, nodes = asyncio.run(read_explanation(options, namespace, name))
    except ApiRefused as refused:
        if refused.status == 404 and f'pods "{name}" not found' in refused.message:
            raise Missing(f"pod {quoted(name)} in namespace {quoted(namespace)}: expected a pod, found none") from None
        if refused.status == 404 or isinstance(refused, Forbidden):
            raise GasError(f"{forbidden}; nor does the extender explain the pod: {refused}") from None
        raise
    explanation = Explanation(found.line, nodes, found.reasons)
    if options.form != "table":
        return _print(as_data(explanation_data(explanation), options.form))
    lines = explanation_lines(f"{namespace}/{name}", explanation, searched=False)
    code = _print("".join(f"{escaped(line)}\n" for line in lines))
    say("only the extender's reasons are shown, because this account may not read nodes and pods of all namespaces")
    return code


def _names(text: str, default: str, prefix: str = "") -> tuple[str, str]:
    """Return namespace and name from NAME or NAMESPACE/NAME. Raises click.UsageError."""
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
def fit(options: Options, *, files: tuple[str, ...], explain: bool) -> int:
    from gas.inspection.fit import explained_report, fit_all, fit_report

    namespace = options.pod_namespace
    read = [read_manifests(file, _content_of(file), namespace) for file in files]
    wanted = [each for found, _ in read for each in found]
    if not wanted:
        raise UnreadableManifest(f"file {quoted(files[0])}: expected pods or objects that create pods, found none")
    cluster, _ = _read(options, counts_hosts=True)
    fitted = fit_all(cluster, wanted)
    report = explained_report(fitted) if explain else fit_report(fitted)
    all_fit = all(each.fitting == each.count for each in fitted)
    code = _print(options.written(report), DONE if all_fit else NOT_SO)
    say(*cluster.settings.notes)
    if not all_fit:
        say(*dict.fromkeys(sentence for each in wanted for sentence in cluster.unknown_resources(each.pod)))
    _say_not_checked([each.pod for each in wanted])
    if others := [name for _, found in read for name in found]:
        say(f"no pods were found in {listed(others)}")
    return code


@_command(
    "SHAPE is a manifest (`-` for standard input) of which one pod is placed, pod/NAME or pod/NAMESPACE/NAME for one"
    " that waits, or requests such as gpu.intel.com/i915=1,gpu.intel.com/memory.max=14G. Nothing is evicted. Exit code"
    " 0 if there is a plan."
)
@click.argument("shape", metavar="SHAPE", type=click.Path(allow_dash=True))
@_form(*FORMATS)
@_NAMESPACE
def defrag(options: Options, *, shape: str) -> int:
    from gas.inspection.defrag import plan_moves, plan_notes, plan_report

    namespace = options.pod_namespace
    is_file = shape == "-" or os.path.exists(shape)  # noqa: PTH110 -- Path.exists raises for a name that is too long
    asked: InspectedPod | tuple[str, str]
    if is_file:
        asked = one_shape(shape, read_manifests(shape, _content_of(shape), namespace)[0])
    elif "=" in shape:
        asked = pod_of_requests(shape, namespace)
    elif shape.startswith("pod/"):
        asked = _names(shape, namespace, "pod/")
    else:
        raise UnreadableManifest(
            f"shape {quoted(shape)}: expected a file, pod/NAME or requests such as gpu.intel.com/i915=1, found no such"
            " file"
        )
    cluster, _ = _read(options, counts_hosts=True)
    pod = cluster.pod(*asked) if isinstance(asked, tuple) else asked
    if pod.node_name:
        raise UnreadableManifest(
            f"pod {quoted(pod.key)}: expected a pod that waits, found one on node {quoted(pod.node_name)}"
        )
    until = time.monotonic() + DEFRAG_TIMEOUT
    plan = plan_moves(cluster, pod, lambda: time.monotonic() >= until)
    code = _print(options.written(plan_report(plan, pod.key)), DONE if plan.node else NOT_SO)
    unknown = [] if plan.node else list(cluster.unknown_resources(pod))
    say(*cluster.settings.notes, *(unknown or plan_notes(plan)))
    _say_not_checked([pod, *(cluster.pods.records[move.uid] for move in plan.moves)])
    return code


def _say_not_checked(asked: Sequence[InspectedPod]) -> None:
    if unchecked := list(dict.fromkeys(rule for pod in asked for rule in not_checked(pod))):
        say(f"not looked at: {', '.join(unchecked)}")


def _content_of(file: str) -> bytes:
    """Return the content of a file, ``-`` for standard input; of a longer one its begin. Raises UnreadableManifest."""
    try:
        with click.open_file(file, "rb") as opened:
            content: bytes = opened.read(LARGEST + 1)
            return content
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
def page(options: Options, *, port: int) -> int:
    from gas.inspection.page.program import show_page

    gc.enable()  # unlike other commands, this one runs for long
    asyncio.run(show_page(options, port, lambda url: say(f"the page is at {url}; Ctrl-C ends it")))
    return DONE
