"""Programs that the checks start: blocks that end by themselves, and servers that do not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# A server says this on stdout once cameras can connect.
LISTENING = "listening on "

# Time for a server to load its model and listen, and to leave after SIGTERM, in seconds.
START_SECONDS = 60.0
LEAVE_SECONDS = 15.0
POLL_SECONDS = 0.05

# As much of an output as a report shows, in characters.
SHOWN = 1500


@dataclass(frozen=True)
class Done:
    """How a program ended. `code` is `None` when it was ended for taking too long."""

    code: int | None
    output: str


def tail(text: str) -> str:
    """The end of an output."""
    return text if len(text) <= SHOWN else "..." + text[-SHOWN:]


def end_group(process: subprocess.Popen[str], with_signal: int) -> None:
    """Signals a program and all that it started; each is started as the head of a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, with_signal)


def run(command: list[str], cwd: Path, env: dict[str, str], seconds: float, stdin: str = "") -> Done:
    """Runs a program to its end, or for so long. What it leaves running in the background is ended."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(stdin, timeout=seconds)
        return Done(process.returncode, output)
    except subprocess.TimeoutExpired:
        end_group(process, signal.SIGKILL)
        output, _ = process.communicate()
        return Done(None, output)
    finally:
        end_group(process, signal.SIGKILL)


class ServerFailed(Exception):
    """A server that did not start, or did not end in order. Displays as one line."""


class Server:
    """A program that serves until it is told to end."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("w", encoding="utf-8") as output:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def output(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Until it listens. Raises ServerFailed when it ends before that, or takes too long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if LISTENING in self.output():
                return
            code = self._process.poll()
            if code is not None:
                raise ServerFailed(f"the server ended with {code}: {tail(self.output()).strip()}")
            time.sleep(POLL_SECONDS)
        self.kill()
        raise ServerFailed(f"no server listened within {seconds:g} s: {tail(self.output()).strip()}")

    def stop(self) -> None:
        """Ends it as a supervisor does. Raises ServerFailed when that is not in order."""
        if self._process.poll() is not None:
            code = self._process.returncode
            raise ServerFailed(f"the server had ended with {code}: {tail(self.output()).strip()}")
        end_group(self._process, signal.SIGTERM)
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"the server did not end within {LEAVE_SECONDS:g} s") from None
        finally:
            self.kill()
        if self._process.returncode != 0:
            raise ServerFailed(f"the server ended with {self._process.returncode}")

    def kill(self) -> None:
        """Ends it at once, if it has not ended."""
        end_group(self._process, signal.SIGKILL)
        self._process.wait()
