"""The command line of ``kubectl gas``: what each command takes, and how its result is shown."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import ShellComplete, get_completion_class

from gas.cluster.connection import ApiServer
from gas.daemon.command import INTERRUPTED, print_text
from gas.inspection.cluster import Cluster, Missing
from gas.inspection.defrag import plan_moves, plan_notes, plan_report
from gas.inspection.fit import explained_report, fit_all, fit_report
from gas.inspection.gather import Where, connected, namespace_of, read_cluster, read_decisions, read_use
from gas.inspection.manifests import BadManifest, one_shape, pod_of_requests, read_manifests
from gas.inspection.node_rules import not_checked
from gas.inspection.node_view import node_data, node_lines
from gas.inspection.objects import InspectedPod
from gas.inspection.output import BAD_USE, DONE, FORMATS, NOT_SO, UNREACHABLE, Look, as_json, as_yaml, shown, written
from gas.inspection.report import BadExpression, Report, keep_rows, sort_rows
from gas.inspection.rows import card_report, node_report, pod_report
from gas.inspection.selectors import BadSelector, Selector, parse_selector
from gas.inspection.waste import Waste, waste_notes, waste_of
from gas.inspection.why import explain, explanation_data, explanation_lines
from gas.values.errors import GasError
from gas.values.quoted import listed, quoted

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

WHY_TIMEOUT = 5.0
"""Seconds in which `why` looks for suggestions; the reasons are complete in any case."""

DEFRAG_TIMEOUT = 10.0
"""Seconds in which `defrag` looks for a plan."""

EXIT_CODES = (
    "Exit code 0: done; 1: something does not fit, or does not exist; 2: wrong command line or file; 3: the cluster"
    " cannot be read; 130: interrupted."
)
COMPLETE_VARIABLE = "_KUBECTL_GAS_COMPLETE"
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(context_settings=_SETTINGS, epilog=EXIT_CODES)
@click.version_option(None, "--version", message="%(prog)s %(version)s", package_name="gas")
def kubectl_gas() -> None:
    """Show the GPUs of a cluster card by card: what is booked, what is used, who holds it. Changes nothing."""


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, **settings)


def _where(command: Command) -> Command:
    """Add the options that name the cluster."""
    for add in (
        _option("--context", metavar="NAME", default="", help="Context of the kubeconfig."),
        _option("--kubeconfig", metavar="FILE", default="", help="Kubeconfig with which to reach the cluster."),
    ):
        command = add(command)
    return command


def _form(*forms: str) -> Callable[[Command], Command]:
    return _option(
        "-o",
        "--output",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help="Format of the output.",
    )


_NAMESPACE = _option("-n", "--namespace", metavar="NAME", default="", help="Namespace of the pods.")
_ALL = _option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the pods of all namespaces.")
_SELECTOR = _option("-l", "--selector", metavar="LABELS", default="", help="Show only objects with these labels.")
_SORT = _option(
    "--sort-by", metavar="COLUMN", default="", help="Sort by a column; a hyphen before it reverses the order."
)
_WHERE = _option(
    "--where",
    "conditions",
    metavar="CONDITION",
    multiple=True,
    help="Show only rows such as health!=ok, model~flex or memory.max>80 (percent booked). May be repeated.",
)
_WATCH = _option("-w", "--watch", is_flag=True, help="Draw again whenever something changes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of a command that shows nodes, cards or pods."""

    form: str
    namespace: str
    everywhere: bool
    selector: str
    sort_by: str
    conditions: tuple[str, ...]
    watch: bool
    kubeconfig: str
    context: str

    @property
    def where(self) -> Where:
        """The cluster that they name."""
        return Where(kubeconfig=self.kubeconfig, context=self.context)

    @property
    def selected(self) -> Selector | None:
        """The labels that objects must have, None if all are shown. Raises BadSelector."""
        return parse_selector(self.selector) if self.selector else None


def _report_options(command: Command) -> Command:
    """Add the options of a report, which the command gets as one value, ``options``."""

    @wraps(command)
    def run(*arguments: Any, **given: Any) -> int:
        names = ReportOptions.__dataclass_fields__
        options = ReportOptions(**{name: given.pop(name) for name in names})
        code: int = command(*arguments, options=options, **given)
        return code

    added: Any = _reported(run)
    for add in (_where, _WATCH, _WHERE, _SORT, _SELECTOR, _ALL, _NAMESPACE, _form(*FORMATS)):
        added = add(added)
    result: Command = added
    return result


def _reported(command: Callable[..., int]) -> Callable[..., int]:
    """Turn errors into a sentence and an exit code."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> int:
        try:
            if options.get("watch"):
                return command(*arguments, **options)
            with _without_collecting():
                return command(*arguments, **options)
        except GasError as error:
            say(str(error))
            if isinstance(error, Missing | BadExpression | BadSelector | BadManifest):
                return error.exit_code
            return UNREACHABLE
        except KeyboardInterrupt:
            return INTERRUPTED

    return run


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep the garbage collector from walking over a large cluster again and again: a third of a command's time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _program() -> str:
    """Return the program of the running command as the user typed it: ``kubectl gas`` or ``gas``."""
    return click.get_current_context().find_root().info_name or ""


def say(*sentences: str, program: str = "") -> None:
    """Write sentences to standard error, so that the output of a command stays its result.

    program  needed only where no command is running
    """
    with suppress(AttributeError, OSError):  # the caller has closed standard error, or it is full
        for sentence in sentences:
            sys.stderr.write(f"{program or _program()}: {shown(sentence)}\n")


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
    return print_text(_program(), text, exit_code=code, unwritten=UNREACHABLE) if text else code


def _read(where: Where, use: Callable[[ApiServer, Cluster], Awaitable[T]], *, counts_hosts: bool = False) -> T:
    """Read the cluster and use it while the API server is connected."""

    async def read() -> T:
        async with connected(where) as api:
            return await use(api, await read_cluster(api, counts_hosts=counts_hosts))

    return asyncio.run(read())


def _show(
    options: ReportOptions, make: Callable[[Cluster], Report], nothing: str, *, counts_hosts: bool = False
) -> int:
    """Make a report of the cluster, and show it once, or again and again."""

    def prepared(cluster: Cluster) -> Report:
        return sort_rows(keep_rows(make(cluster), options.conditions), options.sort_by)

    if options.watch:
        from gas.inspection.watching import watch_report

        return asyncio.run(
            watch_report(options.where, prepared, options.form, look, program=_program(), counts_hosts=counts_hosts)
        )

    async def once(api: ApiServer, cluster: Cluster) -> tuple[Report, tuple[str, ...]]:
        notes = await read_use(api, cluster)
        return prepared(cluster), (*cluster.settings.notes, *notes)

    report, notes = _read(options.where, once, counts_hosts=counts_hosts)
    code = _print(written(report, options.form, look()))
    if options.form in ("table", "wide"):
        say(*notes, *([] if report.rows else [nothing]))
    return code


def _show_pods(options: ReportOptions) -> int:
    selected = options.selected
    only = None if options.everywhere else options.namespace or namespace_of(options.where)
    nothing = "no pod that asks for GPUs was found" + (f" in namespace {only}; -A shows all" if only else "")
    # a table leaves out why pods wait
    explains = options.form != "table" or any("note" in each for each in (options.sort_by, *options.conditions))
    return _show(
        options,
        lambda cluster: pod_report(cluster, namespace=only, selector=selected, explains=explains),
        nothing,
        counts_hosts=explains,
    )


@kubectl_gas.command(epilog=EXIT_CODES)
@click.argument("what", type=click.Choice(["nodes", "cards", "pods"]), default="cards")
@_report_options
def top(*, what: str, options: ReportOptions) -> int:
    """Show what is booked and used of cards.

    -l selects nodes by their labels, or pods with `top pods`. -n and -A matter to `top pods` only.
    """
    if what == "pods":
        return _show_pods(options)
    selected = options.selected
    make = card_report if what == "cards" else node_report
    return _show(options, lambda cluster: make(cluster, selected), "no card was found")


@kubectl_gas.command(epilog=EXIT_CODES)
@_report_options
def pods(*, options: ReportOptions) -> int:
    """List the pods that ask for GPUs.

    Their cards and what they book of them; `-o wide` adds why waiting pods wait.
    """
    return _show_pods(options)


def _nodes_in_cluster(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of nodes for completion; nothing if the cluster cannot be read."""
    try:
        cluster = _read(Where(), _cluster_alone)
    except GasError:
        return []
    return [name for name in cluster.node_names if name.startswith(incomplete) and name.isprintable()]


def _pods_in_cluster(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of GPU pods for completion, with their namespaces; nothing if the cluster cannot be read."""
    try:
        cluster = _read(Where(), _cluster_alone)
    except GasError:
        return []
    return sorted(pod.key for pod in cluster.gpu_pods if pod.key.startswith(incomplete) and pod.key.isprintable())


async def _cluster_alone(_api: ApiServer, cluster: Cluster) -> Cluster:
    return cluster


@kubectl_gas.command(epilog=EXIT_CODES)
@_form(*FORMATS)
@_SORT
@_WHERE
@_where
@_reported
def waste(*, form: str, sort_by: str, conditions: tuple[str, ...], kubeconfig: str, context: str) -> int:
    """Show capacity that is of no use.

    Remainders of cards that no container of the cluster's GPU pods could take, and memory that is booked and not used.
    """

    async def look_at(api: ApiServer, cluster: Cluster) -> tuple[Waste, tuple[str, ...]]:
        notes = await read_use(api, cluster)
        return waste_of(cluster), (*cluster.settings.notes, *notes)

    found, notes = _read(Where(kubeconfig=kubeconfig, context=context), look_at)
    code = _print(written(sort_rows(keep_rows(found.report, conditions), sort_by), form, look()))
    if form in ("table", "wide"):
        say(*notes, *waste_notes(found))
    return code


@kubectl_gas.command(epilog=EXIT_CODES)
@click.argument("node", shell_complete=_nodes_in_cluster)
@_form("table", "json", "yaml")
@_where
@_reported
def inspect(*, node: str, form: str, kubeconfig: str, context: str) -> int:
    """Show everything about one NODE.

    Its cards, tiles, NUMA nodes and links, and what each pod holds of which card.
    """

    async def view(api: ApiServer, cluster: Cluster) -> tuple[str, tuple[str, ...]]:
        cluster.node(node)
        notes = await read_use(api, cluster, [node])
        match form:
            case "json":
                return as_json(node_data(cluster, node)), ()
            case "yaml":
                return as_yaml(node_data(cluster, node)), ()
        return "\n".join(node_lines(cluster, node, look())) + "\n", notes

    text, notes = _read(Where(kubeconfig=kubeconfig, context=context), view)
    code = _print(text)
    say(*notes)
    return code


@kubectl_gas.command(epilog=EXIT_CODES)
@click.argument("pod", metavar="POD", shell_complete=_pods_in_cluster)
@_form("table", "json", "yaml")
@_NAMESPACE
@_where
@_reported
def why(*, pod: str, form: str, namespace: str, kubeconfig: str, context: str) -> int:
    """Show why a pod waits and what would let it run.

    POD is a name, or NAMESPACE/NAME. Each suggestion has been placed before it is made. Of a pod that runs, its cards
    are explained.
    """
    where = Where(kubeconfig=kubeconfig, context=context)
    space, name = _names(pod, namespace or namespace_of(where))

    async def with_decisions(api: ApiServer, cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
        cluster.pod(space, name)
        return cluster, await read_decisions(api, cluster)

    cluster, notes = _read(where, with_decisions, counts_hosts=True)
    asked = cluster.pod(space, name)
    until = time.monotonic() + WHY_TIMEOUT
    explanation = explain(cluster, asked, lambda: time.monotonic() >= until)
    match form:
        case "json":
            return _print(as_json(explanation_data(explanation)))
        case "yaml":
            return _print(as_yaml(explanation_data(explanation)))
    code = _print("".join(f"{shown(line)}\n" for line in explanation_lines(asked.key, explanation)))
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


@kubectl_gas.command(epilog=EXIT_CODES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@_option("--explain", is_flag=True, help="Show each pod with its node and cards, and all reasons of the nodes.")
@_form(*FORMATS)
@_NAMESPACE
@_where
@_reported
def fit(*, files: tuple[str, ...], explain: bool, form: str, namespace: str, kubeconfig: str, context: str) -> int:
    """Show where the pods of manifests would land.

    The pods of each FILE (`-` for standard input), with their replicas, are placed one after the other on what is free
    now. Exit code 0 if all of them fit.
    """
    where = Where(kubeconfig=kubeconfig, context=context)
    default = namespace or namespace_of(where)
    read = [read_manifests(file, _text_of(file), default) for file in files]
    wanted = [each for found, _ in read for each in found]
    if not wanted:
        raise BadManifest(f"file {quoted(files[0])}: expected pods or objects that create pods, found none")
    cluster = _read(where, _cluster_alone, counts_hosts=True)
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


@kubectl_gas.command(epilog=EXIT_CODES)
@click.argument("shape", metavar="SHAPE", type=click.Path(allow_dash=True))
@_form(*FORMATS)
@_NAMESPACE
@_where
@_reported
def defrag(*, shape: str, form: str, namespace: str, kubeconfig: str, context: str) -> int:
    """Plan the fewest moves of running pods that make room for a SHAPE.

    SHAPE is a manifest (`-` for standard input) of which one pod is placed, pod/NAME or pod/NAMESPACE/NAME for one that
    waits, or requests such as gpu.intel.com/i915=1,gpu.intel.com/memory.max=14G. Nothing is evicted. Exit code 0 if
    there is a plan.
    """
    where = Where(kubeconfig=kubeconfig, context=context)
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
        raise BadManifest(
            f"shape {quoted(shape)}: expected a file, pod/NAME or requests such as gpu.intel.com/i915=1, found no such"
            " file"
        )
    cluster = _read(where, _cluster_alone, counts_hosts=True)
    pod = cluster.pod(*asked) if isinstance(asked, tuple) else asked
    if pod.node_name:
        raise BadManifest(
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
    """Return the content of a file, ``-`` for standard input. Raises BadManifest."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadManifest(f"file {quoted(file)}: expected text in UTF-8, found {error}") from error
    except OSError as error:
        raise BadManifest(f"file {quoted(file)}: cannot be read: {error.strerror}") from error


@kubectl_gas.command(epilog=EXIT_CODES)
@_option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    metavar="N",
    help="Port on this machine's loopback address.",
)
@_where
@_reported
def page(*, port: int, kubeconfig: str, context: str) -> int:
    """Show the cluster in a browser.

    Serves the page on this machine, only for this machine, until Ctrl-C.
    """
    from gas.inspection.page.program import show_page

    gc.enable()  # unlike other commands, this one runs for long
    where = Where(kubeconfig=kubeconfig, context=context)
    asyncio.run(show_page(where, port, lambda url: say(f"the page is at {url}; Ctrl-C ends it")))
    return DONE


@kubectl_gas.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def doctor(*, arguments: tuple[str, ...]) -> int:
    """Report what GPU scheduling still needs, as gas doctor does."""
    from gas.doctor.program import run

    return run(arguments)


@kubectl_gas.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> int:
    """Print a completion script for a SHELL.

    It completes `kubectl-gas`. For `kubectl gas`, kubectl itself calls the program kubectl_complete-gas.
    """
    kind = get_completion_class(shell)
    if kind is None:
        return BAD_USE
    return _print(kind(kubectl_gas, {}, "kubectl-gas", COMPLETE_VARIABLE).source())


def run(arguments: Sequence[str], program: str = "kubectl gas") -> int:
    """Run a command line. Return the exit code."""
    try:
        code = kubectl_gas.main(
            list(arguments), prog_name=program, complete_var=COMPLETE_VARIABLE, standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")
        return BAD_USE
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        help_of = f"; see {context.command_path} --help" if context is not None else ""
        say(f"{error.format_message().removesuffix('.')}{help_of}", program=program)
        return BAD_USE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def complete(words: Sequence[str]) -> str:
    """Return what kubectl shows for the words after ``kubectl gas``, of which the last is incomplete.

    One candidate a line with its help after a tab, then a line for kubectl: ``:4`` offers no file names, ``:0`` does.
    """
    *before, incomplete = words or ("",)
    found = ShellComplete(kubectl_gas, {}, "kubectl-gas", COMPLETE_VARIABLE).get_completions(list(before), incomplete)
    lines = [f"{item.value}\t{shown(item.help or '')}".rstrip() for item in found if item.type == "plain"]
    files = any(item.type in ("file", "dir") for item in found)
    return "".join(f"{line}\n" for line in [*lines, ":0" if files else ":4"])
