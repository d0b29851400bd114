"""Draw a run of the demo: an SVG timeline with a row for each card and a bar for each pod that has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from gas.decision import names
from gas.decision.annotations import parse_container_cards
from gas.values.cards import Card
from sandbox.demo.pod_history import PodHistory
from sandbox.hardware.described_node import Hardware

WIDTH = 960
"""Pixels. The README shows the picture about 850 pixels wide."""

_LEFT, _RIGHT = 150, 20
_LANE, _BAR = 20, 17
_HEAD, _NODE_GAP = 78, 14

_SHORTEST_WAIT = 0.5
"""Least seconds that a pod waits to be shown as waiting."""

_COLORS = ("#3f6f9f", "#95578a", "#41853a", "#b5496f", "#2a7f7b", "#ad5a1e", "#6a5fa5", "#7d6c25")

_LAST_REASON = re.compile(r"(?:[:,] )\d+ ([^,]+)\.$")

_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.node { font-weight: 600; }
.faint { fill: #636c76; }
.pod { fill: #ffffff; font-size: 11px; font-weight: 600; }
.paper { fill: #ffffff; stroke: #d1d9e0; }
.row { fill: #f3f5f7; }
.grid { stroke: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .faint { fill: #9198a1; }
  .pod { fill: #ffffff; }
  .paper { fill: #0d1117; stroke: #3d444d; }
  .row { fill: #161c24; }
  .grid { stroke: #30363d; }
}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of the demo: pods in the order in which they were submitted, and the cards of nodes."""

    pods: Sequence[PodHistory]
    nodes: Mapping[str, Hardware]


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar. Times are seconds since the first pod was submitted."""

    begin: float
    end: float
    text: str
    color: str
    is_waiting: bool = False


class _Drawing:
    """SVG elements from top to bottom. ``top`` is the vertical position of the next row."""

    def __init__(self, seconds: float) -> None:
        self.top = float(_HEAD)
        self._scale = (WIDTH - _LEFT - _RIGHT) / seconds
        self._elements: list[str] = []

    def x(self, second: float) -> float:
        return _LEFT + second * self._scale

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self._elements.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>')

    def heading(self, text: str, about: str) -> None:
        self.top += _NODE_GAP
        self.text(16, self.top + 12, text, "node")
        self.text(_LEFT + 6, self.top + 12, about, "faint")
        self.top += 20

    def row(self, label: str, lanes: Sequence[Sequence[_Bar]]) -> None:
        height = _LANE * max(len(lanes), 1) + 3
        self._elements.append(
            f'<rect class="row" x="{_LEFT}" y="{self.top}" width="{WIDTH - _LEFT - _RIGHT}" height="{height - 3}"/>'
        )
        self.text(28, self.top + 14, label, "" if lanes else "faint")
        for number, lane in enumerate(lanes):
            for bar in lane:
                self._draw(bar, self.top + number * _LANE + (_LANE - _BAR) / 2)
        self.top += height

    def _draw(self, bar: _Bar, y: float) -> None:
        x, width = self.x(bar.begin), max((bar.end - bar.begin) * self._scale - 2, 2)
        shape = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" rx="3"'
        if bar.is_waiting:
            self._elements.append(f'<rect {shape} fill="url(#waiting)"/>')
            self.text(x + 6, y + 12.5, bar.text)
        else:
            self._elements.append(f'<rect {shape} fill="{bar.color}"/>')
            self.text(x + 6, y + 12.5, bar.text, "pod")

    def axis(self, seconds: float) -> None:
        for second in range(0, int(seconds) + 1, 2):
            x = self.x(second)
            self._elements.insert(0, f'<path class="grid" d="M{x:.1f} {_HEAD}V{self.top:.1f}"/>')
            self.text(x + 2, self.top + 14, f"{second} s", "faint")
        self.top += 20

    def svg(self, title: str) -> str:
        height = self.top + 14
        hatch = (
            '<pattern id="waiting" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<rect width="8" height="8" fill="#d4a72c" opacity="0.22"/>'
            '<rect width="4" height="8" fill="#d4a72c" opacity="0.25"/></pattern>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
                f"<title>{escape(title)}</title>",
                f"<style>{_STYLE}</style>",
                f"<defs>{hatch}</defs>",
                f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>',
                *self._elements,
                "</svg>\n",
            ]
        )


def draw(run: Run) -> str:
    start = min(pod.seen for pod in run.pods)
    end = max(pod.ended or pod.bound or pod.seen for pod in run.pods) - start
    drawing = _Drawing(end * 1.02)
    bars = _bars_by_card(run, start, end)
    title = f"make demo: {len(run.pods)} pods share the GPUs of {len(run.nodes)} nodes"
    drawing.text(16, 30, title, "title")
    drawing.text(
        16,
        50,
        "Each row is a GPU, each bar a pod that holds all or part of it. gt0 and gt1 are the tiles of a GPU.",
        "faint",
    )
    drawing.text(16, 67, "Recorded from a run with the real extender and device plugins. The GPUs are fake.", "faint")
    waiting = _waiting_bars(run, start, end)
    if waiting:
        drawing.heading("waiting pods", "until GPUs that fit are free")
        for pod, bar in waiting:
            drawing.row(pod, [[bar]])
    for node, hardware in run.nodes.items():
        drawing.heading(node, _about(hardware))
        cards = [Card(gpu.card) for gpu in hardware.gpus]
        for label, lanes in _rows(cards, {card: bars.get((node, card), []) for card in cards}):
            drawing.row(label, lanes)
    drawing.axis(end)
    drawing.top += 4
    drawing.text(16, drawing.top + 14, _result(run), "node")
    drawing.top += 18
    return drawing.svg(title)


def _about(hardware: Hardware) -> str:
    """Describe the cards of a node: ``2 GPUs with 8 GB each``."""
    count, model = len(hardware.gpus), hardware.gpus[0].model
    memory = model.memory * model.tiles if model.memory is not None else hardware.memory_override
    parts = [f"{memory / 1e9:.3g} GB"] if memory is not None else []
    parts += [f"{model.tiles} tiles"] if model.tiles > 1 else []
    return f"{count} GPUs" + (f" with {' and '.join(parts)} each" if parts else "")


def _bars_by_card(run: Run, start: float, end: float) -> dict[tuple[str, Card], list[_Bar]]:
    found: dict[tuple[str, Card], list[_Bar]] = {}
    for number, pod in enumerate(run.pods):
        if pod.bound is None:
            continue
        for card, tiles in _cards_and_tiles(pod).items():
            text = f"{pod.name} {tiles}".strip()
            color = _COLORS[number % len(_COLORS)]
            bar = _Bar(pod.bound - start, (pod.ended or end + start) - start, text, color)
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


def _waiting_bars(run: Run, start: float, end: float) -> list[tuple[str, _Bar]]:
    found = []
    for pod in run.pods:
        until = (pod.bound if pod.bound is not None else end + start) - start
        if pod.reason and until - (pod.seen - start) >= _SHORTEST_WAIT:
            match = _LAST_REASON.search(pod.reason)
            reason = match[1] if match else pod.reason
            found.append((pod.name, _Bar(pod.seen - start, until, reason, "", is_waiting=True)))
    return found


def _rows(cards: Sequence[Card], bars: Mapping[Card, Sequence[_Bar]]) -> list[tuple[str, list[list[_Bar]]]]:
    """Return label and lanes of each card; neighbouring cards without pods share a row."""
    rows: list[tuple[str, list[list[_Bar]]]] = []
    idle: list[Card] = []
    for card in (*cards, None):
        if card is not None and not bars[card]:
            idle.append(card)
            continue
        if idle:
            label = str(idle[0]) if len(idle) == 1 else f"{idle[0]} to {idle[-1]}"
            rows.append((label, []))
            idle = []
        if card is not None:
            rows.append((str(card), _lanes(bars[card])))
    return rows


def _lanes(bars: Sequence[_Bar]) -> list[list[_Bar]]:
    """Put bars that overlap into different lanes. ``bars`` are in order of time."""
    lanes: list[list[_Bar]] = []
    for bar in bars:
        for lane in lanes:
            if lane[-1].end <= bar.begin:
                lane.append(bar)
                break
        else:
            lanes.append([bar])
    return lanes


def _result(run: Run) -> str:
    bound = sum(pod.bound is not None for pod in run.pods)
    inside = [pod.inside for pod in run.pods if pod.inside is not None]
    correct = sum(each.as_decided for each in inside)
    return (
        f"{bound} of {len(run.pods)} pods got a node. "
        f"{correct} of {len(inside)} had exactly the decided GPUs in their containers."
    )
