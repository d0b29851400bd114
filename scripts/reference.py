"""Write docs/reference.md from the code: ``python -m scripts.reference``. A test checks that the page is current."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from prometheus_client import CollectorRegistry

from configurator.flags import Flags as ConfiguratorFlags
from gas.commands import all_commands
from gas.daemon.flags import CommandLine, Flag
from gas.daemon.permissions import Permission
from gas.decision import names as decision
from gas.extender.admission.app import AdmissionMetrics
from gas.extender.command_line import COMMAND_LINE as EXTENDER
from gas.extender.command_line import parse_flags
from gas.extender.gauges import GAUGES
from gas.extender.metrics import Metrics as ExtenderMetrics
from gas.extender.parts import PARTS, permissions_of
from gas.inspection.page.flags import Flags as PageFlags
from gas.plugin.flags import COMMAND_LINE as PLUGIN
from gas.plugin.metrics import Metrics as PluginMetrics
from gas.plugin.parts import PARTS as PLUGIN_PARTS
from gas.values import card_records
from gas.vocabularies.intel import names
from gas.vocabularies.known import KNOWN
from scripts.roles import NAMESPACE, VERBS, permissions_by_flag

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

PROGRAMS: tuple[CommandLine[Any], ...] = (
    EXTENDER,
    CommandLine(PageFlags),
    PLUGIN,
    CommandLine(ConfiguratorFlags),
)

DEFAULT_VOCABULARY = KNOWN[0]
OTHERS = tuple(each.reference for each in KNOWN[1:])

NODE_LABELS = tuple(row for each in KNOWN for row in each.reference.node_labels)

NODE_ANNOTATIONS = (
    (card_records.ANNOTATION, "the plugin", "what each card is: PCI address, model and more, as JSON"),
    *(row for each in KNOWN for row in each.reference.node_annotations),
    (
        f"{card_records.CORDON}ID",
        "`kubectl gas cordon`, you",
        "any text: the card with this UUID or PCI address is closed",
    ),
    (decision.RELEASED, "the extender", "when cards became free while pods waited, in nanoseconds since the epoch"),
)

RESOURCE, LABEL, ANNOTATION = (
    ("resource", "used by", "unit"),
    ("label", "who writes it", "value"),
    ("annotation", "who writes it", "value"),
)
"""Heads of tables."""

POD_ANNOTATIONS = (
    *DEFAULT_VOCABULARY.reference.pod_annotations,
    (decision.TIMESTAMP, "the extender", "when the cards were decided, in nanoseconds since the epoch"),
    (decision.CONTAINER_CARDS, "the extender", "the cards of each container: `card0||card1,card2`"),
    (decision.CONTAINER_TILES, "the extender", "their tiles: `card0:gt0+gt1||card1:gt0`"),
    (decision.INIT_CONTAINER_CARDS, "the extender", "the cards of each init container"),
    (decision.INIT_CONTAINER_TILES, "the extender", "their tiles"),
    (
        decision.ALLOCATED_CARDS,
        "the plugin",
        "the cards that each container really got, if they differ from the decision",
    ),
    (decision.ALLOCATED_INIT_CARDS, "the plugin", "the same for init containers"),
    (
        decision.EXPIRED_BINDING,
        "the extender",
        "when earlier Bindings of the pod were ended, in nanoseconds since the epoch",
    ),
    (decision.CHECKED, "the extender", "`true`: the pod was checked when it was completed; see admission.md"),
    (
        decision.DESCHEDULED_BY_US,
        "the extender",
        "`gpu`: marks a pod whose deschedule label the extender set; it removes only such labels",
    ),
)


def page() -> str:
    """Return the whole page."""
    *most, last = (f"[{each.owner}]({each.page})" if each.page else each.owner for each in OTHERS)
    blocks = [
        "# Reference: every name",
        "This page is generated from the code by `make reference`. [pods.md](pods.md), [nodes.md](nodes.md),"
        " [extender.md](extender.md) and [plugin.md](plugin.md) explain the names in context.",
        "## Resources",
        _table(RESOURCE, DEFAULT_VOCABULARY.reference.resources),
        "Any other resource with this prefix is a plain number that is booked card by card.",
        f"With other vocabularies, {', '.join(most)} and {last}:",
        _table(RESOURCE, [row for each in OTHERS for row in each.resources]),
        "## Labels of nodes",
        _table(LABEL, NODE_LABELS),
        f"A value that is too long for one label continues in labels whose names end in 2, 3 and so on, except"
        f" `{names.CARDS}`. See [longer than 63 characters](nodes.md#longer-than-63-characters).",
        f"[Labels that telemetry writes](nodes.md#telemetry-labels), after `{names.TELEMETRY_PREFIX}POLICY/`:"
        f" {', '.join(f'`{label}`' for label in names.TELEMETRY_LABELS)}; value `{names.WHOLE_PCI_GROUP}`.",
        "## Annotations of nodes",
        _table(ANNOTATION, NODE_ANNOTATIONS),
        "## Annotations of pods",
        _table(ANNOTATION, POD_ANNOTATIONS),
    ]
    for each in OTHERS:
        if each.pod_annotations:
            blocks += [f"On pods in {each.owner} words:", _table(ANNOTATION, each.pod_annotations)]
    descheduled = f"`{decision.DESCHEDULE_POD_VALUE}`: the pod should leave its node"
    blocks += [
        "## Labels of pods",
        _table(LABEL, [(decision.DESCHEDULE_POD_LABEL, "the extender", descheduled)]),
        "## Flags",
        "A flag takes one dash or two, and its value after `=` or a space: `-v=4`, `--port 9001`. A boolean takes a"
        " value only after `=`: `--leader-elect=false`, and is false by default. If a flag is given several times, the"
        " last one wins unless its row says otherwise. An unknown flag or an invalid value ends the program with"
        " status 2.",
        *_shared_flags(),
    ]
    for program in PROGRAMS:
        blocks += [f"### {program.program}", *_flags(program)]
    blocks += ["### kubectl gas", _commands_options(), "## Metrics"]
    blocks += ["Metrics in `_total` are counters, all others gauges unless marked. Labels are in brackets."]
    for name, rows in _metrics_of_one_or_all().items():
        blocks += [f"### Metrics of {name}", _metrics_table(rows)]
    blocks += ["## Permissions", "What the extender needs on the API server."]
    blocks += [_table(("resource", "verbs", "with"), _permission_rows())]
    return "\n\n".join(blocks) + "\n"


def _permission_rows() -> Iterator[tuple[str, str, str]]:
    for flag, permissions in {"": permissions_of(parse_flags([]), NAMESPACE), **permissions_by_flag()}.items():
        for (group, resource, place), each in groupby(sorted(permissions, key=_object_of), key=_object_of):
            where = {"": "", NAMESPACE: " in the Lease's namespace"}.get(place, f" in {place}")
            yield (
                f"{resource}{group and '.'}{group}",
                ", ".join(sorted((one.verb for one in each), key=VERBS.index)),
                (f"`--{flag}`{where}" if flag else "any flags"),
            )


def _object_of(permission: Permission) -> tuple[str, str, str]:
    return permission.group, permission.resource, permission.namespace


def _flag_row(flag: Flag) -> tuple[str, str, str]:
    return f"`{flag.dashed}`", _default(flag), _escaped(flag.description)


def _programs_of_rows() -> dict[tuple[str, str, str], list[str]]:
    """Return the programs that have each row of the tables of flags."""
    programs: dict[tuple[str, str, str], list[str]] = {}
    for program in PROGRAMS:
        for flag in program.flags:
            programs.setdefault(_flag_row(flag), []).append(program.program)
    return programs


def _ignored(program: CommandLine[Any]) -> list[str]:
    return [f"`{each.dashed}`" for group in program.core.ignored for each in group.flags]


def _ignored_by_several() -> list[str]:
    """Return the flags that both gas-extender and gas-plugin accept without effect."""
    return [each for each in _ignored(EXTENDER) if each in _ignored(PLUGIN)]


def _shared_flags() -> Iterator[str]:
    """Return the section about the flags that several programs have with the same meaning."""
    rows = []
    for (flag, default, meaning), programs in _programs_of_rows().items():
        if len(programs) > 1:
            rows.append((flag, "all" if len(programs) == len(PROGRAMS) else ", ".join(programs), default, meaning))
    yield from ("### Several programs", _rows(("flag", "programs", "default", "meaning"), rows))
    ignored = ", ".join(_ignored_by_several())
    yield f"Accepted without effect, with a warning, by gas-extender and gas-plugin: {ignored}."


def _flags(program: CommandLine[Any]) -> Iterator[str]:
    group = ""
    programs = _programs_of_rows()
    rows: list[tuple[str, str, str]] = []
    for flag in program.flags:
        if len(programs[_flag_row(flag)]) > 1:
            continue
        if flag.group != group:
            group = flag.group
            rows.append((f"**{group}**", "", ""))
        rows.append(_flag_row(flag))
    yield _rows(("flag", "default", "meaning"), rows)
    if variables := program.core.variables:
        yield _table(("environment variable", "meaning"), [(name, _escaped(text)) for name, text in variables.items()])
    if ignored := [each for each in _ignored(program) if each not in _ignored_by_several()]:
        yield f"Accepted without effect, with a warning: {', '.join(ignored)}."


def _commands_options() -> str:
    """Return the table of the options of all commands of kubectl gas, which are spelled as kubectl's."""
    commands: dict[tuple[str, str, str], list[str]] = {}
    for command in all_commands.loaded():
        for option in command.params:
            if isinstance(option, click.Option):
                value = "" if option.is_flag else f" {_metavar(option)}"
                spelled = [name for name in option.opts if name.startswith("--") or len(name) == 2]
                row = (f"`{', '.join(spelled)}{value}`", _option_default(option), _escaped(option.help or ""))
                commands.setdefault(row, []).append(str(command.name))
    every = {name for having in commands.values() for name in having}
    rows = []
    for (flag, default, meaning), having in commands.items():
        missing = sorted(every - set(having))
        most = f"all but {missing[0]}" if len(missing) == 1 else ", ".join(having)
        rows.append((flag, most if missing else "all", default, meaning))
    return _rows(("flag", "commands", "default", "meaning"), rows)


def _metrics_of_one_or_all() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return the rows of `metrics`, with those that all programs have in one table of their own."""
    by_program = metrics()
    shared = set.intersection(*({_without_program(row) for row in rows} for rows in by_program.values()))
    of_all = [(f"gas_extender_{row[0]}`, `gas_plugin_{row[0]}", *row[1:]) for row in sorted(shared)]
    own = {name: [row for row in rows if _without_program(row) not in shared] for name, rows in by_program.items()}
    return {"both programs": of_all, **own}


def _without_program(row: tuple[str, str, str, str]) -> tuple[str, str, str, str]:
    """Return a metric without ``gas_extender_`` or ``gas_plugin_``."""
    return (row[0].split("_", 2)[2], *row[1:])


def _metrics_table(rows: Iterable[Sequence[str]]) -> str:
    shown = []
    for name, kind, labels, meaning in rows:
        marked = "Histogram. " if kind == "histogram" else ""
        shown.append((f"`{name}`{f' ({labels})' if labels else ''}", marked + meaning))
    return _rows(("metric and its labels", "meaning"), shown)


def _option_default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return _escaped(option.show_default)
    return f"`{option.default}`" if isinstance(option.default, str) and option.default else ""


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return ", ".join(map(str, option.type.choices))
    return option.metavar or ""


def _default(flag: Flag) -> str:
    """Return the default as code if it is a value, in plain words if it is a description."""
    if flag.default == "false":
        return ""
    if flag.unset or not flag.default:
        return _escaped(flag.default_in_words)
    return f"`{flag.default}`"


def _escaped(text: str) -> str:
    """Escape what Markdown takes for HTML or for the end of a cell."""
    return text.replace("<", "&lt;").replace("|", "\\|")


def extender_metrics() -> ExtenderMetrics:
    """Return the metrics of the extender, with those of all its parts in the same registry."""
    extender = ExtenderMetrics("0")
    AdmissionMetrics(extender.registry)
    for part in PARTS:
        for each in part.metrics:
            (each.counter if each.only_rises else each.gauge)(extender.registry)
    return extender


def metrics() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return name, kind, labels and meaning of each metric, by program."""
    rows = [row for part in PLUGIN_PARTS for row in part.metrics]
    extender, plugin = extender_metrics(), PluginMetrics("0", rows)
    for watches in (extender.watches, plugin.watches):
        watches.follow("pods", _Watched())
    return {
        "gas-extender": sorted(
            [
                *_of_registry(extender.registry),
                *((each.name, "gauge", ", ".join(each.labels), each.description) for each in GAUGES),
            ]
        ),
        "gas-plugin": sorted(_of_registry(plugin.registry, {row.name: row.labels for row in plugin.rows})),
    }


class _Watched:
    """A watch that heard from the API server a moment ago."""

    last_contact = 0.0
    relists = broken = undecodable = 0


def _of_registry(
    registry: CollectorRegistry, sampled: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterable[tuple[str, str, str, str]]:
    labels = {
        metric._name: ", ".join(metric._labelnames)  # type: ignore[attr-defined]
        for metric in registry._collector_to_names
        if hasattr(metric, "_labelnames")
    }
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found = labels.get(family.name) or ", ".join(
            dict.fromkeys([*sampled.get(name, ()), *(label for sample in family.samples for label in sample.labels)])
        )
        yield name, family.type, found, family.documentation


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is code."""
    return _rows(head, [(f"`{row[0]}`", *row[1:]) for row in rows])


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"|{''.join(f' {cell} |' if cell else ' |' for cell in row)}" for row in rows)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
