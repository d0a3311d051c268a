"""One run's figures, and what follows from several."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SLO_MS = 100.0
# Two counts in a row that are slower than this, and higher ones are not tried.
COLLAPSED_MS = 1000.0
# What client-sim says when it could not keep its own pace.
INVALID = "INVALID"


@dataclass(frozen=True)
class Spec:
    """A run to do."""

    server: str
    clock: str
    phase: str
    cameras: int
    seconds: float
    run: int


@dataclass(frozen=True)
class Sample:
    """A run that was done. Without any answer there are no times, and `error` may say why."""

    spec: Spec
    verdict: str
    sent: int
    # Frames of the measured part without an OK answer, for whatever reason.
    unanswered: int
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    # Of the server's processes together, for each frame answered.
    cpu_ms: float | None
    # Peak resident memory of the server's processes together; pages they share count for each.
    memory_mib: float
    # Tries before this one in which the simulator could not keep its own pace.
    invalid: int = 0
    error: str = ""

    def worst(self) -> float:
        """Slowest answer; infinite when there was none."""
        return math.inf if self.max_ms is None else self.max_ms

    def judged(self) -> float:
        """Slowest answer where each frame had one."""
        sound = self.unanswered == 0 and not self.error and self.verdict != INVALID
        return self.worst() if sound else math.inf


def median(values: Iterable[float | None]) -> float:
    """Of what was measured, the slower of two in the middle; infinite where a run gave nothing."""
    found = [math.inf if value is None else value for value in values]
    return statistics.median_high(found) if found else math.inf


def holds(samples: Sequence[Sample]) -> bool:
    """Whether the median run answered every frame in time."""
    return bool(samples) and median(sample.judged() for sample in samples) < SLO_MS


def decided(samples: Sequence[Sample], runs: int) -> bool:
    """Whether the runs left cannot change `holds` any more."""
    passed = sum(sample.judged() < SLO_MS for sample in samples)
    needed = runs // 2 + 1
    return passed >= needed or len(samples) - passed > runs - needed


def collapsed(worst_by_count: dict[int, float], cameras: int) -> bool:
    """Whether the two counts tried below this one were both far too slow."""
    below = sorted(count for count in worst_by_count if count < cameras)[-2:]
    return len(below) == 2 and all(worst_by_count[count] > COLLAPSED_MS for count in below)


def bracket(held: dict[int, bool]) -> tuple[int, int | None]:
    """The largest count that holds with all below it, and the first that does not."""
    low = 0
    for count in sorted(held):
        if not held[count]:
            return low, count
        low = count
    return low, None


def next_count(held: dict[int, bool]) -> int | None:
    """The count to try next in search of the largest that holds; None when it is found."""
    low, high = bracket(held)
    if high is None or high - low <= 1:
        return None
    return (low + high) // 2


class Store:
    """Samples of this and earlier invocations, in a file with one JSON object per line."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.path = path
        self.samples: dict[Spec, Sample] = {}
        if keep and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                if (sample := parse(line)) is not None:
                    self.samples[sample.spec] = sample
        elif not keep:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")

    def add(self, sample: Sample) -> None:
        """Keeps it, at once also in the file."""
        self.samples[sample.spec] = sample
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(sample)) + "\n")

    def of(self, server: str, clock: str, phase: str, cameras: int) -> list[Sample]:
        """All runs of a server at a count, in order."""
        wanted = (server, clock, phase, cameras)
        found = [
            sample
            for spec, sample in self.samples.items()
            if (spec.server, spec.clock, spec.phase, spec.cameras) == wanted
        ]
        return sorted(found, key=lambda sample: (sample.spec.seconds, sample.spec.run))

    def counts(self, server: str, clock: str, phase: str) -> list[int]:
        """The counts that were tried, ascending."""
        wanted = (server, clock, phase)
        found = {
            spec.cameras for spec in self.samples if (spec.server, spec.clock, spec.phase) == wanted
        }
        return sorted(found)

    def held(self, server: str, clock: str, phase: str) -> dict[int, bool]:
        """Whether each count tried holds."""
        return {
            count: holds(self.of(server, clock, phase, count))
            for count in self.counts(server, clock, phase)
        }

    def worst(self, server: str, clock: str, phase: str) -> dict[int, float]:
        """Median of the slowest answers at each count tried."""
        return {
            count: median(sample.max_ms for sample in self.of(server, clock, phase, count))
            for count in self.counts(server, clock, phase)
        }


def parse(line: str) -> Sample | None:
    """A line of the file; None for one that was cut off or is of another version."""
    try:
        fields = json.loads(line)
        return Sample(**{**fields, "spec": Spec(**fields["spec"])})
    except (ValueError, TypeError, KeyError):
        return None
