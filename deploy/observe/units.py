"""Numbers as panels show them, by the names that Grafana has for units."""

from __future__ import annotations

import math

TIMES = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001), ("µs", 0.000001))
SIZES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


def plain(value: float) -> str:
    """Three digits or so, without zeros at the end."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value: float, scale: tuple[tuple[str, float], ...]) -> str:
    """In the largest unit of which there is one at least."""
    for name, size in scale:
        if abs(value) >= size:
            return f"{plain(value / size)} {name}"
    return f"{plain(value / scale[-1][1])} {scale[-1][0]}" if value else f"0 {scale[-1][0]}"


def shown(value: float, unit: str) -> str:
    """A value with its unit."""
    if unit == "s":
        return scaled(value, TIMES) if value else "0 s"
    if unit == "bytes":
        return scaled(value, SIZES)
    if unit == "percentunit":
        return f"{plain(value * 100)} %"
    if unit.startswith("suffix:"):
        return f"{plain(value)} {unit.removeprefix('suffix:')}"
    return plain(value)
