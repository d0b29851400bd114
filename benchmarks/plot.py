"""A plot of lines over logarithmic axes as SVG, readable on light and on dark pages. The y axis may be linear."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 176, 40, 48
COLOURS = ("#2f81f7", "#d9730d", "#2da44e", "#bf4b8a", "#7a6ff0")
"""Colours with enough contrast on white and on black."""

GREY = "#808080"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot.

    points  (x, y), both above 0, in ascending order of x
    """

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis: turns values into places along it."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        """Yield 1, 2 and 5 times the powers of ten on the axis."""
        for power in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1):
            for digit in (1, 2, 5):
                if self.low * 0.999 <= (tick := digit * 10.0**power) <= self.high * 1.001:
                    yield tick


@dataclass(frozen=True, slots=True)
class _LinearScale(_Scale):
    """The same for an axis on which equal differences are equally far apart."""

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        """Yield six values from end to end."""
        for number in range(6):
            yield self.low + number * (self.high - self.low) / 5


def plot(title: str, *, x: str, y: str, lines: Sequence[Line], linear: tuple[float, float] | None = None) -> str:
    """Return a plot as an SVG document. ``x`` and ``y`` name the axes.

    linear  the lowest and the highest value of a linear y axis; None for a logarithmic one that holds all points
    """
    xs = [point[0] for line in lines for point in line.points]
    ys = [point[1] for line in lines for point in line.points]
    across = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    if linear is None:
        up = _Scale(_below(min(ys)), _above(max(ys)), HEIGHT - BOTTOM, TOP)
    else:
        up = _LinearScale(*linear, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        _text(LEFT, 20, title, size=14),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x, anchor="middle"),
        _text(LEFT - 8, TOP - 8, y, anchor="end"),
    ]
    for tick in up.ticks():
        parts.append(_rule(LEFT, up(tick), WIDTH - RIGHT, up(tick)))
        parts.append(_text(LEFT - 8, up(tick) + 4, f"{tick:g}", anchor="end"))
    for tick in dict.fromkeys(xs):
        parts.append(_rule(across(tick), TOP, across(tick), HEIGHT - BOTTOM))
        parts.append(_text(across(tick), HEIGHT - BOTTOM + 18, f"{tick:,g}", anchor="middle"))
    for colour, line in zip(COLOURS, lines, strict=False):
        places = [(across(point[0]), up(point[1])) for point in line.points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
    for at, (colour, line) in enumerate(zip(COLOURS, lines, strict=False)):
        height = TOP + 12 + 20 * at
        parts.append(f'<circle cx="{WIDTH - RIGHT + 16}" cy="{height - 4}" r="5" fill="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 28, height, line.name))
    return "\n".join([*parts, "</svg>", ""])


def _below(value: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is not above the value."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(digit * power for digit in (1, 2, 5) if digit * power <= value)


def _above(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return min(digit * power for digit in (1, 2, 5, 10) if digit * power >= value)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{GREY}">{escape(text)}</text>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GREY}" stroke-opacity="0.3"'
        ' stroke-width="1"/>'
    )
