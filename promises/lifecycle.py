"""Promises 28 and 29: how a server ends, and clocks that jump."""

from __future__ import annotations

import json
import math
import signal
import time
from datetime import datetime
from pathlib import Path

from client import Camera, StreamEnded
from env import Env, picture
from probes import HealthWatch, http_status
from promise import CannotRun, Finding, promise
from server import SPIN, STREAM_LOGS, Server
from sim import start_sim, unanswered
from supervise import NotifySocket

STREAMS = 30
AT_ONCE_SECONDS = 0.1
GRACE_SECONDS = 10
CUT_SHORT = 143  # 128 + SIGTERM
# A frame that is still computed when everybody has lost patience.
ENDLESS = ("--backend", "spin", "--spin-ms", "10000", "--workers", "1")


def terminate(server: Server) -> float:
    """Sends SIGTERM; when that was, by the monotonic clock."""
    at = time.monotonic()
    server.signal(signal.SIGTERM)
    return at


def refused(addr: str) -> str:
    """The status with which a new stream ends."""
    with Camera(addr, "too-late") as camera:
        camera.send(1, picture())
        return camera.ended()[0]


def a_drain_under_load(env: Env) -> tuple[str, bool]:
    """Thirty streams in the middle of their work."""
    with Server(env, "--backend", "spin", "--spin-ms", "6") as server:
        load = start_sim(
            env, server.addr, "--cameras", str(STREAMS), "--fps", "10", "--seconds", "20",
            "--phase", "aligned", "--no-reconnect",
        )  # fmt: skip
        with HealthWatch(server.addr) as health, HealthWatch(server.addr, "") as whole:
            server.wait_metric("vedette_streams", STREAMS, 10)
            time.sleep(4)
            at = terminate(server)
            code = server.wait(GRACE_SECONDS + 5)
            took = time.monotonic() - at
            told = max(watch.when("NOT_SERVING", at, 1) for watch in (health, whole))
        report = load.report()
    ends = {end["reason"]: end["streams"] for end in report["stream_ends"]}
    figure = (
        f"NOT_SERVING after {told * 1000:.0f} ms; {report['ok']} OK, {unanswered(report)} lost, "
        f"{report['unaccepted']} not taken up; exit {code} after {took:.2f} s"
    )
    held = (
        told <= AT_ONCE_SECONDS
        and code == 0
        and took <= GRACE_SECONDS
        and unanswered(report) == 0
        and report["ok"] > 0
        and sum(ends.values()) == STREAMS
    )
    return figure, held


def a_drain_that_waits(env: Env) -> tuple[str, bool]:
    """A frame that takes 10 s, an hour of patience, and a second signal."""
    flags = (*ENDLESS, "--grace-seconds", "3600", "--budget-ms", "60000")
    with Server(env, *flags) as server, Camera(server.addr, "slow") as camera:
        camera.send(1, picture())
        server.wait_metric("vedette_computing_frames", 1, 5)
        terminate(server)
        # Beyond the time in which another one would be taken for the first one's echo.
        time.sleep(2)
        page, late = http_status(server.admin, "GET", "/readyz"), refused(server.addr)
        draining = server.alive()
        at = terminate(server)
        code, took = server.wait(10), time.monotonic() - at
    figure = (
        f"meanwhile /readyz {page}, a new stream {late}; second SIGTERM: exit {code} "
        f"in {took:.2f} s"
    )
    held = (page, late, draining, code) == (503, "UNAVAILABLE", True, CUT_SHORT)
    return figure, held and took < 1


def a_drain_that_is_over(env: Env) -> tuple[str, bool]:
    """The same frame, with 3 s of patience."""
    grace = 3
    flags = (*ENDLESS, "--grace-seconds", str(grace))
    with Server(env, *flags) as server, Camera(server.addr, "slow") as camera:
        camera.send(1, picture())
        server.wait_metric("vedette_computing_frames", 1, 5)
        at = terminate(server)
        code, took = server.wait(15), time.monotonic() - at
    figure = f"frame beyond the grace of {grace} s: exit {code} after {took:.2f} s"
    return figure, code == 0 and took <= grace


@promise(
    28,
    "SIGTERM ends in order, a second one at once",
    mark="30 streams: NOT_SERVING <= 0.1 s, none lost, exit 0 <= grace; second SIGTERM: exit < 1 s",
    quiet=True,
)
def termination(env: Env) -> Finding:
    """Thirty cameras at 10 FPS, all sending at the same instants, when SIGTERM comes. Watchers of
    the health service are told at once, every frame that was taken up is answered, and the process
    exits 0 within its grace time. Then a server with a frame that takes 10 s and an hour of grace:
    meanwhile it is not ready and takes no new stream, and a second SIGTERM ends it within a second.
    And with a grace of 3 s it exits 0 within them.
    """
    parts = [a_drain_under_load(env), a_drain_that_waits(env), a_drain_that_is_over(env)]
    return Finding("; ".join(figure for figure, _ in parts), held=all(held for _, held in parts))


FAKETIME = Path("/usr/lib") / "x86_64-linux-gnu" / "faketime" / "libfaketimeMT.so.1"
HOUR = 3600
JUMPS = (+HOUR, -HOUR, 0)
PAUSE_SECONDS = 8
WATCHDOG_SECONDS = 3.0
# What a frame may take here at the very most, in seconds: a jump would make it an hour.
SANE_SECONDS = 10.0


def library() -> Path:
    """The library that fakes the clock, wherever this machine's architecture has it."""
    found = [FAKETIME, *sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))]
    for path in found:
        if path.exists():
            return path
    raise CannotRun("libfaketime is not installed")


class FakeClock:
    """The time of day as a server sees it. The monotonic clock goes on undisturbed, as in the
    field."""

    def __init__(self, env: Env) -> None:
        self.path = env.work / "clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.work = env.work

    def around(self, binary: Path) -> Path:
        """A program that becomes the binary under this clock. The library keeps a semaphore for
        each process that only its first user may open, so that nothing before the binary may load
        it."""
        script = self.work / "under-fake-clock"
        lines = [f"export {key}='{value}'" for key, value in self.environment.items()]
        text = "\n".join(["#!/bin/sh", *lines, f"exec '{binary}' \"$@\"", ""])
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
        return script

    def set(self, seconds: int) -> None:
        """So far from the true time from now on."""
        new = self.path.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n", encoding="ascii")
        new.rename(self.path)


def hours_in_log(log: str, now: float) -> set[int]:
    """How many hours its time stamps are off, rounded."""
    stamps = []
    for line in log.splitlines():
        try:
            stamps.append(datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp())
        except (ValueError, KeyError):
            continue
    return {round((stamp - now) / HOUR) for stamp in stamps}


def sums(server: Server) -> dict[str, float]:
    """Sums of all measured times."""
    return {key: value for key, value in server.metrics().items() if "_seconds_sum" in key}


@promise(
    29,
    "the clock may jump",
    mark="+-1 h under load: all frames OK, no negative or absurd time, watchdog undisturbed",
)
def clock_jumps(env: Env) -> Finding:
    """Twenty cameras at 10 FPS while the server's time of day jumps an hour ahead, two hours back
    and an hour ahead again, 8 s each (libfaketime; the monotonic clock goes on, as it does when a
    clock is set). Every frame is answered OK, no stream ends, no sum of times falls or rises by
    more than real time explains, the watchdog is fed as before, and health stays SERVING. A witness
    sends its frames' capture times: no age is negative. That the jumps were really seen is read
    from the time stamps of the server's log.
    """
    clock, wrong = FakeClock(env), []
    with (
        NotifySocket(env, WATCHDOG_SECONDS) as told,
        Server(
            env, *SPIN, *STREAM_LOGS,
            binary=clock.around(env.server), preload_env=told.environment,
        ) as server,
        HealthWatch(server.addr) as health,
        Camera(server.addr, "witness") as camera,
    ):  # fmt: skip
        seconds = PAUSE_SECONDS * (len(JUMPS) + 1)
        load = start_sim(
            env, server.addr, "--cameras", "20", "--fps", "10", "--seconds", str(seconds - 4)
        )
        time.sleep(PAUSE_SECONDS / 2)
        start = time.monotonic()
        for number, jump in enumerate(JUMPS):
            before = sums(server)
            clock.set(jump)
            wrong += watched(server, camera, before, number)
        report, until = load.report(), time.monotonic()
        silence = max(told.notices.gaps(start, until))
        states = {state for _, state in health.states}
        stuck = server.metric("vedette_workers_stuck_total", math.nan)
        hours = hours_in_log(server.stderr_text(), time.time())
    figure = (
        f"{report['ok']} of {report['sent']} OK, slowest {report['max_ms']:.0f} ms, "
        f"{report['reconnects']['count']} reconnects; clock seen {sorted(hours)} h off; "
        f"longest silence to the watchdog {silence:.1f} of {WATCHDOG_SECONDS:g} s"
    )
    held = (
        not wrong
        and report["ok"] == report["sent"] > 0
        and report["reconnects"]["count"] == 0
        and silence <= WATCHDOG_SECONDS
        and states == {"SERVING"}
        and stuck == 0
        and hours == {-1, 0, 1}
    )
    return Finding(figure, held, "\n".join(wrong))


def watched(server: Server, camera: Camera, before: dict[str, float], number: int) -> list[str]:
    """Some seconds after a jump: what was wrong with times and answers."""
    wrong, end = [], time.monotonic() + PAUSE_SECONDS
    frame = 1000 * number
    while time.monotonic() < end:
        frame += 1
        try:
            answer = camera.exchange(frame, picture(), capture_time_us=int(time.time() * 1e6))
        except (TimeoutError, StreamEnded) as error:
            return [f"jump {number}: {error}"]
        if answer.outcome != "OK" or answer.total_us > SANE_SECONDS * 1e6:
            wrong.append(f"jump {number}: {answer}")
        time.sleep(0.05)
    # A stream that opens writes a line with the time.
    with Camera(server.addr, f"after-{number}") as late:
        late.exchange(1, picture())
    after = sums(server)
    for series, value in after.items():
        risen = value - before.get(series, 0.0)
        # The age of a picture is a difference between two clocks, and may be an hour.
        most = math.inf if "capture_age" in series else PAUSE_SECONDS * 1000
        if not 0 <= risen <= most:
            wrong.append(f"jump {number}: {series} has risen by {risen}")
    return wrong
