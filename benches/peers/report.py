"""Tables, marks and sentences that follow from the samples. Every figure in them is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import contest
from campaign import PHASES, TABLE_CAMERAS, Plan
from contest import CPU, OURS, REAL, SAME_WORK, WALL, WORK_MS, Server
from plot import Line, Point
from samples import INVALID, SLO_MS, Sample, Store, bracket, collapsed, median
from table import Table, figure, trials

NOT_TRIED = "-"
NOT_MEASURED = "Not measured."
Pick = Callable[[Sample], float | None]


@dataclass(frozen=True)
class Mark:
    """A promise and what came of it; None: could not be judged."""

    promise: str
    found: str
    held: bool | None

    def verdict(self) -> str:
        """One word."""
        return {True: "PASS", False: "FAIL", None: "NOT TRIED"}[self.held]


class Results:
    """The samples under a plan."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self.store = store
        self.plan = plan

    def runs(self, clock: str, key: str, cameras: int, phase: str = "") -> list[Sample]:
        """Of a server at a count. Ours has no wall-clock loop: it stands there with the other."""
        clock = CPU if key == OURS and clock == WALL else clock
        return self.store.of(key, clock, phase or self.plan.phase, cameras)

    def middle(self, clock: str, key: str, cameras: int, pick: Pick) -> float | None:
        """Median over the runs; None when there were none."""
        runs = self.runs(clock, key, cameras)
        return median(map(pick, runs)) if runs else None

    def counts(self, clock: str, key: str) -> list[int]:
        """The counts tried."""
        clock = CPU if key == OURS and clock == WALL else clock
        return self.store.counts(key, clock, self.plan.phase)

    def capacity(self, clock: str, key: str) -> tuple[int, int | None] | None:
        """The largest count that holds and the next that does not; None when nothing was tried."""
        clock = CPU if key == OURS and clock == WALL else clock
        held = self.store.held(key, clock, self.plan.phase)
        return bracket(held) if held else None

    def fits(self, clock: str, key: str) -> int | None:
        """The largest count that holds."""
        found = self.capacity(clock, key)
        return None if found is None else found[0]

    def rows(self, clock: str) -> list[Server]:
        """Servers of a table; ours in each."""
        servers = self.plan.contestants(clock)
        if clock == WALL and OURS in self.plan.servers:
            servers.append(contest.named(CPU, OURS))
        return servers


# ---- Tables ----------------------------------------------------------------------------------


def cell(runs: Sequence[Sample], pick: Pick) -> str:
    """Median and every run of one figure."""
    if not runs:
        return NOT_TRIED
    values = [pick(sample) for sample in runs]
    return trials(values, median(values)) + late(runs)


def late(runs: Sequence[Sample]) -> str:
    """A star where the simulator could not keep its pace however often it was repeated."""
    return "*" if any(sample.verdict == INVALID for sample in runs) else ""


def capacity_cell(found: tuple[int, int | None] | None) -> str:
    """The largest count, and how far it is known."""
    if found is None:
        return NOT_TRIED
    low, high = found
    if high is None:
        return f">= {low}"
    return str(low) if high - low <= 1 else f"{low} (not {high})"


def cost_cell(ours: int | None, theirs: int | None) -> str:
    """What a camera costs there, where it costs 1 on ours."""
    if ours is None or theirs is None:
        return NOT_TRIED
    return f"{ours / theirs:.2f}" if theirs else "none fits"


def unanswered_cell(runs: Sequence[Sample]) -> str:
    """Frames without an OK answer."""
    if not runs:
        return NOT_TRIED
    values = [sample.unanswered for sample in runs]
    every = f" ({' '.join(map(str, values))})" if len(values) > 1 else ""
    return f"{median(values):.0f}{every}"


def article_table(results: Results, clock: str) -> Table:
    """The article's table: 30 cameras, 5 ms of work."""
    loop = "CPU time" if clock == CPU else "time on the wall"
    seconds = results.plan.table_seconds
    table = Table(
        f"{TABLE_CAMERAS} cameras, 10 frames/s, {seconds:g} s, {WORK_MS} ms of {loop} per frame",
        ["server", "avg, ms", "min, ms", "max, ms", "unanswered", "CPU per answer, ms",
         "memory, MiB", f"cameras under {SLO_MS:g} ms", "cost per camera"],
    )  # fmt: skip
    for server in results.rows(clock):
        runs = results.runs(clock, server.key, TABLE_CAMERAS)
        table.rows.append(
            [
                server.title + (" (CPU time)" if clock == WALL and server.ours else ""),
                cell(runs, lambda sample: sample.mean_ms),
                cell(runs, lambda sample: sample.min_ms),
                cell(runs, lambda sample: sample.max_ms),
                unanswered_cell(runs),
                figure(median(sample.cpu_ms for sample in runs)) if runs else NOT_TRIED,
                figure(median(sample.memory_mib for sample in runs)) if runs else NOT_TRIED,
                capacity_cell(results.capacity(clock, server.key)),
                cost_cell(results.fits(clock, OURS), results.fits(clock, server.key)),
            ]
        )
    return table


def sweep_cell(results: Results, clock: str, key: str, cameras: int) -> str:
    """Median of the slowest answers, and the share of frames without one."""
    runs = results.runs(clock, key, cameras)
    if not runs:
        tried = results.counts(clock, key)
        return NOT_TRIED if tried and cameras > tried[0] else ""
    worst = figure(median(sample.max_ms for sample in runs))
    asked = median(sample.sent for sample in runs)
    share = 100 * median(sample.unanswered for sample in runs) / max(asked, 1)
    return worst + (f" ({figure(share)} % unanswered)" if share else "") + late(runs)


def sweep_table(results: Results, clock: str) -> Table:
    """Slowest answers by number of cameras."""
    counts = sorted({*results.plan.counts[clock], *([] if clock == REAL else [TABLE_CAMERAS])})
    kinds = {CPU: "5 ms of CPU time", WALL: "5 ms on the wall", REAL: "YOLOX-Nano"}
    table = Table(
        f"Slowest answer, ms, by number of cameras: {kinds[clock]}",
        ["server", *map(str, counts), *(["largest that fits"] if clock == REAL else [])],
    )
    for server in results.rows(clock):
        cells = [sweep_cell(results, clock, server.key, count) for count in counts]
        if clock == REAL:
            cells.append(capacity_cell(results.capacity(clock, server.key)))
        table.rows.append([server.title, *cells])
    table.notes.append(f"`{NOT_TRIED}`: not tried, two lower counts already took more than 1 s.")
    return table


def phase_table(results: Results) -> Table:
    """How the cameras' frames lie to each other."""
    table = Table(
        f"Slowest answer of {TABLE_CAMERAS} cameras, ms, by arrival of their frames "
        f"({WORK_MS} ms of CPU time)",
        ["server", *PHASES],
    )
    for server in results.plan.phased():
        cells = [
            cell(results.runs(CPU, server.key, TABLE_CAMERAS, phase), lambda run: run.max_ms)
            for phase in PHASES
        ]
        table.rows.append([server.title, *cells])
    return table


def tables(results: Results) -> list[Table]:
    """All that were measured."""
    found = []
    for clock in (CPU, WALL):
        if clock in results.plan.clocks:
            found += [article_table(results, clock), sweep_table(results, clock)]
    if REAL in results.plan.clocks:
        found.append(sweep_table(results, REAL))
    if CPU in results.plan.clocks and results.plan.search:
        found.append(phase_table(results))
    return [table for table in found if table.rows]


# ---- Marks -----------------------------------------------------------------------------------


def below_mark(results: Results, other: Server) -> Mark:
    """Ours answers sooner than another at every count."""
    promise = f"slowest answer below that of {other.title} at every number of cameras"
    counts = sorted({*results.plan.counts[CPU], TABLE_CAMERAS})
    lost, untried = [], []
    for cameras in counts:
        ours = results.middle(CPU, OURS, cameras, lambda sample: sample.max_ms)
        theirs = results.middle(CPU, other.key, cameras, lambda sample: sample.max_ms)
        if ours is None or (theirs is None and not given_up(results, other.key, cameras)):
            untried.append(str(cameras))
        elif theirs is not None and ours >= theirs:
            lost.append(f"{cameras} ({figure(ours)} against {figure(theirs)} ms)")
    if lost:
        return Mark(promise, f"not at {', '.join(lost)}", held=False)
    if untried:
        return Mark(promise, f"not tried at {', '.join(untried)}", held=None)
    found = f"at all of {', '.join(map(str, counts))}{left_out(results, counts)}"
    return Mark(promise, found, held=True)


def left_out(results: Results, counts: Sequence[int]) -> str:
    """Where ours kept its answers early by giving fewer of them."""
    shares = []
    for cameras in counts:
        runs = results.runs(CPU, OURS, cameras)
        if lost := median(sample.unanswered for sample in runs):
            share = 100 * lost / max(median(sample.sent for sample in runs), 1)
            shares.append(f"{figure(share)} % at {cameras}")
    return f"; Vedette gave no answer to {', '.join(shares)}" if shares else ""


def given_up(results: Results, key: str, cameras: int) -> bool:
    """Whether a count was left out because lower ones were hopeless."""
    return collapsed(results.store.worst(key, CPU, results.plan.phase), cameras)


def largest_mark(results: Results, others: Sequence[Server]) -> Mark:
    """Ours serves as many as the best other."""
    promise = "as many cameras under 100 ms as the best other, or more (5 ms of CPU time)"
    ours = results.fits(CPU, OURS)
    theirs = [(fits, other.title) for other in others
              if (fits := results.fits(CPU, other.key)) is not None]  # fmt: skip
    if ours is None or not theirs:
        return Mark(promise, "not tried", held=None)
    best, title = max(theirs)
    return Mark(promise, f"{ours} against {best} ({title})", held=ours >= best)


def marks(results: Results) -> list[Mark]:
    """What must hold."""
    others = [server for server in results.plan.contestants(CPU) if not server.ours]
    if CPU not in results.plan.clocks or OURS not in results.plan.servers or not others:
        return []
    return [*(below_mark(results, other) for other in others), largest_mark(results, others)]


# ---- Sentences -------------------------------------------------------------------------------


def best_of(results: Results, clock: str, keys: Sequence[str]) -> str | None:
    """The one of these that serves most cameras; of equals the one listed first."""
    known = [key for key in keys if results.fits(clock, key) is not None]
    return max(known, key=lambda key: results.fits(clock, key) or 0, default=None)


def spoken(value: float | None, unit: str) -> str:
    """A figure in a sentence."""
    return "none" if value is None or math.isinf(value) else f"{figure(value)} {unit}"


def about_processes(results: Results) -> str:
    """Multi-process Python."""
    best = best_of(results, CPU, ("pool_python", "reuseport_python"))
    ours = results.fits(CPU, OURS)
    if best is None or ours is None:
        return NOT_MEASURED
    theirs = results.fits(CPU, best) or 0

    def at(key: str, pick: Pick) -> float | None:
        return results.middle(CPU, key, TABLE_CAMERAS, pick)

    ratio = f"{ours / theirs:.2f} times what it costs on Vedette" if theirs else "no camera fits"
    return (
        f"The better of both ways, {contest.named(CPU, best).title}, serves {theirs} cameras on "
        f"{contest.cores()} cores, its slowest answer to {TABLE_CAMERAS} taking "
        f"{spoken(at(best, lambda run: run.max_ms), 'ms')}; Vedette serves {ours}, with "
        f"{spoken(at(OURS, lambda run: run.max_ms), 'ms')}. "
        f"An answer takes {spoken(at(best, lambda run: run.cpu_ms), 'ms')} of CPU there and "
        f"{spoken(at(OURS, lambda run: run.cpu_ms), 'ms')} here, {WORK_MS} of them work, and a "
        f"camera there costs, by the cameras that fit, {ratio}."
    )


def about_language(results: Results) -> str:
    """The language or the asynchrony."""
    best_async = best_of(results, CPU, ("async_cpp", "async_cpp_cores"))
    python, event_loop, cpp = (
        results.fits(CPU, key) for key in ("sync_python", "asyncio_python", "sync_cpp")
    )
    if best_async is None or python is None or event_loop is None or cpp is None:
        return NOT_MEASURED
    asynchronous = results.fits(CPU, best_async) or 0
    language = cpp - python
    asynchrony = asynchronous - cpp
    if language == asynchrony:
        verdict = "both add the same"
    else:
        verdict = f"the {'language' if language > asynchrony else 'asynchrony'} adds more"
    return (
        f"With a thread per stream, Python serves {python} cameras and C++ {cpp}; asynchronous "
        f"Python serves {event_loop} and asynchronous C++ {asynchronous}. "
        f"From synchronous Python, the change of language alone brings {language:+d} cameras, and "
        f"asynchrony on top of it {asynchrony:+d}: {verdict}."
    )


def about_inference(results: Results) -> str:
    """Real pictures and a real network."""
    best = best_of(results, REAL, ("asyncio_python", "pool_python"))
    same, ours = results.fits(REAL, SAME_WORK), results.fits(REAL, OURS)
    if best is None or same is None or ours is None:
        return NOT_MEASURED
    shared = set(results.counts(REAL, OURS)) & set(results.counts(REAL, SAME_WORK))
    fitting = [n for n in shared & set(results.counts(REAL, best)) if n <= min(same, ours)]
    first = (
        f"With YOLOX-Nano on 640x480 JPEGs, the better Python server "
        f"({contest.named(REAL, best).title}) serves {results.fits(REAL, best)} cameras, Vedette "
        f"{same} when it does the same work (every pixel decoded, square input) and {ours} as by "
        "default."
    )
    if not fitting:
        return f"{first} No number of cameras fits all three, so their costs are not compared."
    cameras = max(fitting)
    costs = [
        spoken(results.middle(REAL, key, cameras, lambda run: run.cpu_ms), "ms")
        for key in (best, SAME_WORK, OURS)
    ]
    there, same_work, default = costs
    return (
        f"{first} At {cameras} cameras an answer takes {there}, {same_work} and {default} of CPU."
    )


def answers(results: Results) -> dict[str, str]:
    """The questions that the article leaves open."""
    return {
        "Would Python with several processes do?": about_processes(results),
        "Is it the language or the asynchrony?": about_language(results),
        "And with real decoding and real inference?": about_inference(results),
    }


# ---- The plot and the notes ------------------------------------------------------------------


def lines(results: Results, clock: str = CPU) -> list[Line]:
    """Slowest answers of each server, for the plot."""
    drawn = []
    for server in results.plan.contestants(clock):
        points = []
        for cameras in results.counts(clock, server.key):
            worst = [sample.worst() for sample in results.runs(clock, server.key, cameras)]
            answered = [ms for ms in worst if not math.isinf(ms)]
            if answered:
                middle = min(median(worst), max(answered))
                points.append(Point(cameras, middle, min(answered), max(answered)))
        drawn.append(Line(server.title, server.colour, points, bold=server.ours))
    return drawn


def notes(results: Results) -> list[str]:
    """Runs that went otherwise than planned."""
    samples = results.store.samples.values()
    repeated = sum(sample.invalid for sample in samples)
    unusable = sum(sample.verdict == INVALID for sample in samples)
    found = [
        f"{len(samples)} runs. In {repeated + unusable} tries the simulator could not keep its own "
        f"pace; {repeated} were repeated, and {unusable} runs stayed so, which counts as not in "
        "time (marked `*`)."
    ]
    errors = {sample.error for sample in samples if sample.error}
    found += [f"A run gave nothing: {error}." for error in sorted(errors)]
    return found
