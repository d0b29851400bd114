"""Draw a run of the demo: a timeline with a row for each card and a bar for each pod that has it, as SVG by rich."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from gas.decision import names
from gas.decision.annotations import parse_container_cards
from gas.values.cards import Card
from sandbox.demo.pod_history import PodHistory
from sandbox.hardware.described_node import Hardware

WIDTH = 120
_LABEL = 16

_SHORTEST_WAIT = 0.5  # least seconds that a pod waits to be shown as waiting

_WAITING = "on #f1e0b5"
_COLORS = ("#3f6f9f", "#95578a", "#41853a", "#b5496f", "#2a7f7b", "#ad5a1e", "#6a5fa5", "#7d6c25")

_LAST_REASON = re.compile(r"(?:[:,] )\d+ ([^,]+)\.$")


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of the demo: pods in the order in which they were submitted, and the cards of nodes."""

    pods: Sequence[PodHistory]
    nodes: Mapping[str, Hardware]


@dataclass(frozen=True, slots=True)
class _Bar:
    begin: float
    end: float
    text: str
    style: str


def draw(run: Run) -> str:
    end = max(pod.ended or pod.bound or pod.seen for pod in run.pods)
    start = min(pod.seen for pod in run.pods)
    columns = (WIDTH - _LABEL) / ((end - start) * 1.02)
    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False, emoji=False, markup=False)

    def print_row(label: str, lanes: Sequence[Iterable[_Bar]]) -> None:
        for number, bars in enumerate(lanes):
            row = Text("" if number else f"  {label}", no_wrap=True, overflow="ellipsis")
            for bar in bars:
                at = _LABEL + round((bar.begin - start) * columns)
                row.pad_right(at - len(row))
                row.append(bar.text.ljust(round((bar.end - bar.begin) * columns)))
                row.stylize(bar.style, at, at + round((bar.end - bar.begin) * columns))
            console.print(row)

    console.print("Each row is a GPU, each bar a pod that holds all or part of it. gt0 and gt1 are the tiles of a GPU.")
    console.print("Recorded from a run with the real extender and device plugins. The GPUs are fake.")
    if waiting := _waiting_bars(run.pods, end):
        console.print("\nwaiting pods", style="bold")
        for pod, bar in waiting.items():
            print_row(pod, [[bar]])
    bars = _bars_by_card(run.pods, end)
    for node, hardware in run.nodes.items():
        console.print(Text(f"\n{node}", "bold").append(f"  {_about(hardware)}", "not bold"))
        for gpu in hardware.gpus:
            card = Card(gpu.card)
            print_row(str(card), _lanes(bars.get((node, card), [])) or [[]])
    seconds = range(0, int(end - start) + 1, 2)
    console.print()
    print_row("", [[_Bar(start + second, start + second, f"{second} s", "") for second in seconds]])
    console.print(_result(run.pods), style="bold")
    title = f"make demo: {len(run.pods)} pods share the GPUs of {len(run.nodes)} nodes"
    svg = console.export_svg(title=title, theme=DEFAULT_TERMINAL_THEME, unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # which would load fonts from elsewhere


def _about(hardware: Hardware) -> str:
    """Describe the cards of a node: ``2 GPUs with 8 GB each``."""
    count, model = len(hardware.gpus), hardware.gpus[0].model
    memory = model.memory * model.tiles if model.memory is not None else hardware.memory_override
    parts = [f"{memory / 1e9:.3g} GB"] if memory is not None else []
    parts += [f"{model.tiles} tiles"] if model.tiles > 1 else []
    return f"{count} GPUs" + (f" with {' and '.join(parts)} each" if parts else "")


def _bars_by_card(pods: Iterable[PodHistory], end: float) -> dict[tuple[str, Card], list[_Bar]]:
    found: dict[tuple[str, Card], list[_Bar]] = {}
    for number, pod in enumerate(pods):
        if pod.bound is None:
            continue
        for card, tiles in _cards_and_tiles(pod).items():
            bar = _Bar(
                pod.bound,
                pod.ended or end,
                f"{pod.name} {tiles}".strip(),
                f"#ffffff on {_COLORS[number % len(_COLORS)]}",
            )
            found.setdefault((pod.node, card), []).append(bar)
    return {place: sorted(bars, key=lambda bar: bar.begin) for place, bars in found.items()}


def _cards_and_tiles(pod: PodHistory) -> dict[Card, str]:
    """Return the cards of all containers of a pod, each with the names of its tiles, "" for whole cards."""
    found: dict[Card, str] = {}
    for name in (names.INIT_CONTAINER_CARDS, names.CONTAINER_CARDS):
        for cards in parse_container_cards(pod.annotations.get(name, "")):
            found |= dict.fromkeys(cards, "")
    for entry in re.split(r"[|,]", pod.annotations.get(names.CONTAINER_TILES, "")):
        card, _, tiles = entry.partition(":")
        if tiles:
            found[Card.parse(card)] = tiles
    return found


def _waiting_bars(pods: Iterable[PodHistory], end: float) -> dict[str, _Bar]:
    found = {}
    for pod in pods:
        until = pod.bound if pod.bound is not None else end
        if pod.reason and until - pod.seen >= _SHORTEST_WAIT:
            match = _LAST_REASON.search(pod.reason)
            found[pod.name] = _Bar(pod.seen, until, match[1] if match else pod.reason, _WAITING)
    return found


def _lanes(bars: Iterable[_Bar]) -> list[list[_Bar]]:
    """Put bars that overlap into different lanes. ``bars`` are in order of time."""
    lanes: list[list[_Bar]] = []
    for bar in bars:
        free = next((lane for lane in lanes if lane[-1].end <= bar.begin), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes


def _result(pods: Sequence[PodHistory]) -> str:
    bound = sum(pod.bound is not None for pod in pods)
    inside = [pod.inside.as_decided for pod in pods if pod.inside is not None]
    return (
        f"{bound} of {len(pods)} pods got a node. "
        f"{sum(inside)} of {len(inside)} had exactly the decided GPUs in their containers."
    )
