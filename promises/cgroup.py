"""A limit on the memory of a program and all it starts, by the kernel's memory controller."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

from env import Env
from promise import CannotRun

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
_COUNTER = itertools.count(1)

# Processes that have just ended keep their group busy for a moment, in seconds.
EMPTY_SECONDS = 3.0


class Cgroup:
    """A group with a memory limit in bytes: version 1 of the controller, or 2 where only that is."""

    def __init__(self, env: Env, limit_bytes: int) -> None:
        self.env = env
        self.limit_bytes = limit_bytes
        self.version = 1 if (V1 / "memory.limit_in_bytes").exists() else 2
        base = V1 if self.version == 1 else V2
        self.path = base / f"vedette-promise-{os.getpid()}-{next(_COUNTER)}"

    def __enter__(self) -> Cgroup:
        try:
            if self.version == 2:
                (V2 / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            self.path.mkdir()
            self.env.shared.cleanups.append(self.remove)
            self._limit()
        except OSError as error:
            raise CannotRun(f"no memory controller: {error}") from error
        return self

    def _limit(self) -> None:
        if self.version == 1:
            (self.path / "memory.limit_in_bytes").write_text(str(self.limit_bytes), "ascii")
            return
        (self.path / "memory.max").write_text(str(self.limit_bytes), "ascii")
        with contextlib.suppress(FileNotFoundError):  # kernels without swap accounting
            (self.path / "memory.swap.max").write_text("0", "ascii")

    def __exit__(self, *_: object) -> None:
        self.env.shared.clean_up_now(self.remove)

    def remove(self) -> None:
        """Takes the group away once its processes have ended."""
        end = time.monotonic() + EMPTY_SECONDS
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    @property
    def procs(self) -> Path:
        """The file that a process writes its id to, to be in the group."""
        return self.path / "cgroup.procs"

    def _read(self, v1: str, v2: str) -> str:
        return (self.path / (v1 if self.version == 1 else v2)).read_text(encoding="ascii")

    def used_bytes(self) -> int:
        """Memory charged to the group now, page cache included."""
        return int(self._read("memory.usage_in_bytes", "memory.current"))

    def peak_bytes(self) -> int:
        """The most that was ever charged."""
        return int(self._read("memory.max_usage_in_bytes", "memory.peak"))

    def oom_kills(self) -> int:
        """Processes of the group that the kernel killed for memory."""
        lines = self._read("memory.oom_control", "memory.events").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
