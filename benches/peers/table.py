"""Tables, for the terminal and as Markdown, and how figures are written in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """Rows under a title; the first column is text, the others are figures."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plain(self) -> str:
        """For the terminal."""
        cells = [list(self.columns), *self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        lines.insert(1, "-" * len(lines[0]))
        return "\n".join([self.title, *lines, *self.notes])

    def markdown(self) -> str:
        """For the results page."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cells) + " |"

        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        rows = [line(self.columns), line(rule), *(line(row) for row in self.rows)]
        parts = [f"**{self.title}**", "\n".join(rows), *self.notes]
        return "\n\n".join(parts)


def figure(value: float) -> str:
    """A time or a share with about three digits."""
    if math.isinf(value):
        return "none"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def trials(values: Sequence[float | None], middle: float) -> str:
    """The median and, where there are several, every run."""
    if len(values) < 2:
        return figure(middle)
    every = " ".join(figure(math.inf if value is None else value) for value in values)
    return f"{figure(middle)} ({every})"
