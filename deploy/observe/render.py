"""Draws a dashboard from the answers to its queries: panels in their places, as a page of SVG.

This is not Grafana: it knows the four kinds of panels that the dashboards have and draws what a reader needs,
lines, stacks, a heatmap, numbers and tables. What it shows is what Prometheus answered.
"""

from __future__ import annotations

import html
import math
import re
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import queries
from prometheus import ROOT, Prometheus
from units import shown

sys.path.append(str(ROOT / "client-sim" / "tests" / "browser"))

from chromium import Browser, BrowserError, Page

from promise import CannotRun

WIDTH, COLUMNS, ROW, GAP = 1160, 24, 24, 6
SHORT_LEGEND = 4
CAPTION = (
    "Drawn from the dashboard's queries, not by Grafana. Two servers under load: at half of the time cameras "
    "begin to send faster, and then a client sends bytes that are no picture."
)

COLOURS = (
    "#3274d9",
    "#e0752d",
    "#299c46",
    "#8f3bb8",
    "#c4162a",
    "#b7a400",
    "#0f8f8f",
    "#705da0",
    "#8a5a2b",
)
NAMED = {
    "green": "#3a9d4f", "yellow": "#d9a400", "orange": "#e0752d", "red": "#d0202e",
    "light-red": "#e8747c", "dark-red": "#8c0f1a", "purple": "#8f3bb8", "blue": "#3274d9",
    "text": "#6e7687",
}  # fmt: skip

STYLE = """
body { margin: 0; background: #f2f4f7; font: 11px 'DejaVu Sans', sans-serif; color: #24292e; }
h1 { font-size: 15px; margin: 0; padding: 8px 10px 2px; }
p { margin: 0; padding: 0 10px 6px; color: #5a6372; }
.grid { position: relative; }
.panel { position: absolute; background: #fff; border: 1px solid #dde2e9; overflow: hidden; }
.panel h2 { font-size: 11px; margin: 0; padding: 4px 7px 0; font-weight: bold; white-space: nowrap; }
.row { position: absolute; font-weight: bold; font-size: 12px; padding: 5px 4px; }
.stat { text-align: center; font-size: 25px; }
.legend { padding: 0 7px; line-height: 13px; white-space: nowrap; overflow: hidden; }
.legend i { display: inline-block; width: 9px; height: 3px; margin: 0 3px 3px 0; }
.legend span { margin-right: 9px; }
table { border-collapse: collapse; margin: 4px 7px; width: calc(100% - 14px); }
td, th { text-align: left; padding: 2px 8px 2px 0; border-bottom: 1px solid #eceff3; white-space: nowrap; }
text { font: 10px 'DejaVu Sans', sans-serif; fill: #5a6372; }
"""

Line = tuple[str, list[tuple[float, float]]]


def legend(template: str, labels: dict[str, str]) -> str:
    """Grafana's {{label}} filled."""
    text = re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), template)
    return text or labels.get("__name__", "")


def lines_of(
    prometheus: Prometheus, panel: queries.Panel, span: tuple[float, float], window: str
) -> list[Line]:
    """All series of a panel; values that are no numbers are left out."""
    found: list[Line] = []
    for query in queries.panel_queries(panel):
        text = queries.filled(query.expression, window)
        lines = []
        for labels, samples in prometheus.query_range(text, *span, 1):
            points = [(t, v) for t, v in samples if math.isfinite(v)]
            if points:
                lines.append((legend(query.legend, labels), points))
        found += sorted(lines)
    return found


def ticks(low: float, high: float, unit: str = "", wanted: int = 4) -> list[float]:
    """Round numbers between two."""
    if unit == "bytes":
        scale = 1024.0 ** max(0, math.floor(math.log(max(high, 1.0), 1024)))
        return [scale * value for value in ticks(low / scale, high / scale)]
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9) / wanted))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if (high - low) / (step * m) <= wanted)
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]


class Plot:
    """A panel's plotting area, with axes."""

    LEFT, BOTTOM = 62, 16

    def __init__(
        self, size: tuple[float, float], span: tuple[float, float], high: float, low: float = 0.0
    ) -> None:
        self.width, self.height = size
        self.span, self.low, self.high = span, low, high
        self.parts: list[str] = []

    def x(self, at: float) -> float:
        """Where a moment lies."""
        return self.LEFT + (self.width - self.LEFT - 8) * (at - self.span[0]) / (
            self.span[1] - self.span[0]
        )

    def y(self, value: float) -> float:
        """Where a value lies."""
        inner = self.height - self.BOTTOM - 6
        return 6 + inner * (1 - (value - self.low) / (self.high - self.low))

    def axes(self, unit: str) -> None:
        """Lines and words at round values, times below."""
        for value in ticks(self.low, self.high, unit):
            y = self.y(value)
            self.parts.append(
                f'<line x1="{self.LEFT}" x2="{self.width - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6e9ee"/>'
            )
            self.words(self.LEFT - 4, y + 3.5, shown(value, unit), "end")
        self.times()

    def times(self) -> None:
        """Three moments."""
        for part in (0.08, 0.5, 0.92):
            at = self.span[0] + part * (self.span[1] - self.span[0])
            self.words(
                self.x(at), self.height - 3, time.strftime("%H:%M:%S", time.gmtime(at)), "middle"
            )

    def words(self, x: float, y: float, text: str, anchor: str) -> None:
        """A label."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        below: Sequence[float] | None = None,
    ) -> None:
        """A line, or the area between it and what lies below."""
        top = [f"{self.x(t):.1f},{self.y(min(v, self.high)):.1f}" for t, v in points]
        if below is None:
            self.parts.append(
                f'<polyline points="{" ".join(top)}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
            )
            return
        bottom = [
            f"{self.x(t):.1f},{self.y(min(b, self.high)):.1f}"
            for (t, _), b in zip(points, below, strict=True)
        ]
        self.parts.append(
            f'<polygon points="{" ".join(top + bottom[::-1])}" fill="{colour}" fill-opacity="0.75"/>'
        )

    def limit(self, value: float) -> None:
        """A threshold."""
        if self.low <= value <= self.high:
            y = self.y(value)
            self.parts.append(
                f'<line x1="{self.LEFT}" x2="{self.width - 8}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="#d0202e" stroke-dasharray="5 3"/>'
            )

    def svg(self) -> str:
        """The picture."""
        return (
            f'<svg width="{self.width:.0f}" height="{self.height:.0f}">{"".join(self.parts)}</svg>'
        )


def colours(panel: queries.Panel, lines: list[Line]) -> dict[str, str]:
    """A colour for each series: the dashboard's where it names one."""
    fixed = {
        override["matcher"]["options"]: NAMED[part["value"]["fixedColor"]]
        for override in panel["fieldConfig"]["overrides"]
        for part in override["properties"]
        if part["id"] == "color"
    }
    names = list(dict.fromkeys(name for name, _ in lines))
    return {name: fixed.get(name, COLOURS[at % len(COLOURS)]) for at, name in enumerate(names)}


def key(chosen: dict[str, str], lines: list[Line]) -> str:
    """The legend; of many series, those that are ever more than nothing."""
    if len(chosen) > SHORT_LEGEND:
        some = {name for name, points in lines if any(v != 0 for _, v in points)}
        chosen = {n: c for n, c in chosen.items() if n in some} or {"all 0": "#6e7687"}
    entries = (
        f'<span><i style="background:{c}"></i>{html.escape(n)}</span>'
        for n, c in chosen.items()
        if n
    )
    return f'<div class="legend">{"".join(entries)}</div>'


def stacked(plot: Plot, lines: list[Line], chosen: dict[str, str]) -> None:
    """Areas on top of each other."""
    moments = sorted({t for _, points in lines for t, _ in points})
    base = [0.0] * len(moments)
    for name, points in lines:
        values = dict(points)
        top = [b + values.get(t, 0.0) for t, b in zip(moments, base, strict=True)]
        plot.line(list(zip(moments, top, strict=True)), chosen[name], base)
        base = top


def highest(lines: list[Line], stack: bool) -> float:
    """The largest value to be drawn."""
    if not stack:
        return max(v for _, points in lines for _, v in points)
    sums: dict[float, float] = {}
    for _, points in lines:
        for t, v in points:
            sums[t] = sums.get(t, 0.0) + v
    return max(sums.values())


def timeseries(
    panel: queries.Panel, lines: list[Line], size: tuple[float, float], span: tuple[float, float]
) -> str:
    """Lines or stacked areas, with thresholds."""
    defaults = panel["fieldConfig"]["defaults"]
    stack = defaults["custom"].get("stacking", {}).get("mode") == "normal"
    steps = [
        step["value"]
        for step in defaults.get("thresholds", {}).get("steps", [])
        if step["value"] is not None
    ]
    high = (
        defaults.get("max", max([highest(lines, stack), *(s * 1.15 for s in steps)]) * 1.05) or 1.0
    )
    low = min(0.0, min(v for _, points in lines for _, v in points))
    plot = Plot((size[0], size[1] - 36), span, high, low * 1.1)
    plot.axes(defaults["unit"])
    chosen = colours(panel, lines)
    if stack:
        stacked(plot, lines, chosen)
    else:
        for name, points in lines:
            plot.line(points, chosen[name])
    for value in steps:
        plot.limit(value)
    return plot.svg() + key(chosen, lines)


def heatmap(lines: list[Line], size: tuple[float, float], span: tuple[float, float]) -> str:
    """Rows are the histogram's buckets, the darker the more answers."""
    bounds = sorted((float(name), dict(points)) for name, points in lines if name != "+Inf")
    rows: list[tuple[float, dict[float, float]]] = []
    before: dict[float, float] = {}
    for bound, counts in bounds:
        rows.append((bound, {t: c - before.get(t, 0.0) for t, c in counts.items()}))
        before = counts
    used = [at for at, (_, cells) in enumerate(rows) if any(v > 0 for v in cells.values())]
    rows = rows[max(used[0] - 1, 0) : used[-1] + 2]
    most = max(v for _, cells in rows for v in cells.values())
    plot = Plot((size[0], size[1] - 22), span, len(rows))
    wide = (plot.width - plot.LEFT - 8) / (span[1] - span[0]) + 0.3
    for at, (bound, cells) in enumerate(rows):
        top, bottom = plot.y(at + 1), plot.y(at)
        for t, value in cells.items():
            if value > 0:
                ink = math.ceil(8 * math.sqrt(value / most)) / 8
                plot.parts.append(
                    f'<rect x="{plot.x(t):.1f}" y="{top:.1f}" width="{wide:.1f}" height="{bottom - top:.1f}" '
                    f'fill="#d8540b" fill-opacity="{ink:.2f}"/>'
                )
        if at % 3 == 0 or bound == 0.1:
            plot.words(plot.LEFT - 4, top + 3.5, shown(bound, "s"), "end")
    plot.times()
    return plot.svg()


def stat(panel: queries.Panel, lines: list[Line]) -> str:
    """One number in its threshold's colour."""
    defaults = panel["fieldConfig"]["defaults"]
    value = lines[0][1][-1][1]
    colour = "green"
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return f'<div class="stat" style="color:{NAMED[colour]}">{html.escape(shown(value, defaults["unit"]))}</div>'


def table(prometheus: Prometheus, panel: queries.Panel, window: str) -> str:
    """Labels as columns, as the panel's transformation names and hides them."""
    options: dict[str, Any] = panel["transformations"][-1]["options"]
    hidden, names = options["excludeByName"], options["renameByName"]
    rows = [
        labels
        for labels, _ in prometheus.query(queries.filled(panel["targets"][0]["expr"], window))
    ]
    columns = sorted({label for row in rows for label in row if label not in hidden})
    head = "".join(f"<th>{html.escape(names.get(column, column))}</th>" for column in columns)
    unique = dict.fromkeys(tuple(row.get(column, "") for column in columns) for row in rows)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in unique
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def content(
    prometheus: Prometheus,
    panel: queries.Panel,
    size: tuple[float, float],
    span: tuple[float, float],
    window: str,
) -> str:
    """What a panel shows."""
    if panel["type"] == "table":
        return table(prometheus, panel, window)
    lines = lines_of(prometheus, panel, span, window)
    if not lines:
        return '<div class="stat">no data</div>'
    if panel["type"] == "stat":
        return stat(panel, lines)
    if panel["type"] == "heatmap":
        return heatmap(lines, size, span)
    return timeseries(panel, lines, size, span)


def page(prometheus: Prometheus, dashboard: queries.Dashboard, seconds: float, window: str) -> str:
    """The whole dashboard over the last seconds."""
    now = time.time()
    span, column, parts, bottom = (now - seconds, now), WIDTH / COLUMNS, [], 0
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] * column, place["y"] * ROW
        size = (place["w"] * column - GAP, place["h"] * ROW - GAP)
        bottom = max(bottom, (place["y"] + place["h"]) * ROW)
        where = f"left:{left + GAP / 2:.0f}px;top:{top:.0f}px;width:{size[0]:.0f}px;height:{size[1]:.0f}px"
        title = html.escape(panel["title"])
        if panel["type"] == "row":
            parts.append(f'<div class="row" style="{where}">{title}</div>')
            continue
        inside = content(prometheus, panel, size, span, window)
        parts.append(f'<div class="panel" style="{where}"><h2>{title}</h2>{inside}</div>')
    head = f"<h1>{html.escape(dashboard['title'])}</h1><p>{html.escape(CAPTION)}</p>"
    grid = f'<div class="grid" style="height:{bottom}px">{"".join(parts)}</div>'
    return f'<!doctype html><html><meta charset="utf-8"><style>{STYLE}</style><body>{head}{grid}</body></html>'


def smaller(png: bytes) -> bytes:
    """The same PNG, packed as well as zlib can: browsers are in a hurry."""
    at, chunks, data = 8, [], b""
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        else:
            chunks.append(png[at : at + 12 + size])
        at += 12 + size
    packed = zlib.compress(zlib.decompress(data), 9)
    body = b"IDAT" + packed
    image = len(packed).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    return png[:8] + b"".join(chunks[:-1]) + image + chunks[-1]


def picture(text: str, path: Path, work: Path) -> None:
    """Saves a page as PNG."""
    file = work / "dashboard.html"
    file.write_text(text, encoding="utf-8")
    try:
        with Browser() as browser:
            shown_page = Page(browser, WIDTH, 800, "light", False)
            shown_page.open(file)
            shown_page.picture(path)
        path.write_bytes(smaller(path.read_bytes()))
    except BrowserError as error:
        raise CannotRun(str(error)) from error
