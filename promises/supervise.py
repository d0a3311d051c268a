"""A supervisor as systemd is one: hears the server's signs of life, and starts it again when it
ends."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env import Env
from server import Server

ALIVE = "WATCHDOG=1"
READY = "READY=1"


@dataclass
class Notices:
    """What a server has told its supervisor, each with its time by the monotonic clock."""

    path: Path
    heard: list[tuple[float, str]] = field(default_factory=list)

    def times(self, word: str, since: float = 0.0) -> list[float]:
        """When a word was heard."""
        return [at for at, told in list(self.heard) if told == word and at >= since]

    def gaps(self, since: float, until: float) -> list[float]:
        """Lengths of the silences between signs of life, those to both ends included."""
        times = [since, *(at for at in self.times(ALIVE, since) if at < until), until]
        return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


class NotifySocket:
    """The socket of sd_notify(3). Give `environment` to the server."""

    def __init__(self, env: Env, watchdog_seconds: float) -> None:
        self.notices = Notices(env.work / "notify")
        self.notices.path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.notices.path))
        self.notices.path.chmod(0o777)
        self.environment = {
            "NOTIFY_SOCKET": str(self.notices.path),
            "WATCHDOG_USEC": str(int(watchdog_seconds * 1e6)),
        }
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while text := self._socket.recv(4096):
                now = time.monotonic()
                self.notices.heard += [(now, word) for word in text.decode().split("\n")]

    def __enter__(self) -> NotifySocket:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Supervisor:
    """Keeps a server running on one port: starts it again when it ends, and ends it when it has
    given no sign of life for the watchdog's time. `ends` holds the exit codes, negative for
    signals."""

    def __init__(
        self, env: Env, *flags: str, watchdog_seconds: float, binary: Path | None = None
    ) -> None:
        self.ends: list[int] = []
        self._env = env
        self._flags = flags
        self._watchdog = watchdog_seconds
        self._socket = NotifySocket(env, watchdog_seconds)
        self._options: dict[str, Any] = {"binary": binary, "port": env.port()}
        self._stopping = threading.Event()
        self.server = self._start()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _start(self) -> Server:
        own = self._socket.environment
        server = Server(self._env, *self._flags, preload_env=own, **self._options)
        return server.__enter__()

    def _watch(self) -> None:
        born = time.monotonic()
        while not self._stopping.wait(0.1):
            server = self.server
            last = max([born, *self._socket.notices.times(ALIVE)])
            if server.alive() and time.monotonic() - last > self._watchdog:
                server.signal(signal.SIGKILL)
                server.wait(5)
            if not server.alive():
                self.ends.append(server.process.returncode)
                self.server = self._start()
                born = time.monotonic()

    @property
    def notices(self) -> Notices:
        """What was heard."""
        return self._socket.notices

    def __enter__(self) -> Supervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._socket.__exit__()
        # A worker that hangs cannot answer its frame: there are no accounts to check.
        self._env.end(self.server.process)
