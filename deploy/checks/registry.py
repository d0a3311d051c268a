"""What a check is, and how the subjects' modules bring theirs.

A subject is a module in subjects/ whose functions carry `@check(...)`. A function takes the repository's root,
returns what is wrong, a line each, and an empty list when all is well; it raises `Skip` with what to install
when it cannot look. Nothing has to be entered anywhere else.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Where install.py puts the tools of requirements.txt.
VENV = ROOT / "models" / "cache" / "pyenv-deploy"
SECONDS = 120

Body = Callable[[Path], list[str]]


class Skip(Exception):
    """Why a check cannot be made here; says what to install."""


@dataclass(frozen=True)
class Check:
    """One thing that is looked at."""

    subject: str
    name: str
    # Needs neither network nor any tool: part of `make test`.
    fast: bool
    body: Body


@dataclass(frozen=True)
class Result:
    """What came of it."""

    check: Check
    outcome: str
    lines: tuple[str, ...] = ()


_checks: list[Check] = []


def check(name: str, *, fast: bool = False) -> Callable[[Body], Body]:
    """Registers a function as a check of its module's subject."""

    def register(body: Body) -> Body:
        subject = body.__module__.rpartition(".")[2]
        _checks.append(Check(subject, name, fast, body))
        return body

    return register


def all_checks() -> list[Check]:
    """Those of every module in subjects/, in the order of their names."""
    import subjects

    for module in sorted(pkgutil.iter_modules(subjects.__path__), key=lambda found: found.name):
        importlib.import_module(f"subjects.{module.name}")
    return list(_checks)


def run(one: Check, root: Path) -> Result:
    """Makes a check. One that breaks has failed: it says nothing of the files."""
    try:
        lines = one.body(root)
    except Skip as reason:
        return Result(one, "SKIP", (str(reason),))
    except Exception as error:  # a check that breaks must not end the others
        return Result(one, "FAIL", (f"the check itself broke: {type(error).__name__}: {error}",))
    return Result(one, "FAIL" if lines else "PASS", tuple(lines))


def tool(name: str, how: str) -> str:
    """Path of a tool of requirements.txt or of the system."""
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise Skip(f"no {name}: {how}")
    return found


def output(command: Sequence[str | Path], root: Path, **extra: str) -> tuple[int, str]:
    """Exit code of a tool and all that it says."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=root,
        env={**os.environ, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.strip()


def complaints(command: Sequence[str | Path], root: Path, **extra: str) -> list[str]:
    """Lines of a tool that exits with something else than 0."""
    code, text = output(command, root, **extra)
    return [] if code == 0 else text.splitlines()[-20:] or [f"exit {code} without a word"]


def need(path: Path) -> str:
    """Text of a file that has to be there."""
    return path.read_text(encoding="utf-8")


def files(root: Path, *patterns: str) -> Iterator[Path]:
    """Files of deploy/ by pattern, sorted."""
    for pattern in patterns:
        yield from sorted(path for path in (root / "deploy").rglob(pattern) if path.is_file())
