"""Which runs are done, in which order, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import contest
from contest import CPU, REAL, WALL, Server
from measure import WARMUP_SECONDS
from samples import Sample, Spec, Store, collapsed, decided, next_count
from table import figure

PHASES = ("even", "ramp", "aligned")
# The article's experiment.
TABLE_CAMERAS = 30
# What a run takes besides its cameras' own time: start, connecting, stop.
OVERHEAD_SECONDS = 1.3
# Counts that the search for the largest takes per server, for the estimate.
SEARCH_COUNTS = 2
# Runs in a row without figures after which something other than the servers must be wrong.
FAILURES = 6


class Unfinished(Exception):
    """Not all runs were done; one line says why."""


@dataclass(frozen=True)
class Plan:
    """What the command line asks for."""

    clocks: Sequence[str]
    servers: Sequence[str]
    runs: int
    table_seconds: float
    sweep_seconds: float
    counts: dict[str, Sequence[int]]
    phase: str
    search: bool
    minutes: float

    def contestants(self, clock: str) -> list[Server]:
        """Those chosen that take part under a clock."""
        return [server for server in contest.contestants(clock) if server.key in self.servers]

    def phased(self) -> list[Server]:
        """Those chosen whose arrival phases are compared."""
        return [server for server in self.contestants(CPU) if server.key in contest.PHASED]


@dataclass(frozen=True)
class Stage:
    """Runs that belong together: every server at every count, count after count."""

    clock: str
    phase: str
    seconds: float
    counts: Sequence[int]
    servers: Sequence[Server]
    # Whether the largest count that holds is searched for between the counts.
    search: bool = False
    # Whether counts far beyond a server's collapse are left out.
    skip: bool = True


def stages(plan: Plan) -> list[Stage]:
    """Everything, what matters most first."""
    result = []
    for clock in (CPU, WALL):
        if clock in plan.clocks:
            everyone = plan.contestants(clock)
            table = Stage(clock, plan.phase, plan.table_seconds, [TABLE_CAMERAS], everyone)
            result.append(Stage(**{**vars(table), "skip": False}))
    if CPU in plan.clocks:
        sweep = Stage(
            CPU,
            plan.phase,
            plan.sweep_seconds,
            plan.counts[CPU],
            plan.contestants(CPU),
            plan.search,
        )
        result.insert(1, sweep)
    if CPU in plan.clocks and plan.search:
        for phase in PHASES:
            if phase != plan.phase:
                result.append(Stage(CPU, phase, plan.table_seconds, [TABLE_CAMERAS], plan.phased()))
    for clock in (REAL, WALL):
        if clock in plan.clocks:
            search = plan.search and clock == REAL
            result.append(
                Stage(
                    clock,
                    plan.phase,
                    plan.sweep_seconds,
                    plan.counts[clock],
                    plan.contestants(clock),
                    search,
                )
            )
    return result


def cost_seconds(seconds: float) -> float:
    """Time that a run takes."""
    return OVERHEAD_SECONDS + WARMUP_SECONDS + seconds


class Campaign:
    """Does the runs of a plan that the store does not have yet."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        measure: Callable[[Server, Spec], Sample],
        say: Callable[[str], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.store = store
        self.measure = measure
        self.say = say
        self.now = now
        self.began = now()
        self.done = 0
        self.failures = 0
        self.stages = stages(plan)

    # ---- What is left ----

    def missing(self, stage: Stage, server: Server, cameras: int) -> list[Spec]:
        """Runs of a server at a count that are still to be done."""
        have = len(self.store.of(server.key, stage.clock, stage.phase, cameras))
        return [
            Spec(server.key, stage.clock, stage.phase, cameras, stage.seconds, run)
            for run in range(have, self.plan.runs)
        ]

    def skipped(self, stage: Stage, server: Server, cameras: int) -> bool:
        """Whether the server has collapsed long before this count."""
        worst = self.store.worst(server.key, stage.clock, stage.phase)
        return stage.skip and collapsed(worst, cameras)

    def left(self, stages: Sequence[Stage]) -> list[float]:
        """Times of the runs that these stages take at most, the search by a guess."""
        grid: dict[Spec, float] = {}
        searched: list[float] = []
        for stage in stages:
            cost = cost_seconds(stage.seconds)
            for cameras in stage.counts:
                for server in stage.servers:
                    if not self.skipped(stage, server, cameras):
                        for spec in self.missing(stage, server, cameras):
                            # Two stages may have a count in common.
                            grid.setdefault(replace(spec, seconds=0.0), cost)
            if stage.search:
                runs = len(stage.servers) * SEARCH_COUNTS * (self.plan.runs // 2 + 1)
                searched += [cost] * runs
        return [*grid.values(), *searched]

    # ---- Doing it ----

    def run(self) -> None:
        """All stages; raises Unfinished when the time is up."""
        for at, stage in enumerate(self.stages):
            for cameras in sorted(stage.counts):
                servers = [
                    server for server in stage.servers if not self.skipped(stage, server, cameras)
                ]
                self.interleave(at, stage, [(server, cameras) for server in servers])
            if stage.search:
                self.search(at, stage)

    def search(self, at: int, stage: Stage) -> None:
        """Halves the gap between the last count that holds and the next, server beside server."""
        while True:
            wanted = []
            for server in stage.servers:
                held = self.store.held(server.key, stage.clock, stage.phase)
                if (cameras := next_count(held)) is not None:
                    wanted.append((server, cameras))
            if not wanted:
                return
            self.interleave(at, stage, wanted, early=True)

    def interleave(
        self, at: int, stage: Stage, pairs: Sequence[tuple[Server, int]], *, early: bool = False
    ) -> None:
        """Run after run, all servers in turn, so that the machine's drift meets all alike.

        With `early`, a count that is decided takes no more runs.
        """
        todo = [iter(self.missing(stage, server, cameras)) for server, cameras in pairs]
        for _ in range(self.plan.runs):
            for (server, cameras), specs in zip(pairs, todo, strict=True):
                have = self.store.of(server.key, stage.clock, stage.phase, cameras)
                if early and decided(have, self.plan.runs):
                    continue
                self.one(at, server, specs)

    def one(self, at: int, server: Server, specs: Iterator[Spec]) -> None:
        """The next run of a server, if one is left."""
        spec = next(specs, None)
        if spec is None:
            return
        if self.now() - self.began + cost_seconds(spec.seconds) > self.plan.minutes * 60:
            raise Unfinished(
                f"stopped after {self.plan.minutes:g} minutes (--minutes); "
                "go on with the same command and --resume"
            )
        sample = self.measure(server, spec)
        self.store.add(sample)
        self.done += 1
        self.failures = self.failures + 1 if sample.error else 0
        self.report(at, sample)
        if self.failures >= FAILURES:
            raise Unfinished(f"{FAILURES} runs in a row gave nothing, the last: {sample.error}")

    def report(self, at: int, sample: Sample) -> None:
        """A line of progress."""
        left = self.left(self.stages[at:])
        spec = sample.spec
        what = f"slowest {figure(sample.worst())} ms, {sample.unanswered} unanswered"
        repeated = f", {sample.invalid} invalid tries" if sample.invalid else ""
        self.say(
            f"[{self.done}/{self.done + len(left)}, {sum(left) / 60:.0f} min left] "
            f"{spec.clock} {spec.phase} {spec.cameras} cameras, run {spec.run + 1}: "
            f"{spec.server}: {sample.error or what + repeated}"
        )
