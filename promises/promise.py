"""What a promise is, the list of them all, and how findings are shown."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from env import Env

HOLDS = "HOLDS"
FAILS = "FAIL"

# Longest time that a row may take, in seconds, unless it says otherwise: the longest plain one watches
# streams for a minute and builds up a fleet before. A row that hangs must not hang the suite.
ROW_SECONDS = 420


class CannotRun(Exception):
    """What a row needs is not there. The row fails with this reason: nothing is skipped."""


@dataclass(frozen=True)
class Finding:
    """What a row measured, in words and units, and whether that is within its mark."""

    figure: str
    held: bool
    detail: str = ""

    @property
    def verdict(self) -> str:
        """As the table shows it."""
        return HOLDS if self.held else FAILS


Row = Callable[["Env"], Finding]


@dataclass(frozen=True)
class Promise:
    """One row of the suite. `quiet` rows judge latency and have the machine to themselves; the
    others run beside the long run. `last` rows look back on what the others recorded."""

    number: int
    title: str
    mark: str
    quiet: bool
    last: bool
    seconds: int
    row: Row

    @property
    def prose(self) -> str:
        """The scenario, from the row's docstring."""
        return inspect.getdoc(self.row) or ""


_REGISTRY: dict[int, Promise] = {}


def promise(
    number: int,
    title: str,
    *,
    mark: str,
    quiet: bool = False,
    last: bool = False,
    seconds: int = ROW_SECONDS,
) -> Callable[[Row], Row]:
    """Enters a function in the list of promises. Its docstring is the scenario."""

    def enter(row: Row) -> Row:
        if number in _REGISTRY:
            raise ValueError(f"promise {number} is tested twice")
        if not inspect.getdoc(row):
            raise ValueError(f"promise {number} does not say its scenario")
        _REGISTRY[number] = Promise(number, title, mark, quiet, last, seconds, row)
        return row

    return enter


def all_promises() -> list[Promise]:
    """Every promise whose module was imported, by number."""
    return [_REGISTRY[number] for number in sorted(_REGISTRY)]


Judged = tuple[Promise, Finding]


def table(judged: Iterable[Judged]) -> str:
    """The findings for a terminal: promise | figure | pass mark | verdict."""
    rows = [("promise", "figure", "pass mark", "verdict")]
    rows += [(f"{p.number} {p.title}", f.figure, p.mark, f.verdict) for p, f in judged]
    rows = [tuple(" ".join(cell.split()) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "-|-".join("-" * width for width in widths))
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text that cannot break a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def markdown(judged: Iterable[Judged], facts: dict[str, str]) -> str:
    """docs/promises.md: the table with its figures, then what each row does."""
    judged = list(judged)
    held = sum(finding.held for _, finding in judged)
    facts_line = "; ".join(f"{name}: {value}" for name, value in facts.items())
    lines = [
        "# The promises, and the test that proves each",
        "",
        f"Written by `make test-promises`; do not edit. {held} of {len(judged)} hold.",
        "",
        f"{facts_line}.",
        "",
        "| promise | figure | pass mark | verdict |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| [{p.number}](#{anchor(p)}) {cell(p.title)} | {cell(f.figure)} | {cell(p.mark)} | "
        f"{f.verdict} |"
        for p, f in judged
    ]
    for entry, finding in judged:
        lines += ["", f"## {entry.number} {entry.title}", "", entry.prose]
        if finding.detail:
            lines += ["", *(f"    {line}".rstrip() for line in finding.detail.splitlines())]
    return "\n".join(lines) + "\n"


def anchor(entry: Promise) -> str:
    """The heading's link target, as Markdown viewers make it: lower case, blanks to dashes, and only
    letters, digits, dashes and underscores."""
    heading = f"{entry.number} {entry.title}".lower().replace(" ", "-")
    return "".join(c for c in heading if c.isalnum() or c in "-_")
