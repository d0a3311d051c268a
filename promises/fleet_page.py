"""What a fleet's test found, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fleet_judge import BACK_SECONDS, EVEN_SHARE
from fleet_play import AGE_JITTER, AGE_SECONDS, CAMERAS, FPS, SETTLE_SECONDS, WINDOW_SECONDS, Phase, Played
from promise import cell

BEGIN = "<!-- measured: written by python3 promises/fleet.py --runs 3; do not edit -->"
END = "<!-- end of measured -->"

HEAD = (
    "| run | behind | load | back after kill, s | back after drain, s | off the mean in each phase, % | "
    "sent | answered OK | not taken in | lost with the killed | reconnects | verdict |"
)


def seconds(phase: Phase) -> str:
    """When struck cameras were back: how many, the median, the last."""
    times = sorted(time for time in phase.back_seconds if time is not None)
    if not times or len(times) < len(phase.back_seconds):
        return f"{len(times)} of {len(phase.back_seconds)} came back"
    return f"{len(times)}: {times[len(times) // 2]:.2f} / {times[-1]:.2f}"


def row(number: int, one: Played) -> str:
    """A play."""
    by_event = {phase.event: phase for phase in one.phases}
    off = " ".join(f"{phase.farthest * 100:.1f}" for phase in one.phases)
    share = one.ok / one.due if one.due else 0.0
    cells = [
        f"{number}",
        one.front,
        f"{one.load_average:.2f}",
        seconds(by_event["kill"]),
        seconds(by_event["drain"]),
        off,
        f"{one.accounts.sent}",
        f"{share:.2%} of {one.due} due",
        f"{one.accounts.unaccepted}",
        f"{one.accounts.lost}",
        f"{one.reconnects}",
        "holds" if not one.wrong else cell("FAIL: " + "; ".join(one.wrong)),
    ]
    return f"| {' | '.join(cells)} |"


def table(found: Sequence[Sequence[Played]]) -> str:
    """Every play of every run."""
    rows = [row(number, one) for number, each in enumerate(found, 1) for one in each]
    return "\n".join([HEAD, "|" + "---|" * (HEAD.count("|") - 1), *rows])


def section(found: Sequence[Sequence[Played]], facts: dict[str, str]) -> str:
    """The part of docs/fleet.md."""
    plays = [one for each in found for one in each]
    held = sum(not one.wrong for one in plays)
    lines = [
        "; ".join(f"{name}: {value}" for name, value in facts.items()) + ".",
        "",
        f"{CAMERAS} cameras at {FPS} FPS. Marks: each struck camera has its first OK answer within "
        f"{BACK_SECONDS:g} s of the signal; every server within {EVEN_SHARE:.0%} of the mean over "
        f"{WINDOW_SECONDS:g} s, {SETTLE_SECONDS:g} s after each event; books that agree to the frame. Streams end for "
        f"their age after {AGE_SECONDS} to {AGE_SECONDS * (1 + AGE_JITTER):g} s. {held} of {len(plays)} plays hold.",
        "",
        table(found),
    ]
    return "\n".join(lines)


def between_markers(text: str, new: str) -> str:
    """The page with its measured part replaced."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/fleet.md lacks '{BEGIN}' or '{END}'")
    return f"{head}{begin}\n\n{new}\n\n{end}{tail}"
