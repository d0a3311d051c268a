"""What rows work with: the programs under test, folders, free ports, children that end with the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promise import CannotRun

if TYPE_CHECKING:
    from cgroup import Cgroup
    from netns import NetNs

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"
FIXTURES = ROOT / "server" / "tests" / "fixtures"

# The account that servers run as: every Debian has it, and it owns nothing.
PLAIN_USER = "nobody"
PLAIN_GROUP = "nogroup"

# Time in which a child must leave after SIGTERM before it is killed, in seconds.
LEAVE_SECONDS = 3.0

# How often a condition is looked at, in seconds.
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Account:
    """What a server said at its end of frames received, and of what became of them."""

    row: str
    received: int
    outcomes: int


@dataclass
class Shared:
    """What all rows of one run share."""

    # Each child with the row that it belongs to.
    children: dict[subprocess.Popen[Any], str] = field(default_factory=dict)
    cleanups: list[Callable[[], None]] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    accounts: list[Account] = field(default_factory=list)

    def clean_up_now(self, cleanup: Callable[[], None]) -> None:
        """Does what was entered to be done at the end."""
        self.cleanups.remove(cleanup)
        cleanup()


@dataclass(frozen=True)
class Env:
    """Handed to each row. `work` is the row's own folder, empty at its start."""

    server: Path
    client_sim: Path
    faults: Path | None = None
    minutes: float = 20.0
    root: Path = ROOT
    out: Path = ROOT / "target" / "promises"
    work: Path = ROOT / "target" / "promises" / "work"
    name: str = "row"
    shared: Shared = field(default_factory=Shared)

    def for_row(self, number: int) -> Env:
        """The same with an empty folder of the row's own."""
        work = self.out / "work" / f"row{number:02}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        return replace(self, work=work, name=f"{number}")

    def say(self, line: str) -> None:
        """A line of progress, at once."""
        print(f"  [{time.strftime('%H:%M:%S')}] {self.name}: {line}", flush=True)

    def faults_server(self) -> Path:
        """The server that can be made to fail on purpose."""
        if self.faults is None or not self.faults.exists():
            raise CannotRun("the server with --features faults was not built")
        return self.faults

    def port(self) -> int:
        """A port on loopback that is free now and was not handed out before."""
        while True:
            with socket.socket() as probe:
                probe.bind((LOOPBACK, 0))
                port = probe.getsockname()[1]
            if port not in self.shared.ports:
                self.shared.ports.add(port)
                return port

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        netns: NetNs | None = None,
        cgroup: Cgroup | None = None,
        user: str | None = None,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a child, in a namespace, in a memory limit and as another user where asked.

        Each wrapper replaces itself by the next, so that the child's pid is the program's. It is in
        a session of its own: Ctrl-C reaches only the suite, which then ends its children in order.
        """
        full = wrap([str(part) for part in command], netns, cgroup, user)
        child = subprocess.Popen(
            full,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        self.shared.children[child] = self.name
        return child

    def run(
        self, command: Sequence[str | Path], seconds: float = 60.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs a child to its end, takes what it prints, and judges nothing."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        child = self.spawn(command, **{**pipes, **options})
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end(child)
            raise TimeoutError(f"{command[0]} was not done within {seconds:g} s") from None
        finally:
            self.end(child)
        return subprocess.CompletedProcess(list(command), child.returncode, out, err)

    def end(self, child: subprocess.Popen[Any]) -> None:
        """Ends a child and what it started, by SIGKILL if it stays."""
        if child.poll() is None:
            for sig in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, sig)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LEAVE_SECONDS)
                    break
        self.shared.children.pop(child, None)

    def end_row(self) -> None:
        """Ends what this row has left running; the long run's children stay."""
        # A copy at once: the long run's threads start and end children meanwhile.
        for child, row in list(self.shared.children.items()):
            if row == self.name:
                self.end(child)

    def cleanup(self) -> None:
        """Ends what is left: children first, then what they lived in."""
        for child in list(self.shared.children):
            self.end(child)
        while self.shared.cleanups:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self.shared.cleanups.pop()()


def wrap(
    command: list[str], netns: NetNs | None, cgroup: Cgroup | None, user: str | None
) -> list[str]:
    """The command behind its wrappers, the outermost first."""
    if user is not None:
        group = PLAIN_GROUP if user == PLAIN_USER else user
        command = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *command]
    if netns is not None:
        command = ["ip", "netns", "exec", netns.name, *command]
    if cgroup is not None:
        command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup.procs), *command]
    return command


def picture(name: str = "base_640x360.jpg") -> bytes:
    """One of the tests' pictures; the default is a plain one of 7 KB."""
    return (FIXTURES / name).read_bytes()


def wait_until(condition: Callable[[], bool], seconds: float) -> float:
    """Waits until the condition is true and returns how long that took, in seconds."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - start


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the main thread when the block takes longer."""

    def ring(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"the row was not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
