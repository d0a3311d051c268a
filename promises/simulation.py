"""Promise 33: the scheduler's core in simulated time."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from env import Env
from promise import CannotRun, Finding, promise

SEEDS = 1000
SEED_SECONDS = 60.0
SUMMARY = re.compile(r"simulation: (\d+) seeds, (.+?) events, ([\d.]+) s\b")
TEST = ["cargo", "test", "--locked", "-p", "vedette-server", "--test", "simulation"]
CHECK = "server/tests/mutations/check.py"

# Compiling the test and each mutation takes minutes on a small machine.
BUILD_SECONDS = 1200
CHECK_SECONDS = 2400


def seeds(env: Env) -> tuple[int, str, float, bool]:
    """Runs all seeds: how many, events in words, seconds, and whether every rule held."""
    built = env.run([*TEST, "--no-run"], BUILD_SECONDS, cwd=env.root)
    if built.returncode != 0:
        raise CannotRun(f"the simulation does not build: {built.stderr.strip()[-300:]}")
    done = env.run([*TEST, "--", "--nocapture"], 600, cwd=env.root)
    found = SUMMARY.search(done.stdout)
    if not found:
        failed = re.search(r"simulation: seed .*", done.stdout + done.stderr)
        raise AssertionError(failed[0] if failed else f"no summary: {done.stderr[-300:]}")
    return int(found[1]), found[2], float(found[3]), done.returncode == 0


def mutations(env: Env) -> list[dict[str, Any]]:
    """Breaks the core on purpose, each way in turn, and lets the simulation look for it."""
    report = env.work / "mutations.json"
    command = [sys.executable, CHECK, "--json", str(report)]
    done = env.run(command, CHECK_SECONDS, cwd=env.root)
    if not report.exists():
        raise CannotRun(f"{CHECK}: {(done.stderr or done.stdout).strip()[-300:]}")
    found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["bugs"]
    return found


@promise(
    33,
    "the scheduler's core is deterministic and searched",
    mark="1000 seeds < 60 s, every rule holds; a seed replays; every mutation found, its seed printed",
    seconds=BUILD_SECONDS + CHECK_SECONDS + 600,
)
def simulated_core(env: Env) -> Finding:
    """Admission, scheduler, tickets, the order of answers, the pace of reading and the drain run in
    simulated time with fleets, troubles and shutdowns drawn from a thousand seeds; every rule of
    the simulation must hold in each, and a seed that is run again must do the same at the same
    instants. Then the core is broken on purpose, one way after the other: the simulation must find
    each, and print the seed that replays it.
    """
    count, events, took, held = seeds(env)
    broken = mutations(env)
    missed = [bug["bug"] for bug in broken if not bug["found"]]
    unnamed = [bug["bug"] for bug in broken if bug["found"] and bug["seed"] is None]
    figure = (
        f"{count} seeds, {events} events in {took:.0f} s; {len(broken) - len(missed)} of "
        f"{len(broken)} mutations found"
    )
    fine = held and count >= SEEDS and took < SEED_SECONDS and broken and not missed and not unnamed
    detail = [f"not found: {name}" for name in missed]
    detail += [f"found without a seed: {name}" for name in unnamed]
    return Finding(figure, bool(fine), "\n".join(detail))
