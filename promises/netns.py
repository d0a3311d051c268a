"""A network namespace of a row's own: rules that lose or slow packets touch nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from env import Env
from promise import CannotRun

PREFIX = "vedette-promise"
FOLDER = Path("/run/netns")
CLONE_NEWNET = 0x4000_0000
_COUNTER = itertools.count(1)


def command(arguments: Sequence[str], what: str) -> str:
    """Runs one of the tools that configure networks, and returns what it prints."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        raise CannotRun(f"{arguments[0]} is not installed") from None
    if done.returncode != 0:
        raise CannotRun(f"{what}: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def setns(path: Path) -> None:
    """Moves the calling thread into a network namespace; threads that it starts follow."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(handle)


class NetNs:
    """A namespace with only loopback. Programs run inside by `exec`, or by the `netns=` of servers,
    simulators and camera processes."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.name = f"{PREFIX}-{os.getpid()}-{next(_COUNTER)}"

    def __enter__(self) -> NetNs:
        command(["ip", "netns", "add", self.name], "cannot make a network namespace")
        self.env.shared.cleanups.append(self.remove)
        self.exec("ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        self.env.shared.clean_up_now(self.remove)

    @property
    def path(self) -> Path:
        """The file that stands for the namespace."""
        return FOLDER / self.name

    def remove(self) -> None:
        """Takes the namespace away. It lives on while processes are inside."""
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)

    def exec(self, *arguments: str) -> str:
        """Runs a command inside and returns what it prints."""
        what = f"in the namespace: {' '.join(arguments)}"
        return command(["ip", "netns", "exec", self.name, *arguments], what)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is inside meanwhile; sockets that it makes there stay there."""
        here = Path(f"/proc/self/task/{threading.get_native_id()}/ns/net")
        home = os.open(here, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(self.path)
            yield
        finally:
            setns(Path(f"/proc/self/fd/{home}"))
            os.close(home)

    def _rule(self, *matches: str, verdict: str = "drop") -> None:
        self.exec("nft", "add", "table", "inet", "faults")
        hook = "{ type filter hook input priority 0 ; policy accept ; }"
        self.exec("nft", "add", "chain", "inet", "faults", "in", hook)
        for match in matches:
            self.exec("nft", "add", "rule", "inet", "faults", "in", *match.split(), verdict)

    def blackhole(self, port: int) -> None:
        """From now on no packet to or from this TCP port arrives, in silence, as when a cable is cut."""
        self._rule(f"tcp dport {port}", f"tcp sport {port}")

    def loss(self, port: int, percent: int) -> None:
        """Loses this share of the packets to and from this TCP port, 1 to 99."""
        random = f"numgen random mod 100 < {percent}"
        self._rule(f"tcp dport {port} {random}", f"tcp sport {port} {random}")

    def heal(self) -> None:
        """Takes back blackhole and loss."""
        self.exec("nft", "delete", "table", "inet", "faults")

    def rate(self, mbit_per_s: float) -> None:
        """Lets all of loopback carry this much together, in megabits per second."""
        bucket = f"rate {mbit_per_s}mbit burst 32k latency 50ms".split()
        self.exec("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", *bucket)


def remove_stale() -> None:
    """Takes away namespaces of runs that were killed."""
    for entry in FOLDER.glob(f"{PREFIX}-*"):
        owner = re.fullmatch(rf"{PREFIX}-(\d+)-\d+", entry.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            subprocess.run(["ip", "netns", "del", entry.name], capture_output=True, check=False)
