"""Who takes part: the servers, what they are started with, and the names they go by."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from build import OUT, PYTHON, ROOT, SERVERS

CPU, WALL, REAL = "cpu", "wall", "real"
CLOCKS = (CPU, WALL, REAL)
WORK_MS = 5
MODEL = ROOT / "models" / "cache" / "yolox_nano.onnx"
# Of the comparison that this one repeats.
ARTICLE_WORKERS = 15
OURS = "ours"


@dataclass(frozen=True)
class Server:
    """A server: the name it goes by on the command line and in tables, and how it is started."""

    key: str
    title: str
    # Its line in the plot.
    colour: str
    # The command without the clock.
    start: Callable[[int], list[str]]
    ours: bool = False

    def command(self, clock: str, port: int) -> list[str]:
        """The whole command."""
        command = self.start(port)
        if self.ours:
            backend = ["--model", str(MODEL)]
            return command + (
                backend if clock == REAL else ["--backend", "spin", "--spin-ms", str(WORK_MS)]
            )
        if clock == REAL:
            return [*command, "--model", str(MODEL)]
        return [*command, "--work-ms", str(WORK_MS), "--clock", clock]


def cores() -> int:
    """Cores that this process, and so each server, may use."""
    return len(os.sched_getaffinity(0))


def python(name: str) -> Callable[[int], list[str]]:
    """A Python server with as many threads or processes for the work as there are cores."""
    return lambda port: [
        *(str(PYTHON), str(SERVERS / f"{name}.py")),
        *("--port", str(port), "--workers", str(cores())),
    ]


def cpp(name: str, workers: int) -> Callable[[int], list[str]]:
    """A C++ server."""
    program = OUT / "cpp" / name
    return lambda port: [str(program), "--port", str(port), "--workers", str(workers)]


def vedette(*more: str) -> Callable[[int], list[str]]:
    """Ours, as by default."""
    program = ROOT / "target" / "release" / "vedette-server"
    return lambda port: [
        *(str(program), "--addr", f"127.0.0.1:{port}", "--admin-addr", "127.0.0.1:0"),
        *("--log-level", "warn", *more),
    ]


# In the order in which they run: ours stands between the two that come closest.
SPINNING = (
    Server("sync_python", "synchronous Python", "#b3261e", python("sync_python")),
    Server("asyncio_python", "asynchronous Python", "#d9730d", python("asyncio_python")),
    Server("reuseport_python", "Python, SO_REUSEPORT", "#8f6b00", python("reuseport_python")),
    Server("pool_python", "Python, process pool", "#3d7a1f", python("pool_python")),
    Server("sync_cpp", "synchronous C++", "#00767d", cpp("sync_cpp", 1)),
    Server(
        "async_cpp", f"asynchronous C++, {ARTICLE_WORKERS} workers", "#2459c4",
        cpp("async_cpp", ARTICLE_WORKERS),
    ),
    Server(OURS, "Vedette", "#111111", vedette(), ours=True),
    Server(
        "async_cpp_cores", f"asynchronous C++, {cores()} workers", "#8a3ab9",
        cpp("async_cpp", cores()),
    ),
)  # fmt: skip

# The same work as the others: every pixel decoded, and the network's whole square filled.
SAME_WORK = "ours_same_work"

INFERRING = (
    Server("asyncio_python", "Python, asyncio and threads", "#d9730d", python("asyncio_python")),
    Server("pool_python", "Python, process pool", "#3d7a1f", python("pool_python")),
    Server(
        SAME_WORK, "Vedette, same work", "#666666",
        vedette("--input-shape", "fixed", "--jpeg-decode", "full"), ours=True,
    ),
    Server(OURS, "Vedette", "#111111", vedette(), ours=True),
)  # fmt: skip

# Those that the arrival phases are compared for.
PHASED = ("async_cpp", OURS, "async_cpp_cores")


def contestants(clock: str) -> tuple[Server, ...]:
    """Who takes part under a clock. Ours knows no loop by the wall clock."""
    if clock == REAL:
        return INFERRING
    return tuple(server for server in SPINNING if clock == CPU or not server.ours)


def keys() -> list[str]:
    """All names that the command line knows."""
    return list(dict.fromkeys(server.key for server in (*SPINNING, *INFERRING)))


def named(clock: str, key: str) -> Server:
    """The server of that name; ours stands in every table."""
    everyone = INFERRING if clock == REAL else SPINNING
    return next(server for server in everyone if server.key == key)


def environment() -> dict[str, str]:
    """Without settings of ours that happen to be set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VEDETTE_")}


def log_file(server: Server) -> Path:
    """Where a server's output goes; the last run's is kept."""
    return OUT / "logs" / f"{server.key}.log"
