"""Runs of client-sim, and the reports that they write (docs/report-schema.md)."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from typing import Any

from cgroup import Cgroup
from env import Env
from netns import NetNs

# A run ends by itself; this is far beyond what its own flags ask for, in seconds.
RUN_SECONDS = 300.0

_COUNTER = itertools.count(1)

Report = dict[str, Any]


class Simulation:
    """A run of client-sim in the background."""

    def __init__(
        self,
        env: Env,
        addr: str,
        *flags: str,
        netns: NetNs | None = None,
        cgroup: Cgroup | None = None,
    ) -> None:
        self.env = env
        self.path = env.work / f"run{next(_COUNTER)}.json"
        self._errors = self.path.with_suffix(".err")
        own = ["--json", str(self.path), "--quiet"]
        # Whether the simulator could have held a limit is for people who read its verdict.
        own += [] if "--self-test" in flags else ["--self-test", "never"]
        with self._errors.open("wb") as err:
            self.process = env.spawn(
                [env.client_sim, "run", "--addr", addr, *own, *flags],
                netns=netns,
                cgroup=cgroup,
                stdout=err,
                stderr=err,
            )

    def running(self) -> bool:
        """Whether it is still at work."""
        return self.process.poll() is None

    def report(self, seconds: float = RUN_SECONDS) -> Report:
        """Waits for its end and returns its report, whatever the verdict."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"client-sim was not done within {seconds:g} s") from None
        finally:
            self.env.end(self.process)
        if not self.path.exists():
            said = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            raise RuntimeError(f"client-sim ended with {code} and no report: {said[-400:]}")
        report: Report = json.loads(self.path.read_text(encoding="utf-8"))
        return report

    def interrupt(self) -> None:
        """Ends it in order: it still writes its report."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Ends it without a word to the server: its sockets close, its answers go nowhere."""
        self.process.kill()
        self.process.wait()
        self.env.end(self.process)


def start_sim(
    env: Env, addr: str, *flags: str, netns: NetNs | None = None, cgroup: Cgroup | None = None
) -> Simulation:
    """Starts a run in the background."""
    return Simulation(env, addr, *flags, netns=netns, cgroup=cgroup)


def run_sim(
    env: Env,
    addr: str,
    *flags: str,
    netns: NetNs | None = None,
    cgroup: Cgroup | None = None,
    seconds: float = RUN_SECONDS,
) -> Report:
    """Runs client-sim to its end and returns its report, whatever the verdict."""
    return Simulation(env, addr, *flags, netns=netns, cgroup=cgroup).report(seconds)


def unanswered(report: Report) -> int:
    """Frames sent without an answer, warm-up included."""
    return sum(int(part["lost"]) for part in (report, report["warmup"]))
