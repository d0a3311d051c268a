"""What was measured on: the results page shows it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

from build import PYTHON, ROOT
from contest import cores

UNKNOWN = "unknown"
PACKAGES = ("grpcio", "onnxruntime", "opencv-python-headless", "numpy")


def output(command: list[str]) -> str:
    """First line that a program prints."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return next(iter(done.stdout.splitlines()), UNKNOWN)


def field(path: str, name: str) -> str:
    """The first `name : value` of a file in /proc."""
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return UNKNOWN


def memory_gib() -> str:
    """Of the whole machine."""
    kib = field("/proc/meminfo", "MemTotal").removesuffix(" kB")
    return f"{int(kib) / 2**20:.1f} GiB" if kib.isdigit() else UNKNOWN


def python_versions() -> str:
    """Interpreter and packages of the environment that the servers run in."""
    code = (
        "import platform, importlib.metadata as m; print('Python', platform.python_version() + "
        f"''.join(f', {{p}} {{m.version(p)}}' for p in {PACKAGES!r}))"
    )
    return output([str(PYTHON), "-c", code])


def grpc_version() -> str:
    """Of the C++ servers' library."""
    return output(["pkg-config", "--modversion", "grpc++"])


def facts() -> dict[str, str]:
    """Name and value, in the order of the page."""
    return {
        "CPU": f"{field('/proc/cpuinfo', 'model name')}, {cores()} cores used of {os.cpu_count()}",
        "memory": memory_gib(),
        "kernel": platform.release(),
        "Vedette": output([str(ROOT / "target" / "release" / "vedette-server"), "--version"]),
        "Rust": output(["rustc", "--version"]),
        "C++": f"{output(['g++', '--version'])}, gRPC {grpc_version()}",
        "Python": python_versions(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
