"""Runs fuzz targets as processes: CPU time, end, what they print and what they leave."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import build
from build import CannotRun, binary
from targets import ARTIFACTS, CORPUS, INPUT_SECONDS, KEPT, SANITIZER_OPTIONS, Target

LOGS = build.OUT / "logs"

# A run may take so many times its CPU time on a busy machine, and so many seconds besides for its
# seeds and its end; then it is ended with whatever it has.
PATIENCE = 3.0
GRACE_SECONDS = 30

# How often CPU times are looked at, in seconds.
LOOK_SECONDS = 0.2

# Seconds for making a failing input shorter.
SHORTEN_SECONDS = 60

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

PASSED = "passed"


@dataclass
class Result:
    """What a run of one target came to, over all of its jobs."""

    target: str
    executions: int = 0
    executions_per_second: float = 0.0
    # Branches of the Rust code, and of all code with their numbers of times: the best job's.
    edges: int = 0
    features: int = 0
    corpus_files: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    slowest_seconds: int = 0
    peak_rss_mb: int = 0
    verdict: str = PASSED
    log: str = ""
    summary: list[str] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.verdict == PASSED


@dataclass
class Job:
    """One process."""

    process: subprocess.Popen[bytes]
    log: Path
    asked_to_end: bool = False
    # Once it has ended.
    code: int | None = None
    cpu_seconds: float = 0.0

    def look(self) -> None:
        """Updates CPU time and exit code."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_seconds = usage.ru_utime + usage.ru_stime
        else:
            self.cpu_seconds = cpu_seconds(self.process.pid)

    def end(self) -> None:
        """Asks libFuzzer to end in order, with its statistics."""
        if self.code is None and not self.asked_to_end:
            self.process.send_signal(signal.SIGUSR1)
            self.asked_to_end = True

    def kill(self) -> None:
        if self.code is None:
            self.process.kill()
            while self.code is None:
                time.sleep(LOOK_SECONDS)
                self.look()


def cpu_seconds(pid: int) -> float:
    """CPU time of a running process (proc(5), stat: fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def run(target: Target, seconds: float, jobs: int, seed: int | None) -> Result:
    """Fuzzes a target for so many seconds of CPU time over all jobs."""
    share = seconds / jobs
    deadline = share * PATIENCE + GRACE_SECONDS
    artifacts = ARTIFACTS / target.name
    artifacts.mkdir(parents=True, exist_ok=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    start = time.monotonic()
    running: list[Job] = []
    try:
        running += (begin(target, number, deadline, seed) for number in range(jobs))
        stuck = watch(running, share, start + deadline + INPUT_SECONDS + GRACE_SECONDS)
    finally:
        for job in running:
            job.kill()
    result = Result(target.name, wall_seconds=time.monotonic() - start)
    for job in running:
        add(result, job)
    result.artifacts = sorted(str(path) for path in set(artifacts.iterdir()) - before)
    result.executions_per_second = result.executions / max(result.cpu_seconds, 1e-3)
    result.corpus_files = sum(1 for _ in (CORPUS / target.name).iterdir())
    if stuck:
        result.verdict = "stuck"
    return result


def begin(target: Target, number: int, deadline: float, seed: int | None) -> Job:
    """Starts a job, which ends by itself at the deadline even if nobody is left to watch it."""
    command = [
        str(binary(target.name)),
        str(CORPUS / target.name),
        f"-artifact_prefix={ARTIFACTS / target.name}/",
        f"-max_total_time={int(deadline)}",
        "-print_final_stats=1",
        *target.options(),
        *([f"-seed={seed + number}"] if seed else []),
    ]
    log = LOGS / f"{target.name}-{number}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment(target, number),
        )
    return Job(process, log)


def environment(target: Target, variant: int) -> dict[str, str]:
    env = target.variants[variant % len(target.variants)]
    options = ":".join(filter(None, (SANITIZER_OPTIONS, os.environ.get("ASAN_OPTIONS"))))
    return os.environ | env | {"ASAN_OPTIONS": options, "RUST_BACKTRACE": "1"}


def watch(running: list[Job], share: float, last: float) -> bool:
    """Waits until each job has had its share of CPU time or one has found something.

    Returns whether it had to give up.
    """
    while any(job.code is None for job in running):
        if time.monotonic() > last:
            return True
        for job in running:
            if job.code is None:
                job.look()
                if job.cpu_seconds >= share:
                    job.end()
        if any(job.code for job in running):
            for job in running:
                job.end()
        time.sleep(LOOK_SECONDS)
    return False


STATISTIC = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)
STATUS = re.compile(r"^#\d+\t.*?cov: (\d+) ft: (\d+)", re.MULTILINE)
# What failed, in the words of Rust, the sanitizer and libFuzzer.
TELLING = re.compile(
    r"^(?:thread '.*panicked at .*\n.*|==\d+==\s*ERROR: .*|SUMMARY: .*|ALARM: .*)", re.MULTILINE
)
VERDICTS = {"oom": "too much memory", "timeout": "too slow", "leak": "memory leak"}
FOUND = re.compile(r"Test unit written to .*/(\w+)-[0-9a-f]+")


def add(result: Result, job: Job) -> None:
    """Adds what a job has printed."""
    text = job.log.read_text(errors="replace")
    statistics = {name: int(value) for name, value in STATISTIC.findall(text)}
    result.executions += statistics.get("number_of_executed_units", 0)
    result.slowest_seconds = max(result.slowest_seconds, statistics.get("slowest_unit_time_sec", 0))
    result.peak_rss_mb = max(result.peak_rss_mb, statistics.get("peak_rss_mb", 0))
    result.cpu_seconds += job.cpu_seconds
    for edges, features in STATUS.findall(text)[-1:]:
        result.edges = max(result.edges, int(edges))
        result.features = max(result.features, int(features))
    if job.code and result.passed:
        kind = FOUND.search(text)
        result.verdict = VERDICTS.get(kind[1], "crash") if kind else f"exit {job.code}"
        result.log = str(job.log)
        result.summary = [line for match in TELLING.findall(text) for line in match.splitlines()]
        result.summary = result.summary[:8] or text.splitlines()[-8:]
    elif not statistics and result.passed:
        result.verdict, result.log = "no statistics", str(job.log)
        result.summary = text.splitlines()[-8:]


def reproduce(target: Target, path: Path, *, quiet: bool = False) -> int | None:
    """Runs one input as each kind of job does. Returns the number of the kind in which it fails."""
    for variant, env in enumerate(target.variants):
        command = [str(binary(target.name)), str(path), *target.options()]
        if not quiet:
            words = [f"{key}={value}" for key, value in env.items()]
            print("$", *words, *command, flush=True)
        try:
            code = subprocess.run(
                command,
                check=False,
                env=environment(target, variant),
                timeout=INPUT_SECONDS + GRACE_SECONDS,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.DEVNULL if quiet else None,
            ).returncode
        except subprocess.TimeoutExpired:
            code = 1
        if code:
            return variant
    return None


def keep(target: Target, path: Path) -> Path:
    """Shortens a failing input and puts it where the server's tests find it."""
    variant = reproduce(target, path, quiet=True)
    if variant is None:
        raise CannotRun(f"{path} does not fail; nothing to keep")
    short = build.OUT / "shortened"
    short.unlink(missing_ok=True)
    command = [str(binary(target.name)), str(path), *target.options(), "-minimize_crash=1"]
    command += [f"-exact_artifact_path={short}", f"-max_total_time={SHORTEN_SECONDS}"]
    try:
        subprocess.run(
            command,
            check=False,
            env=environment(target, variant),
            timeout=SHORTEN_SECONDS + GRACE_SECONDS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        pass  # What it has come to so far will do.
    failing = short if short.exists() and reproduce(target, short, quiet=True) is not None else path
    name = hashlib.sha256(failing.read_bytes()).hexdigest()[:12]
    KEPT.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(failing, KEPT / f"{target.name}-{name}"))
