#!/usr/bin/env python3
"""The promises of this server, each held against a running one. Needs root, Debian 12, half an hour.

Exit status: 0 all rows hold, 1 one failed, 2 the suite could not run, 130 interrupted.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed to run the promises", file=sys.stderr)
    sys.exit(2)

import argparse
import importlib
import json
import os
import platform
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import install
import netns
from env import ROOT, Env, limited
from promise import CannotRun, Finding, Judged, Promise, all_promises, markdown, table

HERE = Path(__file__).resolve().parent
DOCS = ROOT / "docs" / "promises.md"
EXIT_FAILED = 1
EXIT_CANNOT_RUN = 2
EXIT_INTERRUPTED = 130

# Modules without rows: the harness, and what rows start as programs of their own.
NOT_ROWS = {
    "cgroup", "client", "env", "flood", "install", "netns", "promise", "run", "server", "sim",
    "wire",
}  # fmt: skip

# The row that runs the fuzz targets.
FUZZED = 12

# The long run: the other rows that may share the machine run beside it.
SOAK = 22
SOAK_MINUTES = 20.0


def load_rows() -> list[Promise]:
    """Imports every module of this folder that enters rows."""
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NOT_ROWS and "@promise(" in path.read_text(encoding="utf-8"):
            importlib.import_module(path.stem)
    return all_promises()


def numbers(text: str) -> list[int]:
    """Numbers of promises between commas."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected numbers such as 1,5") from None


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--only", type=numbers, metavar="N,N", help="only these promises; docs stay as they are")
    add("--list", action="store_true", help="print the promises and their marks, run nothing")
    add("--no-build", action="store_true", help="take the programs as they are")
    add("--no-install", action="store_true", help="take the machine as it is")
    add("--server", type=Path, default=install.RELEASE / "vedette-server", metavar="FILE")
    add("--client-sim", type=Path, default=install.RELEASE / "client-sim", metavar="FILE")
    add("--faults-server", type=Path, default=install.FAULTS_SERVER, metavar="FILE")
    add(
        "--minutes",
        type=float,
        default=SOAK_MINUTES,
        metavar="M",
        help="length of the long run [default: %(default)g]",
    )
    add("--out", type=Path, default=install.OUT, metavar="DIR", help="default: %(default)s")
    return parser.parse_args(arguments)


def say(line: str) -> None:
    """A line at once."""
    print(line, flush=True)


def judge(entry: Promise, env: Env) -> Finding:
    """Runs one row. Whatever stops it is its finding."""
    say(f"promise {entry.number}: {entry.title}")
    own = env.for_row(entry.number)
    start = time.monotonic()
    try:
        with limited(entry.seconds):
            finding = entry.row(own)
    except CannotRun as error:
        finding = Finding(f"could not run: {error}", held=False)
    except Exception as error:  # noqa: BLE001 - a row that breaks must not hide the others
        finding = failure(error)
    finally:
        own.end_row()
    say(f"  {finding.verdict} in {time.monotonic() - start:.0f} s: {finding.figure}")
    return finding


def failure(error: Exception) -> Finding:
    """What a row that broke has found."""
    words = " ".join(str(error).split())[:300]
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = ""
    if where is not None:
        place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
    return Finding(f"{type(error).__name__}: {words}", held=False, detail=f"raised at {place}")


def start_soak(env: Env) -> Any:
    """The long run, in the background; a Finding when it cannot be started."""
    try:
        soak = importlib.import_module("soak").Soak(env.for_row(SOAK), env.minutes)
        soak.start()
    except Exception as error:  # noqa: BLE001 - it is a row's verdict
        return failure(error)
    return soak


def in_order(entries: Sequence[Promise]) -> list[Promise]:
    """Quiet rows first, then the others, then those that look back."""
    return sorted(entries, key=lambda p: (p.last, not p.quiet and not p.last, p.number))


def run_rows(entries: Sequence[Promise], env: Env) -> list[Judged]:
    """All findings, in the order of the promises."""
    found: dict[int, Finding] = {}
    soak: Any = None
    soak_entry = next((entry for entry in entries if entry.number == SOAK), None)
    for entry in in_order([entry for entry in entries if entry.number != SOAK]):
        if soak is None and soak_entry and not entry.quiet:
            soak = start_soak(env)
        if entry.last and soak_entry and SOAK not in found:
            found[SOAK] = finish_soak(soak, env)
        found[entry.number] = judge(entry, env)
    if soak_entry and SOAK not in found:
        found[SOAK] = finish_soak(soak if soak is not None else start_soak(env), env)
    return [(entry, found[entry.number]) for entry in entries]


def finish_soak(soak: Any, env: Env) -> Finding:
    """Waits for the long run."""
    if isinstance(soak, Finding):
        return soak
    say(f"promise {SOAK}: waiting for the long run")
    try:
        finding: Finding = soak.finish()
    except Exception as error:  # noqa: BLE001 - it is a row's verdict
        finding = failure(error)
    say(f"  {finding.verdict}: {finding.figure}")
    return finding


def machine_facts() -> dict[str, str]:
    """What the figures were measured on."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    names = (
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if "model name" in line
    )
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "machine": f"{len(os.sched_getaffinity(0))} cores, {next(names, 'unknown CPU')}",
        "kernel": platform.release(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit or "unknown",
        "command": f"`python3 promises/run.py{''.join(f' {shlex.quote(a)}' for a in own_arguments())}`",
    }


def own_arguments() -> list[str]:
    """The command line as typed: the suite has started itself again in its environment."""
    return [argument for argument in sys.argv[1:] if argument != "--no-install"]


def write_report(judged: Sequence[Judged], out: Path, facts: dict[str, str]) -> None:
    """target/promises/report.json."""
    rows = [
        {
            "promise": entry.number,
            "title": entry.title,
            "mark": entry.mark,
            "figure": finding.figure,
            "held": finding.held,
            "detail": finding.detail,
        }
        for entry, finding in judged
    ]
    text = json.dumps({"facts": facts, "promises": rows}, indent=2, ensure_ascii=False)
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(text + "\n", encoding="utf-8")


def chosen(entries: list[Promise], only: Sequence[int] | None) -> list[Promise]:
    """The rows to run. A number without a row is an error."""
    known = {entry.number for entry in entries}
    if unknown := [number for number in only or () if number not in known]:
        raise CannotRun(f"--only {unknown[0]}: no such promise")
    return [entry for entry in entries if not only or entry.number in only]


def run(args: argparse.Namespace) -> int:
    """Prepares, runs and reports."""
    if not args.no_build:
        if why := install.build(say):
            say(f"no server with faults: {why}")
        if (not args.only or FUZZED in args.only) and (why := install.build_fuzz(say)):
            say(f"no fuzz targets: {why}")
    netns.remove_stale()
    entries = chosen(load_rows(), args.only)
    faults = args.faults_server.absolute() if args.faults_server.exists() else None
    env = Env(
        server=args.server.absolute(),
        client_sim=args.client_sim.absolute(),
        faults=faults,
        minutes=args.minutes,
        out=args.out.absolute(),
    )
    try:
        judged = run_rows(entries, env)
    finally:
        # A second Ctrl-C must not leave namespaces behind.
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, signal.SIG_IGN)
        env.cleanup()
    facts = machine_facts()
    write_report(judged, env.out, facts)
    if not args.only:
        DOCS.write_text(markdown(judged, facts), encoding="utf-8")
    say("\n" + table(judged))
    held = sum(finding.held for _, finding in judged)
    say(f"\n{held} passed, {len(judged) - held} failed")
    return 0 if held == len(judged) else EXIT_FAILED


def enter_environment() -> None:
    """Starts this program again under the Python that has the packages."""
    if Path(sys.prefix) != install.VENV:
        if not install.PYTHON.exists():
            raise CannotRun(f"{install.VENV} does not exist: run without --no-install")
        os.execv(install.PYTHON, [str(install.PYTHON), *sys.argv, "--no-install"])


def stop(_signal: int, _frame: object) -> None:
    """SIGTERM ends the suite as Ctrl-C does: children and namespaces go first."""
    raise KeyboardInterrupt


def main() -> int:
    """The whole program."""
    args = parse_arguments()
    signal.signal(signal.SIGTERM, stop)
    try:
        if args.list:
            for entry in load_rows():
                say(f"{entry.number:2} {entry.title}: {entry.mark}")
            return 0
        if not args.no_install:
            install.install_all(say)
        enter_environment()
        return run(args)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        print("interrupted; everything that was started is ended", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
