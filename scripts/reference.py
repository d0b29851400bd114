"""Writes docs/reference.md from the code: ``python -m scripts.reference``. A test holds the page against it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from configurator import flag_table as configurator_flags
from gas.daemon.go_flags import GoFlag, describe_flags
from gas.decision import names as decision
from gas.doctor import flags as doctor_flags
from gas.extender import flag_table as extender_flags
from gas.extender.card_books import CardBooks
from gas.extender.card_series import card_series
from gas.extender.metrics import Metrics as ExtenderMetrics
from gas.intel import names
from gas.intel.node_resources import MEMORY_MAX, MILLICORES
from gas.plugin import flag_table as plugin_flags
from gas.plugin.metrics import Metrics as PluginMetrics

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

PROGRAMS: Mapping[str, Mapping[str, Sequence[GoFlag]]] = {
    "gas-extender": extender_flags.FLAG_GROUPS,
    "gas-plugin": plugin_flags.FLAG_GROUPS,
    "gas-configurator": configurator_flags.FLAG_GROUPS,
    "gas doctor": doctor_flags.FLAG_GROUPS,
}

RESOURCES = (
    *((names.PREFIX + name, "pods ask, kubelet counts", "cards of this driver") for name in names.COUNT_RESOURCES),
    (names.PREFIX + names.TILES, "pods ask, the plugin writes", "tiles"),
    (names.PREFIX + MILLICORES, "pods ask, the plugin writes", "thousandths of cards"),
    (names.PREFIX + MEMORY_MAX, "pods ask, the plugin writes", "bytes of GPU memory"),
    *(
        (names.PREFIX + name, "pods ask, kubelet counts", "access to all cards of the node; nothing is booked")
        for name in names.MONITORING_RESOURCES
    ),
)

NODE_LABELS = (
    (names.GPU_NUMBERS, "the plugin, NFD, you", "`0.1.2`: the node's cards"),
    (names.CARDS, "likewise", "`card0.card1`: the same, older"),
    (names.NUMA_GPU_MAP, "likewise", "`0-0.1_1-2.3`: cards by NUMA node"),
    (names.PCI_GROUPS, "likewise", "`0.1_2.3.4`: cards on one board"),
    (names.XE_LINKS, "telemetry, you", "`0.0-1.0_2.0-3.0`: linked tiles"),
)

TELEMETRY_LABELS = (
    (names.DISABLE_CARD + "cardN", f"anything, or `{names.WHOLE_PCI_GROUP}`: nothing new starts on the card"),
    (names.DESCHEDULE_CARD + "cardN", f"anything, or `{names.WHOLE_PCI_GROUP}`: its pods get the deschedule label"),
    (names.PREFER_CARD, "`cardN`: that card first"),
    (names.DISABLE_TILE + "cardN_gtM", "anything: the tile is not given out"),
    (names.DESCHEDULE_TILE + "cardN_gtM", "anything: likewise, and its pods get the deschedule label"),
    (names.PREFER_TILE + "cardN", "`gtM`: that tile first"),
)

NODE_ANNOTATIONS = (
    (names.CARD_CAPACITY, "the plugin, you", "what single cards have, where they differ"),
    (decision.RELEASED, "the extender", "nanoseconds since the epoch: cards became free while pods waited"),
)

POD_ANNOTATIONS = (
    (names.ALLOW, "you", "card names: only these, with --enableAllowlist"),
    (names.DENY, "you", "card names: none of these, with --enableDenylist"),
    (names.SAME_GPU, "you", "container names: these share one card"),
    (names.ALLOCATE_XELINK, "you", "anything: cards in linked pairs"),
    (names.ALLOCATE_SINGLE_NUMA, "you", "anything: all cards from one NUMA node"),
    (decision.TIMESTAMP, "the extender", "nanoseconds since the epoch: when it was decided"),
    (decision.CONTAINER_CARDS, "the extender", "cards of each container: `card0||card1,card2`"),
    (decision.CONTAINER_TILES, "the extender", "their tiles: `card0:gt0+gt1||card1:gt0`"),
    (decision.INIT_CONTAINER_CARDS, "the extender", "cards of each init container"),
    (decision.INIT_CONTAINER_TILES, "the extender", "their tiles"),
    (
        decision.ALLOCATED_CARDS,
        "the plugin",
        "cards that each container was really given, where that is something else",
    ),
    (decision.ALLOCATED_INIT_CARDS, "the plugin", "likewise of each init container"),
)


def page() -> str:
    """The whole page."""
    parts = [
        "# Reference: every name",
        "",
        "Made from the code by `python -m scripts.reference`. What the names mean in full is in [pods.md](pods.md),"
        " [nodes.md](nodes.md), [extender.md](extender.md) and [plugin.md](plugin.md).",
        "",
        "## Resources",
        "",
        *_table(("resource", "who", "counts"), RESOURCES),
        "",
        "Any other resource with this prefix is a plain number, booked card by card.",
        "",
        "## Labels of nodes",
        "",
        *_table(("label", "who writes it", "value"), NODE_LABELS),
        "",
        f"Values go on in further labels with 2, 3 … at the end of the name; not so `{names.CARDS}`. See"
        " [longer than 63 characters](nodes.md#longer-than-63-characters).",
        "",
        f"Labels of telemetry, after `{names.TELEMETRY_PREFIX}POLICY/`:",
        "",
        *_table(("label", "value and effect"), TELEMETRY_LABELS),
        "",
        "## Annotations of nodes",
        "",
        *_table(("annotation", "who writes it", "value"), NODE_ANNOTATIONS),
        "",
        "## Annotations of pods",
        "",
        *_table(("annotation", "who writes it", "value"), POD_ANNOTATIONS),
        "",
        "## Labels of pods",
        "",
        *_table(
            ("label", "who writes it", "value"),
            [
                (
                    decision.DESCHEDULE_POD_LABEL,
                    "the extender",
                    f"`{decision.DESCHEDULE_POD_VALUE}`: the pod should leave its node",
                )
            ],
        ),
        "",
        "## Flags",
        "",
        "One dash or two; `-v=4` or `-v 4`; a boolean takes a value only after `=`; the last of several wins. Defaults"
        " are in brackets.",
        "",
    ]
    for program, groups in PROGRAMS.items():
        parts += [f"### {program}", "", "```", describe_flags(groups).strip("\n"), "```", ""]
    parts += ["## Metrics", ""]
    for program, rows in metrics().items():
        parts += [f"### Metrics of {program}", "", *_table(("metric", "kind", "labels", "meaning"), rows), ""]
    return "\n".join(parts)


def metrics() -> dict[str, list[tuple[str, str, str, str]]]:
    """Program -> name, kind, labels and meaning of each of its metrics."""
    extender, plugin = ExtenderMetrics("0"), PluginMetrics("0")
    for watches in (extender.watches, plugin.watches):
        watches.follow("pods", _Watched())
    plugin.totals.registrations = lambda: {"i915": 0}
    return {
        "gas-extender": sorted([*_of_registry(extender.registry), *asyncio.run(_of_cards())]),
        "gas-plugin": sorted(_of_registry(plugin.registry)),
    }


async def _of_cards() -> list[tuple[str, str, str, str]]:
    card = CardBooks(node="n", card="card0", capacity={"i915": 1}, booked={"i915": 1}, pods=1)
    text = "".join([piece async for piece in card_series(lambda: [card])])
    families = re.findall(r"^# HELP (\S+) (.+)\n# TYPE \S+ (\S+)\n\S+?{(.*)} ", text, re.MULTILINE)
    return [
        (name, kind, ", ".join(re.findall(r'(\w+)="', labels)), meaning) for name, meaning, kind, labels in families
    ]


class _Watched:
    """A watch that has heard of the API server a moment ago."""

    last_contact = 0.0
    relists = broken = undecodable = 0


def _of_registry(registry: CollectorRegistry) -> Iterable[tuple[str, str, str, str]]:
    labels = {
        metric._name: ", ".join(metric._labelnames)  # type: ignore[attr-defined]
        for metric in registry._collector_to_names
        if hasattr(metric, "_labelnames")
    }
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found = labels.get(family.name) or ", ".join(
            dict.fromkeys(label for sample in family.samples for label in sample.labels)
        )
        yield name, family.type, found, family.documentation


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in rows]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
