#!/usr/bin/env python3
"""A fleet behind the proxies of deploy/proxies: servers are killed, drained and added under cameras.

Exit status: 0 everything held, 1 something did not, 2 the test could not run, 130 interrupted.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed to play a fleet", file=sys.stderr)
    sys.exit(2)

import argparse
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import fleet_page
import install
from env import ROOT, Env, limited
from fleet_front import CONTROLS, FRONTS, Front, version
from fleet_play import Played, play
from promise import CannotRun
from run import EXIT_CANNOT_RUN, EXIT_FAILED, EXIT_INTERRUPTED, enter_environment, machine_facts, say, stop

OUT = ROOT / "target" / "fleet"
DOCS = ROOT / "docs" / "fleet.md"

# As many runs in a row make a figure worth writing down.
RUNS_FOR_DOCS = 3

# A play takes two minutes.
PLAY_SECONDS = 300


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="fleet.py", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    names = [front.name for front in (*FRONTS, *CONTROLS)]
    add(
        "--only",
        action="append",
        choices=names,
        help="only behind this one; may be repeated. The last one is a control, further from the mean than the others",
    )
    add(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help=f"play everything so often [default: 1]; {RUNS_FOR_DOCS} or more without --only write docs/fleet.md",
    )
    add("--no-build", action="store_true", help="take the programs as they are")
    add("--no-install", action="store_true", help="take the machine as it is")
    add("--server", type=Path, default=install.RELEASE / "vedette-server", metavar="FILE")
    add("--client-sim", type=Path, default=install.RELEASE / "client-sim", metavar="FILE")
    add("--out", type=Path, default=OUT, metavar="DIR", help="default: %(default)s")
    return parser.parse_args(arguments)


def build() -> None:
    """The programs under test."""
    say("building the server and client-sim")
    install.run([sys.executable, ROOT / "models" / "setup.py", "--quiet"], "models/setup.py")
    command = ["cargo", "build", "--release", "--locked", "-p", "vedette-server", "-p", "client-sim"]
    install.run(command, "the build", PATH=install.tools_path())


def balances(client_sim: Path) -> bool:
    """Whether client-sim can choose among servers itself."""
    command = [client_sim, "run", "--help"]
    return "--balance" in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def chosen(only: Sequence[str] | None, client_sim: Path) -> list[Front]:
    """What is played."""
    fronts = [front for front in (*FRONTS, *CONTROLS) if front.name in only] if only else list(FRONTS)
    if any(not front.file for front in fronts) and not balances(client_sim):
        raise CannotRun(f"{client_sim} has no --balance: build it anew")
    return fronts


def played(env: Env, front: Front, run: int) -> Played:
    """One play in a folder of its own."""
    work = env.out / "work" / f"{run}-{front.name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    own = replace(env, work=work, name=f"{front.name} {run}")
    try:
        with limited(PLAY_SECONDS):
            found = play(own, front)
    finally:
        own.end_row()
    own.say("holds" if not found.wrong else f"FAIL: {'; '.join(found.wrong)}")
    return found


def facts_of(fronts: Sequence[Front], args: argparse.Namespace) -> dict[str, str]:
    """What the figures were measured on, and with what."""
    facts = machine_facts()
    versions = [version(front) for front in fronts if front.file]
    for program in (args.server, args.client_sim):
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        versions.append(done.stdout.strip())
    return {**facts, "versions": ", ".join(versions), "command": f"`python3 promises/fleet.py --runs {args.runs}`"}


def write_report(found: Sequence[Sequence[Played]], facts: dict[str, str], out: Path) -> None:
    """target/fleet/report.json."""
    runs = [[one.as_json() for one in run] for run in found]
    text = json.dumps({"facts": facts, "runs": runs}, indent=2)
    (out / "report.json").write_text(text + "\n", encoding="utf-8")


def run(args: argparse.Namespace) -> int:
    """Prepares, plays and reports."""
    if args.runs < 1:
        raise CannotRun(f"--runs {args.runs}: one at least")
    if not args.no_build:
        build()
    fronts = chosen(args.only, args.client_sim)
    env = Env(args.server.absolute(), args.client_sim.absolute(), out=args.out.absolute())
    found: list[list[Played]] = []
    start = time.monotonic()
    try:
        for number in range(1, args.runs + 1):
            say(f"run {number} of {args.runs}, load average {os.getloadavg()[0]:.2f}")
            found.append([played(env, front, number) for front in fronts])
    finally:
        # A second Ctrl-C must not leave servers behind.
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, signal.SIG_IGN)
        env.cleanup()
    facts = facts_of(fronts, args)
    write_report(found, facts, env.out)
    table = fleet_page.table(found)
    say(f"\n{table}\n\n{time.monotonic() - start:.0f} s")
    if not args.only and args.runs >= RUNS_FOR_DOCS:
        text = fleet_page.between_markers(DOCS.read_text(encoding="utf-8"), fleet_page.section(found, facts))
        DOCS.write_text(text, encoding="utf-8")
    plays = [one for each in found for one in each]
    held = sum(not one.wrong for one in plays)
    say(f"{held} passed, {len(plays) - held} failed")
    return 0 if held == len(plays) else EXIT_FAILED


def install_tools() -> None:
    """The proxies; nothing else of what the promises need."""
    if os.geteuid() == 0:
        install.install_packages(say)
    install.install_venv(say)


def main() -> int:
    """The whole program."""
    args = parse_arguments()
    signal.signal(signal.SIGTERM, stop)
    try:
        if not args.no_install:
            install_tools()
        enter_environment()
        return run(args)
    except (CannotRun, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        print("interrupted; everything that was started is ended", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
