"""The part of the set-up that is Python packages: the reference pipeline's environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import fetch
from fetch import MB, SetupError
from parts import HERE, Context

# Room for a virtual environment as measured (322 and 361 MB) and the wheels it is unpacked from.
PYTHON_ENV_BYTES = {"reference": 430 * MB, "accuracy": 480 * MB}


@dataclass(frozen=True)
class PythonEnv:
    """A virtual environment with the packages of the reference pipeline."""

    kind: str
    name: str = field(default="python-env")

    def requirements(self) -> Path:
        """The pinned list."""
        return HERE / f"requirements-{self.kind}.txt"

    def stamp(self) -> str:
        """Identifies what is installed: interpreter and both lists (one includes the other)."""
        lists = sorted(HERE.glob("requirements-*.txt"))
        parts = [sys.version, *(path.read_text(encoding="utf-8") for path in lists)]
        return fetch.sha256_bytes("\0".join(parts).encode())

    def problems(self, cache: Path) -> list[str]:
        """Says whether the environment is absent, older than its list, or half installed."""
        home = cache / "pyenv"
        try:
            stamps = json.loads((home / "stamp.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            stamps = {}
        if stamps.get(self.kind) == self.stamp() and (home / "bin" / "python").exists():
            return []
        return [f"{home} lacks the packages of {self.requirements().name}"]

    def needed_bytes(self) -> int:
        """The installed packages and the wheels while they are unpacked."""
        return PYTHON_ENV_BYTES[self.kind]

    def install(self, context: Context) -> None:
        """Creates the environment anew; the stamp, written last, makes it valid."""
        home = context.cache / "pyenv"
        what = f"installing Python packages ({self.requirements().name})"
        with context.progress.step(what), fetch.temporary_folder(context.cache) as tmp:
            # The stamp goes first: whatever stops the removal, what is left does not look complete.
            (home / "stamp.json").unlink(missing_ok=True)
            if home.exists():
                shutil.rmtree(home)
            # Without pip: Debian splits the module that would install it from python3, and the
            # host's pip can install into the environment from outside.
            create = [sys.executable, "-m", "venv", "--without-pip", str(home)]
            done = subprocess.run(create, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
                raise SetupError(
                    f"could not create {home} ({reason}). Where the module venv is packaged "
                    "apart: sudo apt-get install -y python3-venv"
                )
            fetch.run_pip(
                [
                    f"--python={home / 'bin' / 'python'}",
                    "install",
                    "--quiet",
                    "--no-input",
                    "--only-binary=:all:",
                    "--require-hashes",
                    f"--requirement={self.requirements()}",
                ],
                self.requirements().name,
                context.cache,
                context.needed_bytes,
                tmp,
            )
            # The accuracy list contains the reference list.
            kinds = {"reference", self.kind}
            stamp = json.dumps(dict.fromkeys(sorted(kinds), self.stamp())).encode()
            fetch.write_atomic(home / "stamp.json", [stamp], fetch.sha256_bytes(stamp))
