#!/usr/bin/env python3
"""Fuzzes the server: builds the targets once, then runs each for so many seconds of CPU time.

Examples:
  fuzz/run.py                           every target, a minute each
  fuzz/run.py --seconds 600 decode raw  two of them, ten minutes each
  fuzz/run.py --reproduce fuzz/artifacts/decode/crash-...
  fuzz/run.py --keep fuzz/artifacts/decode/crash-...

Exit status: 0 nothing found, 1 something found, 2 could not run.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed to run the fuzzer", file=sys.stderr)
    sys.exit(2)

import argparse
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import jobs
import seed
import targets
from build import CannotRun, build
from jobs import Result
from targets import TARGETS, Target

EXIT_FOUND = 1
EXIT_CANNOT_RUN = 2


def table(results: list[Result]) -> str:
    """The results for people."""
    heads = (
        "target",
        "runs",
        "runs/s",
        "edges",
        "features",
        "corpus",
        "CPU s",
        "slowest",
        "verdict",
    )
    rows = [heads] + [
        (
            r.target,
            f"{r.executions:,}",
            f"{r.executions_per_second:,.0f}",
            f"{r.edges:,}",
            f"{r.features:,}",
            f"{r.corpus_files:,}",
            f"{r.cpu_seconds:.1f}",
            f"{r.slowest_seconds} s",
            r.verdict,
        )
        for r in results
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, len(heads) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    )


def report_found(result: Result) -> None:
    """What was found and what to do with it."""
    print(f"\n{result.target}: {result.verdict}; log: {result.log}")
    for line in result.summary:
        print(f"  {line}")
    for artifact in result.artifacts:
        print(f"  input:     {artifact}")
        print(f"  reproduce: fuzz/run.py --reproduce {artifact}")
        print(f"  to a test: fuzz/run.py --keep {artifact}")


def fuzz(options: argparse.Namespace, chosen: list[Target]) -> int:
    """Runs the targets one after the other."""
    counts = seed.write(seed.CORPUS, [target.name for target in chosen])
    results = []
    for target in chosen:
        print(f"{target.name}: {counts[target.name]} seeds, {options.seconds:g} s of CPU time")
        results.append(jobs.run(target, options.seconds, options.jobs, options.seed))
        sys.stdout.flush()
    print(f"\n{table(results)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=2) + "\n")
    found = [result for result in results if not result.passed]
    for result in found:
        report_found(result)
    return EXIT_FOUND if found else 0


def parse() -> argparse.Namespace:
    description, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(target.name for target in TARGETS)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{names}; default: all")
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=60.0,
        metavar="N",
        help="CPU time per target, all jobs together (default 60). A busy machine takes longer, "
        f"but never more than {jobs.PATIENCE:g} times as long and {jobs.GRACE_SECONDS} seconds",
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--jobs",
        type=positive(int),
        default=cores,
        metavar="N",
        help=f"processes per target (default: the cores, here {cores})",
    )
    parser.add_argument(
        "--seed",
        type=positive(int),
        metavar="N",
        help="of the random numbers; default: another one each time, to be found in the log",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table to FILE as well")
    parser.add_argument("--build", action="store_true", help="build and do nothing else")
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    parser.add_argument(
        "--reproduce",
        type=Path,
        metavar="FILE",
        help="run one input, whose target is its folder's name or the beginning of its own",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="make a failing input as short as can be and put it into "
        f"{targets.KEPT_NAME}, where the server's tests run it ever after",
    )
    options = parser.parse_args()
    if unknown := set(options.targets) - {target.name for target in TARGETS}:
        parser.error(f"no target {min(unknown)}; there are {names}")
    return options


def positive(kind: type) -> object:
    """An argument above zero."""

    def convert(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError(text)
        return value

    convert.__name__ = f"positive {kind.__name__}"
    return convert


def stop(*_: object) -> None:
    """A request to end is handled like Ctrl-C: the jobs are ended too."""
    raise KeyboardInterrupt


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, stop)
    chosen = [t for t in TARGETS if not options.targets or t.name in options.targets]
    try:
        one = options.reproduce or options.keep
        if one:
            chosen = [targets.of_input(one)]
        if not options.no_build:
            build()
        if options.build:
            return 0
        if options.keep:
            print(targets.keep_message(jobs.keep(chosen[0], options.keep)))
            return EXIT_FOUND
        if options.reproduce:
            failed = jobs.reproduce(chosen[0], options.reproduce) is not None
            return EXIT_FOUND if failed else 0
        return fuzz(options, chosen)
    except (CannotRun, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
