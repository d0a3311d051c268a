"""The long run's page: one file, drawn here as SVG, light and dark, in the style of client-sim's pages."""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from env import ROOT

# The pages of one project look alike.
STYLE = ROOT / "client-sim" / "src" / "report" / "html" / "style.css"

MIB = 1 << 20

# Sizes of a plot in pixels, for screens and for phones, and the room around what is drawn.
LAYOUTS = {"wide": (1100, 260), "narrow": (560, 300)}
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 12, 34

# Steps between two lines of a grid, in order, times a power of ten.
STEPS = (1, 2, 2.5, 5, 10)

Values = Sequence[float]
Report = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of a plot."""

    name: str
    values: Values


@dataclass(frozen=True)
class Plot:
    """Lines over the minutes of the run."""

    name: str
    title: str
    lead: str
    unit: str
    lines: tuple[Line, ...]
    from_zero: bool = True
    # Ends of the line that was judged, as (minute, value).
    trend: tuple[tuple[float, float], tuple[float, float]] | None = None


def number(value: float, decimals: int = 2) -> str:
    """A number without zeros at its end."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers from below `low` to above `high`, about `count` of them."""
    if high <= low:
        high = low + 1
    rough = (high - low) / max(1, count)
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * step for step in STEPS if power * step >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """From a value to a place."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a value, in pixels."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def svg(plot: Plot, minutes: Values, warm: float, layout: str) -> str:
    """A plot as SVG."""
    width, height = LAYOUTS[layout]
    values = [value for line in plot.lines for value in line.values]
    low = 0.0 if plot.from_zero else min(values)
    ys = ticks(low, max(values), 4)
    xs = ticks(0, max(minutes[-1], 1e-3), 10 if layout == "wide" else 5)
    x = Scale(0, max(minutes[-1], 1e-3), LEFT, width - RIGHT)
    y = Scale(ys[0], ys[-1], height - BOTTOM, TOP)
    parts = [shade(x, warm, height)] if plot.trend is not None else []
    for tick in ys:
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y.at(tick):.1f}" '
            f'y2="{y.at(tick):.1f}"/><text class="axis" x="{LEFT - 8}" y="{y.at(tick) + 4:.1f}" '
            f'text-anchor="end">{number(tick)}</text>'
        )
    parts += [
        f'<text class="axis" x="{x.at(tick):.1f}" y="{height - BOTTOM + 18}" '
        f'text-anchor="middle">{number(tick)}</text>'
        for tick in xs
        if tick <= x.high
    ]
    parts.append(
        f'<text class="axis" x="{width - RIGHT}" y="{height - 2}" text-anchor="end">minutes</text>'
    )
    parts += [
        f'<path class="line s{place}" d="{path(x, y, minutes, line.values)}" '
        f'data-name="{html.escape(line.name)}" data-y="{" ".join(map(number, line.values))}"/>'
        for place, line in enumerate(plot.lines, 1)
    ]
    if plot.trend is not None:
        (x1, y1), (x2, y2) = plot.trend
        parts.append(
            f'<line class="limit" x1="{x.at(x1):.1f}" y1="{y.at(y1):.1f}" x2="{x.at(x2):.1f}" '
            f'y2="{y.at(y2):.1f}"/>'
        )
    label = html.escape(f"{plot.title}, {plot.unit}, over {number(minutes[-1], 1)} minutes")
    return (
        f'<svg class="chart {layout}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def shade(x: Scale, warm: float, height: int) -> str:
    """The part that is not judged."""
    end = min(x.at(warm), x.end)
    return (
        f'<rect class="shade" x="{LEFT}" y="{TOP}" width="{end - LEFT:.1f}" '
        f'height="{height - BOTTOM - TOP}"/>'
    )


def path(x: Scale, y: Scale, minutes: Values, values: Values) -> str:
    """The line through all samples."""
    places = (
        f"{x.at(at):.1f},{y.at(value):.1f}" for at, value in zip(minutes, values, strict=True)
    )
    return "M" + "L".join(places)


def legend(plot: Plot) -> str:
    """The names of the lines, where there is more than one thing to tell."""
    swatch = '<svg class="swatch {}" viewBox="0 0 26 14">{}</svg>'
    items = [
        swatch.format(f"s{place}", f'<path class="line s{place}" d="M1 7H25"/>')
        + html.escape(line.name)
        for place, line in enumerate(plot.lines, 1)
    ]
    if plot.trend is not None:
        items.append(
            swatch.format("", '<line class="limit" x1="1" y1="7" x2="25" y2="7"/>') + "trend"
        )
    if len(items) < 2:
        return ""
    return '<ul class="legend">' + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def section(plot: Plot, minutes: Values, warm: float) -> str:
    """A plot with its heading, in both layouts."""
    drawn = "".join(svg(plot, minutes, warm, layout) for layout in LAYOUTS)
    return (
        f'<section id="{plot.name}"><h2>{html.escape(plot.title)}</h2>'
        f'<p class="lead">{html.escape(plot.lead)}</p><figure class="card">{legend(plot)}{drawn}'
        f"<figcaption>{html.escape(plot.unit)}</figcaption></figure></section>"
    )


def rates(samples: Sequence[Report], of: Callable[[Report], float]) -> list[float]:
    """What a counter gained per second up to each sample."""
    found = [0.0]
    for before, after in itertools.pairwise(samples):
        found.append((of(after) - of(before)) / max(1e-9, after["at"] - before["at"]))
    return found


def trend(report: Report) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The judged slope, through the middle of what was judged."""
    grown = report["growth_mib_per_10_min"]["rss"]
    judged = [s for s in report["samples"] if s["at"] >= report["warm_seconds"]]
    if grown is None or not judged:
        return None
    slope = max(grown["theil_sen"], grown["thirds"]) / 10
    middle = sorted(s["rss_bytes"] for s in judged)[len(judged) // 2] / MIB
    first, last = judged[0]["at"] / 60, judged[-1]["at"] / 60
    half = slope * (last - first) / 2
    return (first, middle - half), (last, middle + half)


def plots(report: Report) -> list[Plot]:
    """Everything that was sampled."""
    samples = report["samples"]

    def values(key: str, scale: float = 1) -> list[float]:
        return [sample[key] / scale for sample in samples]

    names = sorted(
        {name for sample in samples for name in sample["outcomes"]},
        key=lambda name: -samples[-1]["outcomes"].get(name, 0),
    )
    seen = [name for name in names if samples[-1]["outcomes"].get(name, 0)]

    def gained(name: str) -> list[float]:
        return rates(samples, lambda sample: sample["outcomes"].get(name, 0))

    # Six lines can be told apart; the rarest share the last one.
    outcomes = [Line(name, gained(name)) for name in seen[:5]]
    if rest := [gained(name) for name in seen[5:]]:
        outcomes.append(Line(", ".join(seen[5:]), [sum(at) for at in zip(*rest, strict=True)]))
    resident = Line("resident", values("rss_bytes", MIB))
    anon = Line("without pages of files", values("anon_bytes", MIB))
    shaded = "The shaded part is the warm-up, which is not judged."
    made = [
        Plot("memory", "Memory", shaded, "MiB", (resident, anon), trend=trend(report)),
        Plot("memory-near", "Memory, looked at closely", "The same without its zero.", "MiB",
             (resident,), from_zero=False, trend=trend(report)),
        Plot("files", "Open files", "Connections come and go; at the end all must be gone.",
             "open files and sockets", (Line("open files", values("fds")),)),
        Plot("threads", "Threads", "They do not depend on who is there.", "threads",
             (Line("threads", values("threads")),)),
        Plot("cameras", "Cameras", "Streams served at a time.", "streams",
             (Line("cameras", values("cameras")),)),
    ]  # fmt: skip
    if outcomes:
        made.append(
            Plot("outcomes", "Frames by outcome", "What became of frames, as means from sample to sample.",
                 "frames per second", tuple(outcomes))
        )  # fmt: skip
    cpu = rates(samples, lambda sample: sample["cpu_seconds"])
    made.append(Plot("cpu", "Processor", "Of the server.", "cores", (Line("cores", cpu),)))
    return made


def checks(report: Report) -> str:
    """What had to hold."""
    rows = "".join(
        f'<tr class="{"" if check["held"] else "bad"}"><th class="t" scope="row">'
        f'{html.escape(check["name"])}</th><td class="t">{html.escape(check["figure"])}</td>'
        f'<td class="t">{html.escape(check["mark"])}</td>'
        f'<td class="t {"better" if check["held"] else "worse"}">'
        f"{'holds' if check['held'] else 'fails'}</td></tr>"
        for check in report["checks"]
    )
    head = "".join(
        f'<th class="t" scope="col">{name}</th>' for name in ("what", "figure", "mark", "verdict")
    )
    return (
        '<section id="checks"><h2>What had to hold</h2><div class="table" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def problems(report: Report) -> str:
    """What clients complained of, if anything."""
    found = report["clients"]["problems"]
    if not found:
        return ""
    items = "".join(f"<li>{html.escape(problem)}</li>" for problem in found[:50])
    return f'<section id="problems"><h2>Problems</h2><div class="card"><ul>{items}</ul></div></section>'


def render(report: Report) -> str:
    """The whole file."""
    failed = [check["name"] for check in report["checks"] if not check["held"]]
    if report["interrupted"]:
        kind, word, sentence = "invalid", "INTERRUPTED", "It was ended before its time."
    elif report["held"]:
        kind, word, sentence = "pass", "HOLDS", "The server ended as it began."
    else:
        kind, word, sentence = "fail", "FAIL", f"Does not hold: {', '.join(failed)}."
    samples = report["samples"]
    minutes = [sample["at"] / 60 for sample in samples]
    drawn = ""
    if len(samples) > 1:
        drawn = "".join(
            section(plot, minutes, report["warm_seconds"] / 60) for plot in plots(report)
        )
    facts = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in report["facts"].items()
    )
    length = number(minutes[-1] if minutes else 0, 1)
    title = f"{word}: {length} minutes of everything at once"
    data = json.dumps(report).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n"
        "</head>\n<body>\n<main>\n"
        '<header><p class="kind">Vedette <span>long run</span></p>'
        f"<h1>{length} minutes of everything at once</h1></header>\n"
        f'<div class="banner {kind}"><div><strong>{word}</strong><p>{html.escape(sentence)}</p></div>'
        f"</div>\n{checks(report)}\n{problems(report)}\n{drawn}\n"
        f'<section id="setup"><h2>Where it ran</h2><div class="card"><dl class="facts">{facts}</dl>'
        "</div></section>\n</main>\n"
        "<footer>This file needs no network; its data is in it as JSON (element "
        "<code>#data</code>).</footer>\n"
        f'<script type="application/json" id="data">{data}</script>\n</body>\n</html>\n'
    )
