#!/usr/bin/env python3
"""The long run: everything at once against one server, whose memory, files and threads stay as they are.

make soak MINUTES=20, or promises/soak.py --minutes 20. It leaves target/soak/report.json and report.html.
Exit status: 0 all marks hold, 1 one does not, 2 could not run, 130 interrupted.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print("error: Python 3.11 or later is needed for the long run", file=sys.stderr)
    sys.exit(2)

import argparse
import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import install
import run
import soak_page
from env import ROOT, Env
from promise import CannotRun, Finding, promise
from server import STREAMS, AccountsDiffer, Server, accounts
from soak_client import OF_TIME
from soak_play import Book, Play, unstable
from soak_watch import (
    MIB,
    SAMPLE_SECONDS,
    WARM_SECONDS,
    Check,
    Record,
    checks_of,
    level,
    take,
)

OUT = ROOT / "target" / "soak"
MINUTES = 20.0

# Fewer leave nothing to judge once the warm-up is over.
FEWEST_MINUTES = 3.0

# Time after the first question for metrics until nobody is there any more, its helper thread included, in
# seconds.
ALONE_SECONDS = 2.5

# Time in which files and threads must be back once all clients have left, in seconds: longer than the
# linger of a closed connection, a probe of a dead one, and an idle helper thread.
BACK_SECONDS = 30.0

# Time between two lines of progress, in seconds.
PROGRESS_SECONDS = 30.0

# Characters of the first problem that the table shows; the report has all.
FIRST_WORDS = 200

PANICS = "vedette_worker_panics_total"


class Soak:
    """The long run in the background: start, then finish for its finding, or abort."""

    def __init__(self, env: Env, minutes: float) -> None:
        if minutes < FEWEST_MINUTES:
            raise CannotRun(
                f"the long run takes {FEWEST_MINUTES:g} minutes at least, not {minutes:g}"
            )
        self.env = env
        self.seconds = minutes * 60
        self.record = Record()
        self.interrupted = False
        self._broken: Exception | None = None
        self._abort = threading.Event()
        # Told at the thread's end: a join that Ctrl-C breaks off takes the thread for ended.
        self._done = threading.Event()
        self._stack = contextlib.ExitStack()
        # Whoever may not change accounts runs the server as they are.
        self.server = Server(env, root=os.geteuid() != 0)
        self.play = Play(env, self.server.addr)
        self._thread = threading.Thread(target=self._run, name="soak", daemon=True)

    def start(self) -> None:
        """Draws what cameras send, starts the server and lets everybody come."""
        self.play.prepare()
        self._stack.enter_context(self.server)
        self.env.shared.cleanups.append(self.abort)
        self._thread.start()

    def finish(self) -> Finding:
        """Waits for the end, writes the report and says what was found."""
        self._done.wait()
        if self._broken is not None:
            raise self._broken
        checks = self.checks()
        files = self.write(checks)
        held = all(check.held for check in checks) and not self.interrupted
        lines = [
            f"{'holds' if check.held else 'FAILS'}  {check.name}: {check.figure} ({check.mark})"
            for check in checks
        ]
        return Finding(self.figure(checks), held, "\n".join([*lines, f"report: {files.relative_to(ROOT)}"]))

    def abort(self) -> None:
        """Ends it in order before its time."""
        if not self._done.is_set():
            self.interrupted = True
            self._abort.set()
            self.play.leave()
            self._done.wait()
        self.env.end_row()

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - the thread that waits raises it
            self._broken = error
        finally:
            self.play.stop()
            # What differs is told with the other checks.
            with contextlib.suppress(AccountsDiffer, OSError):
                self._stack.close()
            self._done.set()

    def _watch(self) -> None:
        record, server = self.record, self.server
        take(server, 0.0)
        time.sleep(ALONE_SECONDS)
        record.begin = level(server)
        self.play.start()
        begin = time.monotonic()
        told = 0.0
        try:
            while (at := time.monotonic() - begin) < self.seconds and not self._abort.is_set():
                record.samples.append(take(server, at))
                if at - told >= PROGRESS_SECONDS:
                    told = at
                    self.env.say(self.progress())
                self._abort.wait(SAMPLE_SECONDS - at % SAMPLE_SECONDS)
            self.play.stop()
            self._settle()
        except OSError as error:
            if server.alive():
                raise
            self.play.book.problem(f"the server ended with {server.process.returncode}: {error}")

    def _settle(self) -> None:
        """Waits until nobody is left, and looks at what is."""
        record, server = self.record, self.server
        begin = record.begin
        end = time.monotonic() + BACK_SECONDS
        while server.metric(STREAMS) > 0 and time.monotonic() < end:
            time.sleep(0.5)
        record.end = level(server)
        while begin is not None and time.monotonic() < end:
            record.end = level(server)
            if record.end.fds <= begin.fds and record.end.threads <= begin.threads:
                break
            time.sleep(0.5)
        metrics = server.metrics()
        while (both := accounts(metrics))[0] != both[1] and time.monotonic() < end:
            time.sleep(0.5)
            metrics = server.metrics()
        record.received, record.outcomes = both
        record.cameras_left = int(metrics[STREAMS])
        record.panics = int(metrics.get(PANICS, 0))
        record.alive = server.alive()

    def progress(self) -> str:
        """Where it stands, on one line."""
        now, book = self.record.samples[-1], self.play.book
        rss = self.record.rss()
        return (
            f"{now.at / 60:4.1f} of {self.seconds / 60:g} min: {now.rss_bytes / MIB:.1f} MiB"
            + (f" ({rss.judged:+.2f} per 10 min)" if rss else " (warming up)")
            + f", {now.fds} files, {now.threads} threads, {now.cameras} cameras, "
            f"{now.received:,} frames; {book.runs} runs, {book.killed} killed, {book.lost} frames lost"
            + (f", {len(book.problems)} problems" if book.problems else "")
        )

    def checks(self) -> list[Check]:
        """Everything that has to hold."""
        return [*checks_of(self.record), *checks_of_clients(self.play.book)]

    def figure(self, checks: Sequence[Check]) -> str:
        """The finding in a line."""
        rss, begin, end = self.record.rss(), self.record.begin, self.record.end
        book = self.play.book
        parts = [
            f"{self.record.samples[-1].at / 60:.0f} min" if self.record.samples else "no sample"
        ]
        if rss is not None:
            parts.append(f"memory {rss.judged:+.2f} MiB per 10 min")
        if begin is not None and end is not None:
            parts.append(
                f"files {begin.fds} -> {end.fds}, threads {begin.threads} -> {end.threads}"
            )
        asked = book.sent + book.misuse["sent"] + book.misuse["unary"]
        parts.append(f"{book.lost + book.misuse['unanswered']} of {asked:,} frames unanswered")
        failed = [check.name for check in checks if not check.held]
        if failed:
            parts.append(f"fails: {', '.join(failed)}")
        if self.interrupted:
            parts.append("interrupted")
        return ", ".join(parts)

    def write(self, checks: Sequence[Check]) -> Path:
        """report.json and report.html."""
        facts = run.machine_facts()
        facts["command"] = " ".join(["python3 promises/soak.py", *run.own_arguments()])
        report = as_report(self.record, self.play.book, checks, facts, self.interrupted)
        OUT.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=1)
        (OUT / "report.json").write_text(text + "\n", encoding="utf-8")
        (OUT / "report.html").write_text(soak_page.render(report), encoding="utf-8")
        return OUT / "report.html"


def checks_of_clients(book: Book) -> list[Check]:
    """What the clients have to say."""
    unanswered = book.lost + book.misuse["unanswered"]
    asked = book.sent + book.misuse["sent"] + book.misuse["unary"]
    found = [
        Check("answers", f"{unanswered} of {asked:,} frames unanswered", "none", unanswered == 0)
    ]
    differ = unstable(book.cases, OF_TIME)
    figure = f"{len(book.cases)} kinds of frames, {len(differ)} answered in more than one way"
    found.append(Check("same answers", figure, "none", not differ and bool(book.cases)))
    # A kind of client that never came proves nothing.
    came = {
        "runs": book.runs,
        "killed": book.killed,
        "heartbeats answered": book.heartbeats["answered"],
        "frames of rule breakers": min(
            (book.rogues[name] for name in ("garbage", "never-reads", "flapping")), default=0
        ),
        "single calls": book.misuse["unary"],
    }
    figure = ", ".join(f"{name} {count:,}" for name, count in came.items())
    found.append(Check("clients", figure, "all were there", all(came.values())))
    problems = [*differ, *book.problems]
    figure = f"{len(problems)}" + (f", the first: {problems[0][:FIRST_WORDS]}" if problems else "")
    found.append(Check("problems", figure, "none", not problems))
    return found


def as_report(
    record: Record,
    book: Book,
    checks: Sequence[Check],
    facts: dict[str, str],
    interrupted: bool,
) -> dict[str, Any]:
    """All that is known, as JSON takes it."""
    grown = {"rss": record.rss(), "anon": record.anon()}
    return {
        "kind": "soak",
        "facts": facts,
        "held": all(check.held for check in checks) and not interrupted,
        "interrupted": interrupted,
        "checks": [asdict(check) for check in checks],
        "warm_seconds": WARM_SECONDS,
        "growth_mib_per_10_min": {name: asdict(it) if it else None for name, it in grown.items()},
        "begin": asdict(record.begin) if record.begin else None,
        "end": asdict(record.end) if record.end else None,
        "clients": {
            "runs": book.runs,
            "killed": book.killed,
            "sent": book.sent,
            "answered": book.answered,
            "lost": book.lost,
            "measured_outcomes": book.outcomes,
            "heartbeats": book.heartbeats,
            "rogue_frames": book.rogues,
            "misuse": book.misuse,
            "cases": book.cases,
            "problems": book.problems,
        },
        "samples": [asdict(sample) for sample in record.samples],
    }


@promise(
    run.SOAK,
    "twenty minutes of everything at once",
    mark="memory grows by less than 1 MiB per 10 min after the first 2; open files and threads as at "
    "the start; every frame answered",
)
def long_run(env: Env) -> Finding:
    """One server with its defaults and the real network. Cameras come for seconds, stay, burst and leave;
    some are killed with frames under way and come back; quiet ones send heartbeats. Others send garbage,
    read no answers, connect again and again, and go round every whole and broken picture of the tests, raw
    frames of odd sizes and single calls, faster than they can be taken at times. Metrics are read every
    5 s. At the end all leave. It runs beside the rows that do not judge latency."""
    soak = Soak(env, env.minutes)
    soak.start()
    return soak.finish()


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="soak.py", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--minutes", type=float, default=MINUTES, metavar="M", help="default: %(default)g")
    add("--no-build", action="store_true", help="take the programs as they are")
    add("--no-install", action="store_true", help="take the machine as it is")
    add("--server", type=Path, default=install.RELEASE / "vedette-server", metavar="FILE")
    add("--client-sim", type=Path, default=install.RELEASE / "client-sim", metavar="FILE")
    return parser.parse_args(arguments)


def build(say: Callable[[str], None]) -> None:
    """The programs under test, as users get them."""
    say("building the server and client-sim")
    path = f"{os.environ.get('PATH', '')}:{ROOT / 'models' / 'cache' / 'bin'}"
    cargo = ["cargo", "build", "--release", "--locked", "-p", "vedette-server", "-p", "client-sim"]
    install.run([sys.executable, ROOT / "models" / "setup.py", "--quiet"], "models/setup.py")
    install.run(cargo, "the build", PATH=path)


def soak_alone(args: argparse.Namespace) -> int:
    """The long run by itself."""
    if not args.no_build:
        build(run.say)
    work = OUT / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = Env(
        server=args.server.absolute(),
        client_sim=args.client_sim.absolute(),
        minutes=args.minutes,
        work=work,
        name="soak",
    )
    soak = Soak(env, args.minutes)
    try:
        soak.start()
        finding = soak.finish()
    except KeyboardInterrupt:
        run.say("interrupted: letting everybody leave")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        soak.abort()
        run.say(soak.finish().detail)
        return run.EXIT_INTERRUPTED
    finally:
        env.cleanup()
    run.say(f"\n{finding.detail}\n\n{finding.verdict}: {finding.figure}")
    return 0 if finding.held else run.EXIT_FAILED


def main() -> int:
    """The whole program."""
    args = parse_arguments()
    signal.signal(signal.SIGTERM, run.stop)
    try:
        if not args.no_install:
            install.install_venv(run.say)
            install.generate_stubs()
        run.enter_environment()
        return soak_alone(args)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return run.EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return run.EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
