"""Where blocks run: a copy of the repository for each group, so that the checkout stays as it was."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from blocks import LEFT_OUT
from environment import ROOT

# What of a checkout no block needs, besides what is no part of the project.
NOT_COPIED = shutil.ignore_patterns(*LEFT_OUT, "mutants", "corpus")

# Settings of the server that a caller of the checks may have set would be settings of every server here.
PREFIX = "VEDETTE_"


def folder(work: Path, name: str, binaries: Path, root: Path = ROOT) -> Path:
    """A fresh copy. The fetched models and the built programs are links to what is there."""
    made = work / name
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(root, made, ignore=NOT_COPIED, symlinks=True)
    cache = root / "models" / "cache"
    if cache.exists():
        (made / "models").mkdir(exist_ok=True)
        (made / "models" / "cache").symlink_to(cache)
    (made / "target").mkdir()
    for profile in ("release", "debug"):
        (made / "target" / profile).symlink_to(binaries)
    return made


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(binaries: Path, port: int, admin_port: int) -> dict[str, str]:
    """The environment of blocks and servers: the programs on PATH, and the server's ports, which a page
    leaves at their defaults."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
    return kept | {
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        f"{PREFIX}ADDR": f"127.0.0.1:{port}",
        f"{PREFIX}ADMIN_ADDR": f"127.0.0.1:{admin_port}",
    }
