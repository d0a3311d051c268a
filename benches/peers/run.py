#!/usr/bin/env python3
"""Vedette beside the servers that a team would otherwise write, in Python and C++.

Exit status: 0 all marks hold, 1 a mark failed, 2 could not run or not finished.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed to run this bench", file=sys.stderr)
    sys.exit(2)

import argparse
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import build
import campaign
import contest
import machine
import measure
import plot
import report
from build import OUT, ROOT, CannotRun
from campaign import Campaign, Plan, Unfinished
from contest import CLOCKS, CPU, REAL, WALL
from samples import SLO_MS, Store

HERE = Path(__file__).resolve().parent
EXIT_MARK_FAILED = 1
EXIT_CANNOT_RUN = 2

COUNTS = {
    CPU: (1, 5, 10, 20, 30, 35, 40),
    WALL: (40,),
    REAL: (4, 8, 12),
}
QUICK_COUNTS = {CPU: (1, 10, 30), WALL: (1, 10, 30), REAL: (1, 4, 8)}
RUNS = 3
TABLE_SECONDS = 10.0
SWEEP_SECONDS = 3.0
QUICK_SECONDS = 2.0
MINUTES = 50.0
MOST_CAMERAS = 64


class Parser(argparse.ArgumentParser):
    """Mistakes are one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves."""
        self.exit(EXIT_CANNOT_RUN, f"error: {message} (see --help)\n")


def list_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A parser of names between commas."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(
                f"{unknown[0] or 'nothing'}: unknown; known: {', '.join(known)}"
            )
        return names

    return parse


def counts(text: str) -> list[int]:
    """Numbers of cameras between commas."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > MOST_CAMERAS:
        raise argparse.ArgumentTypeError(
            f"{text}: expected numbers of cameras from 1 to {MOST_CAMERAS}, such as 1,10,30"
        )
    return found


def positive(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def whole(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or not 1 <= int(text) <= 99:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1 to 99")
    return int(text)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="run.py", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="one run of 2 s at 3 counts: does it run at all?")
    add(
        "--servers",
        type=list_of(contest.keys()),
        metavar="NAMES",
        help=f"only these, with commas: {', '.join(contest.keys())}",
    )
    add(
        "--clock",
        type=list_of(CLOCKS),
        metavar="KINDS",
        help="only these kinds of work, with commas: cpu and wall, a busy loop by that clock; "
        "real, decoding and inference",
    )
    add("--runs", type=whole, metavar="N", help=f"runs of each point [default: {RUNS}]")
    add(
        "--seconds",
        type=positive,
        metavar="S",
        help=f"length of every run [default: {TABLE_SECONDS:g} for the tables of "
        f"{campaign.TABLE_CAMERAS} cameras, {SWEEP_SECONDS:g} for other counts]",
    )
    add("--counts", type=counts, metavar="N,N", help="numbers of cameras, for every kind of work")
    add(
        "--phase",
        choices=campaign.PHASES,
        default="ramp",
        help="how the cameras' frames lie to each other [default: ramp, 10 more every 50 ms]",
    )
    add(
        "--minutes",
        type=positive,
        default=MINUTES,
        metavar="M",
        help="begin no run after this time [default: %(default)g]",
    )
    add("--resume", action="store_true", help="keep the runs of the last time, do what is missing")
    add("--report-only", action="store_true", help="no runs: tables and plot from those kept")
    add("--no-build", action="store_true", help="take target/release as it is")
    return parser.parse_args()


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the command line asks for."""
    short = QUICK_SECONDS if args.quick else None
    chosen = QUICK_COUNTS if args.quick else COUNTS
    return Plan(
        clocks=args.clock or CLOCKS,
        servers=args.servers or contest.keys(),
        runs=args.runs or (1 if args.quick else RUNS),
        table_seconds=args.seconds or short or TABLE_SECONDS,
        sweep_seconds=args.seconds or short or SWEEP_SECONDS,
        counts=dict.fromkeys(CLOCKS, args.counts) if args.counts else dict(chosen),
        phase=args.phase,
        search=not args.quick,
        minutes=args.minutes,
    )


def whole_contest(args: argparse.Namespace) -> bool:
    """Whether the committed page is to be written: nothing was left out."""
    return not (args.quick or args.servers or args.clock or args.counts or args.phase != "ramp")


def say(line: str) -> None:
    """A line at once."""
    print(line, flush=True)


def page(results: report.Results, unfinished: str) -> str:
    """RESULTS.md."""
    facts = "\n".join(f"| {name} | {value} |" for name, value in machine.facts().items())
    judged = report.marks(results)
    mark_rows = "\n".join(f"| {m.promise} | {m.found} | {m.verdict()} |" for m in judged)
    sections = [
        "# Vedette and its peers",
        f"Written by `make bench-peers` (`{shlex.join(['benches/peers/run.py', *sys.argv[1:]])}`); "
        "do not edit. [README.md](README.md) says what is compared and how.",
        "A cell shows the median of the runs and, in parentheses, every run. Servers run in turn, "
        "each run with a fresh server; latency counts from the moment a frame should have left. "
        "`unanswered` are frames without an OK answer; a number of cameras fits when the median "
        f"run answers every frame within {SLO_MS:g} ms. Cost per camera is that of Vedette x the "
        "number given.",
        *([f"**Not complete: {unfinished}.**"] if unfinished else []),
        f"| machine | |\n|---|---|\n{facts}",
        "![Slowest answer by number of cameras](results.svg)",
        *(table.markdown() for table in report.tables(results)),
        "## Marks",
        f"| mark | found | verdict |\n|---|---|---|\n{mark_rows}" if judged else "None judged.",
        "## Questions the article leaves open",
        *(f"**{question}** {words}" for question, words in report.answers(results).items()),
        "## Notes",
        *report.notes(results),
    ]
    return "\n\n".join(sections) + "\n"


def conclude(results: report.Results, folder: Path, unfinished: str) -> bool:
    """Prints and writes everything; returns whether all marks hold."""
    for table in report.tables(results):
        say(f"\n{table.plain()}")
    say("")
    judged = report.marks(results)
    for mark in judged:
        say(f"{mark.verdict()}: {mark.promise}: {mark.found}")
    for question, words in report.answers(results).items():
        if words != report.NOT_MEASURED:
            say(f"{question} {words}")
    for note in report.notes(results):
        say(note)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "RESULTS.md").write_text(page(results, unfinished), encoding="utf-8")
    title = f"Slowest answer, {contest.WORK_MS} ms of CPU per frame, {contest.cores()} cores"
    drawn = plot.draw(title, report.lines(results), SLO_MS)
    (folder / "results.svg").write_text(drawn, encoding="utf-8")
    say(f"written: {(folder / 'RESULTS.md').relative_to(ROOT)}, results.svg beside it")
    return all(mark.held is not False for mark in judged)


def run(args: argparse.Namespace) -> int:
    """Sets up, measures, reports; returns the exit status."""
    plan = plan_of(args)
    name = "quick" if args.quick else "samples"
    unfinished = ""
    if not args.report_only:
        say("setting up")
        build.build_all(compile_ours=not args.no_build)
    store = Store(OUT / f"{name}.jsonl", keep=args.resume or args.report_only)
    if not args.report_only:
        work = Campaign(plan, store, measure.measure, say)
        left = work.left(work.stages)
        say(f"about {len(left)} runs, {sum(left) / 60:.0f} minutes at most")
        try:
            work.run()
        except Unfinished as reason:
            unfinished = str(reason)
    if not store.samples:
        raise CannotRun(unfinished or f"no runs in {store.path.relative_to(ROOT)}; run without "
                        "--report-only")  # fmt: skip
    folder = HERE if whole_contest(args) and not unfinished else OUT
    held = conclude(report.Results(store, plan), folder, unfinished)
    if unfinished:
        raise CannotRun(unfinished)
    if args.quick:
        say("a smoke run: its figures and marks mean nothing")
        return 0
    return 0 if held else EXIT_MARK_FAILED


def interrupt(*_: object) -> NoReturn:
    """SIGTERM ends the bench as Ctrl-C does: servers are stopped on the way."""
    raise KeyboardInterrupt


def main() -> int:
    """Turns what can go wrong into one line."""
    signal.signal(signal.SIGTERM, interrupt)
    args = parse_arguments()
    try:
        return run(args)
    except CannotRun as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or 'input or output'}: {error.strerror}"
    except KeyboardInterrupt:
        message = "interrupted; what was measured is kept, go on with --resume"
    print(f"error: {message}", file=sys.stderr)
    return EXIT_CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
