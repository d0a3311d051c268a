"""What a long run is watched by: samples of the server, how they grow, and what they have to hold."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from server import OUTCOMES, RECEIVED, STREAMS

if TYPE_CHECKING:
    from server import Server

MIB = 1 << 20

# Time from one sample to the next, in seconds.
SAMPLE_SECONDS = 5.0

# The part before memory is judged, in seconds. Buffers grow to the largest picture seen, the allocator
# keeps what it has, and pages of libraries are read when their code first runs; what is played shows the
# server everything in this time.
WARM_SECONDS = 120.0

# Most by which resident memory may grow after that, in MiB per 10 minutes.
GROWTH_MARK = 1.0

TEN_MINUTES = 600.0

Point = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """The server at an instant, `at` seconds after the run began."""

    at: float
    rss_bytes: int
    anon_bytes: int
    fds: int
    threads: int
    cameras: int
    cpu_seconds: float
    received: int
    outcomes: dict[str, int]


@dataclass(frozen=True)
class Level:
    """What a server holds when nobody is there."""

    fds: int
    threads: int


@dataclass(frozen=True)
class Check:
    """Something that has to hold."""

    name: str
    figure: str
    mark: str
    held: bool


def parse_status(text: str) -> dict[str, int]:
    """The numbers of /proc/PID/status; sizes are in bytes."""
    found = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[key] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


def status(pid: int) -> dict[str, int]:
    """What the kernel says about a process."""
    return parse_status(Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace"))


def level(server: Server) -> Level:
    """Files and threads now."""
    return Level(server.fds(), status(server.pid)["Threads"])


def take(server: Server, at: float) -> Sample:
    """A sample. The kernel is asked first, so that the question for metrics is in no number."""
    fds, known = server.fds(), status(server.pid)
    metrics = server.metrics()
    outcomes = {
        series.split('"')[1]: int(value)
        for series, value in metrics.items()
        if series.startswith(OUTCOMES)
    }
    return Sample(
        at=at,
        rss_bytes=known["VmRSS"],
        anon_bytes=known["RssAnon"],
        fds=fds,
        threads=known["Threads"],
        cameras=int(metrics[STREAMS]),
        cpu_seconds=server.cpu_seconds(),
        received=int(metrics[RECEIVED]),
        outcomes=outcomes,
    )


def theil_sen(points: Sequence[Point]) -> float:
    """The median of the slopes of all pairs."""
    pairs = itertools.combinations(points, 2)
    return statistics.median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 > x1)


def by_thirds(points: Sequence[Point]) -> float:
    """The slope from the medians of the first third to those of the last (Tukey's resistant line)."""
    count = max(1, len(points) // 3)

    def middle(part: Sequence[Point]) -> Point:
        return statistics.median(x for x, _ in part), statistics.median(y for _, y in part)

    (x1, y1), (x2, y2) = middle(points[:count]), middle(points[-count:])
    return (y2 - y1) / (x2 - x1)


def least_squares(points: Sequence[Point]) -> float:
    """The usual slope."""
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


@dataclass(frozen=True)
class Growth:
    """How memory grew after the warm-up, in MiB per 10 minutes, by three estimates.

    Memory does not lie along a line: a connection brings its buffers and takes them away, which are
    spikes, and a single one near an end tilts least squares. The median of all pairs' slopes does not
    move for up to 29 % of the samples, but it overlooks a leak that comes in one step, which the medians
    of the outer thirds see. So both must stay below the mark; least squares is told for comparison.
    """

    theil_sen: float
    thirds: float
    least_squares: float

    @property
    def judged(self) -> float:
        """The one that counts."""
        return max(self.theil_sen, self.thirds)

    @property
    def held(self) -> bool:
        """Whether memory stays where it is."""
        return self.judged < GROWTH_MARK


def growth(points: Sequence[Point], warm_seconds: float = WARM_SECONDS) -> Growth | None:
    """How memory grew, of points of seconds and bytes; None when there are too few to say."""
    judged = [(at, size) for at, size in points if at >= warm_seconds]
    if len(judged) < 6:
        return None
    scale = TEN_MINUTES / MIB
    return Growth(
        theil_sen(judged) * scale, by_thirds(judged) * scale, least_squares(judged) * scale
    )


@dataclass
class Record:
    """All that was seen of the server."""

    samples: list[Sample] = field(default_factory=list)
    begin: Level | None = None
    end: Level | None = None
    cameras_left: int = 0
    received: int = 0
    outcomes: int = 0
    alive: bool = False
    panics: int = 0

    def rss(self) -> Growth | None:
        """Growth of resident memory: the figure that is judged."""
        return growth([(sample.at, sample.rss_bytes) for sample in self.samples])

    def anon(self) -> Growth | None:
        """Growth of what the process has written itself, without pages of files."""
        return growth([(sample.at, sample.anon_bytes) for sample in self.samples])


def checks_of(record: Record) -> list[Check]:
    """What the server has to hold, by what was seen of it."""
    rss, begin, end = record.rss(), record.begin, record.end
    figure = "too short to say"
    if rss is not None:
        judged = (record.samples[-1].at - WARM_SECONDS) / 60
        figure = f"{rss.judged:+.2f} MiB per 10 min, over {judged:.1f} min"
    mark = f"< {GROWTH_MARK:g} MiB per 10 min after the first {WARM_SECONDS / 60:g} minutes"
    found = [Check("memory", figure, mark, rss is not None and rss.held)]
    for name in ("fds", "threads"):
        before, after = getattr(begin, name, None), getattr(end, name, None)
        held = before is not None and after is not None and after <= before
        label = {"fds": "open files", "threads": "threads"}[name]
        found.append(Check(label, f"{before} -> {after}", "as at the start", held))
    balance = f"{record.received} received, {record.outcomes} ended"
    same = record.received == record.outcomes and record.received > 0
    found.append(Check("accounts", balance, "received = sum of outcomes", same))
    left = f"{record.cameras_left} left"
    found.append(Check("cameras", left, "none left at the end", record.cameras_left == 0))
    lives = f"{'alive' if record.alive else 'gone'}, {record.panics} panics"
    found.append(Check("process", lives, "alive, no panic", record.alive and record.panics == 0))
    return found
