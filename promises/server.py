"""A server under test, from its start to its end, and what /proc and its metrics say about it."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType

from cgroup import Cgroup
from env import LOOPBACK, PLAIN_USER, Account, Env, wait_until
from netns import NetNs
from promise import CannotRun

# The network is a busy loop of 1 ms: what is tested is everything around it.
SPIN = ("--backend", "spin", "--spin-ms", "1")

# Logs that say when each stream was opened.
STREAM_LOGS = ("--log-format", "json", "--log-level", "info,vedette_server::ingress=debug")

# Streams served now, and accepted since the start.
STREAMS = "vedette_streams"
STREAMS_OPENED = "vedette_streams_opened_total"

# Time to load the model and run every shape, on a machine that is busy, in seconds.
START_SECONDS = 60.0

# Time in which frames in hand must be answered once nobody sends, in seconds. Longer than the longest
# inference of any row, shorter than an operator's patience.
SETTLE_SECONDS = 10.0

RECEIVED = "vedette_frames_received_total"
OUTCOMES = "vedette_frames_total{"

_COUNTER = itertools.count(1)


class AccountsDiffer(Exception):
    """Promise 18 is broken: frames received are not the frames that ended in an outcome."""


def parse_metrics(text: str) -> dict[str, float]:
    """Series (name with labels) and value of Prometheus's text format."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
    return {series: float(value) for series, _, value in lines if series}


def logged_at(log: str, message: str) -> list[float]:
    """When a message was logged, in seconds since the Unix epoch, from a log in JSON."""
    found = []
    for line in log.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if entry["message"] == message:
                found.append(datetime.fromisoformat(entry["timestamp"]).timestamp())
    return found


def accounts(metrics: dict[str, float]) -> tuple[int, int]:
    """Frames received, and the sum of what became of frames."""
    outcomes = sum(value for series, value in metrics.items() if series.startswith(OUTCOMES))
    return int(metrics.get(RECEIVED, 0)), int(outcomes)


def connect(host: str, port: int, netns: NetNs | None, seconds: float = 5.0) -> socket.socket:
    """A TCP connection, made inside a namespace where one is given."""
    with netns.entered() if netns else contextlib.nullcontext():
        return socket.create_connection((host, port), timeout=seconds)


def http_get(address: str, path: str, netns: NetNs | None = None) -> tuple[int, str]:
    """Status and body of a page."""
    host, _, port = address.rpartition(":")
    client = http.client.HTTPConnection(host, int(port))
    client.sock = connect(host, int(port), netns)
    with contextlib.closing(client):
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def plain_user_may_run(binary: Path) -> bool:
    """Whether an account without rights reaches this file: not where it lies below /root."""
    test = ["setpriv", f"--reuid={PLAIN_USER}", "--clear-groups", "test", "-x", str(binary)]
    return subprocess.run(test, capture_output=True, check=False).returncode == 0


class Server:
    """Starts vedette-server on free ports of loopback and ends it. `root` keeps it the super-user;
    otherwise it runs as an account without rights. At the end promise 18 is checked, unless
    `settles` says that frames will still be in hand, or the server is no longer there."""

    def __init__(
        self,
        env: Env,
        *flags: str,
        binary: Path | None = None,
        netns: NetNs | None = None,
        cgroup: Cgroup | None = None,
        preload_env: dict[str, str] | None = None,
        root: bool = False,
        port: int | None = None,
        settles: bool = True,
    ) -> None:
        self.env = env
        self.netns = netns
        self.settles = settles
        self.addr = f"{LOOPBACK}:{port or env.port()}"
        self.admin = f"{LOOPBACK}:{env.port()}"
        self.name = f"server{next(_COUNTER)}"
        self._wrappers = {"netns": netns, "cgroup": cgroup, "environment": preload_env}
        self._user = None if root else PLAIN_USER
        self._binary = binary or env.server
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        binary = self._reachable(self._binary)
        where = ["--addr", self.addr, "--admin-addr", self.admin]
        with self._log("out").open("wb") as out, self._log("err").open("wb") as err:
            self._process = self.env.spawn(
                [binary, *where, *self._flags],
                user=self._user,
                cwd=self.env.root,
                stdout=out,
                stderr=err,
                **self._wrappers,
            )
        try:
            wait_until(self._listens, START_SECONDS)
        except BaseException:
            self.env.end(self._process)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self.alive() and self.settles:
                self.check_accounts()
        finally:
            self.env.end(self.process)

    def _reachable(self, binary: Path) -> Path:
        """The binary, or a copy of it that the server's account may run."""
        if not binary.exists():
            raise CannotRun(f"{binary} does not exist")
        if self._user is None or plain_user_may_run(binary):
            return binary
        raise CannotRun(f"the account {self._user} cannot reach {binary}: clone to another folder")

    def _log(self, kind: str) -> Path:
        return self.env.work / f"{self.name}.{kind}"

    def _listens(self) -> bool:
        if not self.alive():
            last = (self.stderr_text().strip().splitlines() or ["it said nothing"])[-1]
            raise CannotRun(f"the server ended with {self.process.returncode}: {last}")
        return f"listening on {self.addr}\n" in self.stdout_text()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running child."""
        assert self._process is not None, "the server was not started"
        return self._process

    @property
    def pid(self) -> int:
        """Of the server itself: its wrappers have replaced themselves."""
        return self.process.pid

    @property
    def port(self) -> int:
        """Where cameras connect."""
        return int(self.addr.rpartition(":")[2])

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def stdout_text(self) -> str:
        """All it printed."""
        return self._log("out").read_text(encoding="utf-8", errors="replace")

    def stderr_text(self) -> str:
        """Its log."""
        return self._log("err").read_text(encoding="utf-8", errors="replace")

    def opened_at(self) -> list[float]:
        """When each stream was opened, in seconds since the Unix epoch; needs STREAM_LOGS."""
        return logged_at(self.stderr_text(), "stream opened")

    def signal(self, sig: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(sig)

    def wait(self, seconds: float) -> int:
        """Waits for its end and returns the exit code, negative for a signal."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the server still runs after {seconds:g} s") from None

    def metrics(self) -> dict[str, float]:
        """All series of /metrics."""
        return parse_metrics(http_get(self.admin, "/metrics", self.netns)[1])

    def metric(self, series: str, default: float | None = None) -> float:
        """One series, named with its labels. One that does not exist is an error without default."""
        found = self.metrics().get(series, default)
        if found is None:
            raise KeyError(f"the server has no series {series}")
        return found

    def wait_metric(self, series: str, value: float, seconds: float) -> float:
        """Waits until a series has a value and returns how long that took, in seconds."""
        try:
            return wait_until(lambda: self.metric(series) == value, seconds)
        except TimeoutError:
            now = self.metric(series)
            raise TimeoutError(f"{series} is {now:g}, not {value:g} in {seconds:g} s") from None

    def check_accounts(self, seconds: float = SETTLE_SECONDS) -> None:
        """Promise 18: raises when frames received are not frames that ended, and keeps the figures."""
        end = time.monotonic() + seconds
        received, outcomes = accounts(self.metrics())
        while received != outcomes and time.monotonic() < end:
            time.sleep(0.1)
            received, outcomes = accounts(self.metrics())
        self.env.shared.accounts.append(Account(self.env.name, received, outcomes))
        if received != outcomes:
            raise AccountsDiffer(f"promise 18: {received} frames received, {outcomes} ended")

    def _status(self, key: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        line = next(line for line in text.splitlines() if line.startswith(f"{key}:"))
        return int(line.split()[1])

    def rss_bytes(self) -> int:
        """Resident memory."""
        return self._status("VmRSS") * 1024

    def peak_rss_bytes(self) -> int:
        """The most resident memory since its start."""
        return self._status("VmHWM") * 1024

    def fds(self) -> int:
        """Open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        """Threads."""
        return self._status("Threads")

    def cpu_seconds(self) -> float:
        """Processor time used so far, its own and the kernel's for it."""
        text = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
