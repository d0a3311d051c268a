"""One run: a fresh server, the simulated cameras, the server's CPU time and memory, and its end.

Nothing here waits without a limit, and only processes started here are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contest
from build import ROOT, CannotRun
from samples import INVALID, Sample, Spec

FPS = 10
WARMUP_SECONDS = 1.0
# Answers that come later than this after a camera's last frame count as lost.
DRAIN_SECONDS = 1.0
# Longest wait for a server to listen, for the simulator beyond its own times, and for a server to
# stop in order.
START_SECONDS = 30.0
SIMULATOR_SECONDS = 15.0
STOP_SECONDS = 3.0
# Tries of one run in which the simulator may not keep its own pace.
TRIES = 3
SIMULATOR = ROOT / "target" / "release" / "client-sim"


class RunFailed(Exception):
    """This run gave no figures; the others go on."""


@dataclass(frozen=True)
class Usage:
    """CPU time and peak memory of a server's processes together."""

    cpu_seconds: float
    peak_mib: float


# ---- /proc -----------------------------------------------------------------------------------


def parse_stat(text: str) -> tuple[int, int]:
    """Session and CPU ticks of a `/proc/PID/stat`; the name in it may hold anything."""
    fields = text.rpartition(")")[2].split()
    return int(fields[3]), int(fields[11]) + int(fields[12])


def parse_peak_kib(status: str) -> int:
    """`VmHWM` of a `/proc/PID/status`; 0 for a process that has ended."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def usage(session: int, proc: Path = Path("/proc")) -> Usage:
    """Of all processes of a session, which is how a server with its workers is found."""
    ticks = peak = 0
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        # Processes come and go meanwhile.
        with contextlib.suppress(OSError, ValueError, IndexError):
            its_session, its_ticks = parse_stat((folder / "stat").read_text(errors="replace"))
            if its_session == session:
                ticks += its_ticks
                peak += parse_peak_kib((folder / "status").read_text(errors="replace"))
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), peak / 1024)


# ---- The server --------------------------------------------------------------------------------


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def last_line(text: str, otherwise: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else otherwise


def wait_for_start(server: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once the server says that it listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        text = log.read_text(errors="replace")
        if "listening on " in text:
            return
        if server.poll() is not None:
            raise RunFailed(f"ended at once: {last_line(text, 'without a word')}")
        time.sleep(0.02)
    raise RunFailed(f"did not listen within {START_SECONDS:g} s")


def stop(server: subprocess.Popen[bytes]) -> None:
    """Asks the server to stop, then ends what is left of its process group."""
    try:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@contextlib.contextmanager
def running(server: contest.Server, clock: str, port: int) -> Iterator[int]:
    """Starts a server in a session of its own and yields its process id."""
    log = contest.log_file(server)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                server.command(clock, port),
                cwd=ROOT,
                env=contest.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise CannotRun(f"{server.key}: {error}; leave it out with --servers") from error
    try:
        wait_for_start(process, log)
        yield process.pid
    finally:
        stop(process)


# ---- The simulator -----------------------------------------------------------------------------


def simulator_command(spec: Spec, port: int, report: Path) -> list[str]:
    """The simulator's command line for a run."""
    command = [
        *(str(SIMULATOR), "run", "--addr", f"127.0.0.1:{port}", "--cameras", str(spec.cameras)),
        *("--fps", str(FPS), "--seconds", f"{spec.seconds:g}", "--warmup", f"{WARMUP_SECONDS:g}"),
        *("--drain-seconds", f"{DRAIN_SECONDS:g}", "--json", str(report), "--quiet"),
        *("--self-test", "never"),
        *("--phase", spec.phase),
    ]
    if spec.phase == "ramp":
        command += ["--ramp-cameras", "10", "--ramp-every-ms", "50"]
    return command


def read_report(text: str) -> dict[str, Any]:
    """The simulator's report; RunFailed when it is not one."""
    try:
        report = json.loads(text)
        for field in ("sent", "ok", "not_sent", "verdict"):
            report[field]
        report["warmup"]["ok"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunFailed(f"the simulator's report is not usable: {error!r}") from error
    return dict(report)


def simulate(spec: Spec, port: int) -> dict[str, Any]:
    """Runs the cameras."""
    limit = WARMUP_SECONDS + spec.seconds + DRAIN_SECONDS + SIMULATOR_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        try:
            done = subprocess.run(
                simulator_command(spec, port, report),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"the simulator did not end within {limit:g} s") from error
        except OSError as error:
            raise CannotRun(f"cannot start {SIMULATOR}: {error.strerror}") from error
        if not report.exists():
            raise RunFailed(last_line(done.stderr, f"the simulator ended with {done.returncode}"))
        return read_report(report.read_text(encoding="utf-8"))


# ---- Together ----------------------------------------------------------------------------------


def sample_of(spec: Spec, report: dict[str, Any], before: Usage, after: Usage) -> Sample:
    """The figures of a run."""
    answered = report["ok"] + report["warmup"]["ok"]
    times = {name: report.get(name) if report["ok"] else None for name in ("mean_ms", "min_ms")}
    return Sample(
        spec=spec,
        verdict=str(report["verdict"]),
        sent=report["sent"],
        unanswered=report["sent"] + report["not_sent"] - report["ok"],
        mean_ms=times["mean_ms"],
        min_ms=times["min_ms"],
        max_ms=report.get("max_ms") if report["ok"] else None,
        cpu_ms=1000 * (after.cpu_seconds - before.cpu_seconds) / answered if answered else None,
        memory_mib=after.peak_mib,
    )


def failed(spec: Spec, reason: str) -> Sample:
    """A run without figures: no frame was answered."""
    frames = round(spec.cameras * FPS * spec.seconds)
    return Sample(spec, "FAILED", frames, frames, None, None, None, None, 0.0, error=reason)


def try_once(server: contest.Server, spec: Spec) -> Sample:
    """One run, whatever becomes of it."""
    port = free_port()
    try:
        with running(server, spec.clock, port) as session:
            before = usage(session)
            report = simulate(spec, port)
            return sample_of(spec, report, before, usage(session))
    except RunFailed as reason:
        return failed(spec, f"{server.key}: {reason}")


def measure(server: contest.Server, spec: Spec) -> Sample:
    """One run; again, a few times, when the simulator could not keep its own pace."""
    invalid = 0
    while True:
        sample = try_once(server, spec)
        if sample.verdict != INVALID or invalid + 1 >= TRIES:
            return Sample(**{**vars(sample), "invalid": invalid})
        invalid += 1
