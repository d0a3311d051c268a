"""The shipped rules with their times divided by 60, so that what takes an hour can be watched.

Changed are durations only: after `for:` and `offset`, and within `[...]`. A minute becomes a second. What a
window holds must be enough for a rate at one scrape a second, so none is shorter than 5 s, and no
`for:` shorter than 1 s. Expressions, thresholds, labels and texts stay as they are.
"""

from __future__ import annotations

import re

FACTOR = 60
LEAST_WINDOW_SECONDS = 5
LEAST_FOR_SECONDS = 1

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

# A duration with what stands before it: the only places where the rules have one.
DURATION = re.compile(
    r"(?P<before>\[|\boffset |^ *for: )(?P<number>\d+)(?P<unit>[smhd])", re.MULTILINE
)


def shorter(seconds: float, before: str) -> int:
    """A duration in seconds, divided, within its bounds."""
    least = LEAST_WINDOW_SECONDS if before == "[" else LEAST_FOR_SECONDS
    return max(round(seconds / FACTOR), least)


def shorten(rules: str) -> str:
    """The text of a rules file with its durations divided."""

    def replaced(found: re.Match[str]) -> str:
        seconds = int(found["number"]) * UNIT_SECONDS[found["unit"]]
        return f"{found['before']}{shorter(seconds, found['before'])}s"

    return DURATION.sub(replaced, rules)


def without_durations(rules: str) -> str:
    """What must be the same before and after."""
    return DURATION.sub(lambda found: f"{found['before']}D", rules)
