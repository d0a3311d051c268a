"""The plot: slowest answer against cameras, as an SVG of its own with an opaque background."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 50, 60
LABEL_STEP = 18
INK, FAINT, PAPER = "#1f1f1f", "#e2e2e2", "#ffffff"


@dataclass(frozen=True)
class Point:
    """Median of the slowest answers at a count, and the band over the runs."""

    cameras: int
    median_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Line:
    """A server's points, ascending by count."""

    label: str
    colour: str
    points: Sequence[Point]
    bold: bool = False


class Scale:
    """From cameras and milliseconds to the drawing; time on a logarithmic axis."""

    def __init__(self, lines: Sequence[Line]) -> None:
        points = [point for line in lines for point in line.points]
        self.cameras = max((point.cameras for point in points), default=1)
        low = min((point.low_ms for point in points), default=5.0)
        high = max((point.high_ms for point in points), default=100.0)
        self.ticks = [10.0**power * step for power in range(-1, 6) for step in (1, 2, 5)]
        below = [ms for ms in self.ticks if ms <= low] or self.ticks[:1]
        above = [ms for ms in self.ticks if ms >= max(high, 200.0)] or self.ticks[-1:]
        self.ticks = [ms for ms in self.ticks if below[-1] <= ms <= above[0]]
        self.low, self.high = math.log10(below[-1]), math.log10(above[0])

    def x(self, cameras: float) -> float:
        """Across."""
        return LEFT + (WIDTH - LEFT - RIGHT) * cameras / self.cameras

    def y(self, ms: float) -> float:
        """Down."""
        share = (math.log10(max(ms, 10**self.low)) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def spread(wanted: Sequence[float], step: float, bottom: float) -> list[float]:
    """Positions close to the wanted ones, ascending, at least `step` apart, none below `bottom`."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    last = -math.inf
    for index in order:
        last = placed[index] = max(wanted[index], last + step)
    limit = bottom
    for index in reversed(order):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - step
    return placed


def text(x: float, y: float, words: str, *, anchor: str = "start", more: str = "") -> str:
    """A piece of writing."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def stroke(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def axes(scale: Scale) -> list[str]:
    """Grid, numbers and titles of both axes."""
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for ms in scale.ticks:
        y = scale.y(ms)
        shown = f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"
        parts.append(stroke(LEFT, y, right, y, f'stroke="{FAINT}"'))
        parts.append(text(LEFT - 8, y + 4, shown, anchor="end"))
    step = next(step for step in (1, 2, 5, 10, 20, 50) if step * 10 >= scale.cameras or step == 50)
    for cameras in range(0, scale.cameras + 1, step):
        x = scale.x(cameras)
        parts.append(stroke(x, floor, x, floor + 5, f'stroke="{INK}"'))
        parts.append(text(x, floor + 20, str(cameras), anchor="middle"))
    parts.append(stroke(LEFT, floor, right, floor, f'stroke="{INK}"'))
    parts.append(text((LEFT + right) / 2, floor + 44, "cameras at 10 frames/s", anchor="middle"))
    return parts


def promise(scale: Scale, slo_ms: float) -> list[str]:
    """The line that no answer should cross."""
    y = scale.y(slo_ms)
    style = f'stroke="{INK}" stroke-dasharray="6 4"'
    note = f"{slo_ms:g} ms: the next frame is due"
    return [
        stroke(LEFT, y, WIDTH - RIGHT, y, style),
        text(LEFT + 6, y - 6, note, more='font-style="italic"'),
    ]


def curve(line: Line, scale: Scale) -> list[str]:
    """Band, line and dots of a server."""
    points = [(scale.x(point.cameras), point) for point in line.points]
    upper = [f"{x:.1f},{scale.y(point.high_ms):.1f}" for x, point in points]
    lower = [f"{x:.1f},{scale.y(point.low_ms):.1f}" for x, point in reversed(points)]
    middle = [f"{x:.1f},{scale.y(point.median_ms):.1f}" for x, point in points]
    width = 3 if line.bold else 1.8
    dots = [
        f'<circle cx="{x:.1f}" cy="{scale.y(point.median_ms):.1f}" r="{width:g}" '
        f'fill="{line.colour}"/>'
        for x, point in points
    ]
    return [
        f'<polygon points="{" ".join(upper + lower)}" fill="{line.colour}" fill-opacity="0.13"/>',
        f'<polyline points="{" ".join(middle)}" fill="none" stroke="{line.colour}" '
        f'stroke-width="{width:g}" stroke-linejoin="round"/>',
        *dots,
    ]


def labels(lines: Sequence[Line], scale: Scale) -> list[str]:
    """Each server's name beside the end of its line."""
    ends = [
        (scale.x(line.points[-1].cameras), scale.y(line.points[-1].median_ms)) for line in lines
    ]
    places = spread([y for _, y in ends], LABEL_STEP, HEIGHT - BOTTOM)
    column = WIDTH - RIGHT + 22
    parts = []
    for line, (x, y), place in zip(lines, ends, places, strict=True):
        style = f'stroke="{line.colour}" stroke-opacity="0.5"'
        weight = ' font-weight="bold"' if line.bold else ""
        parts.append(stroke(x + 4, y, column - 4, place, style))
        parts.append(text(column, place + 4, line.label, more=f'fill="{line.colour}"{weight}'))
    return parts


def draw(title: str, lines: Sequence[Line], slo_ms: float) -> str:
    """The whole picture; lines without points are left out."""
    lines = [line for line in lines if line.points]
    scale = Scale(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
        text(LEFT, 28, title, more='font-size="16" font-weight="bold"'),
        *axes(scale),
        *promise(scale, slo_ms),
        *(part for line in lines for part in curve(line, scale)),
        *labels(lines, scale),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
