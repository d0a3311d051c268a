"""The Python environment that the pages' examples run in: made once, from a pinned list."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "requirements.txt"

# Where it goes, beside everything else that the set-up fetches.
HOME = ROOT / "models" / "cache" / "pyenv-docs"

# Room that it takes while it is made.
NEEDED_MB = 120

# The models' set-up runs pip and explains its failures.
sys.path.append(str(ROOT / "models"))


class CannotRun(Exception):
    """Why nothing can be checked. Displays as one line that says what to do."""


def stamp(home: Path) -> str:
    """Identifies what is installed, and where: its commands name that."""
    parts = f"{sys.version}\0{home}\0".encode() + REQUIREMENTS.read_bytes()
    return hashlib.sha256(parts).hexdigest()


def ready(home: Path = HOME) -> Path:
    """The environment's interpreter; the environment is made where it is missing or out of date."""
    import fetch

    python, mark = home / "bin" / "python", home / "stamp"
    wanted = stamp(home)
    if python.exists() and mark.exists() and mark.read_text(encoding="ascii") == wanted:
        return python
    print(f"Python packages into {home}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    # Without pip: Debian splits the module that would install it; the host's pip does it from outside.
    create = [sys.executable, "-m", "venv", "--without-pip", str(home)]
    done = subprocess.run(create, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise CannotRun(f"python3 -m venv failed ({last}); install python3-venv")
    try:
        with fetch.temporary_folder(home.parent) as tmp:
            options = ["--quiet", "--no-input", "--only-binary=:all:", "--require-hashes"]
            arguments = [f"--python={python}", "install", *options, f"--requirement={REQUIREMENTS}"]
            fetch.run_pip(arguments, REQUIREMENTS.name, home.parent, NEEDED_MB * fetch.MB, tmp)
    except fetch.SetupError as error:
        raise CannotRun(str(error)) from error
    mark.write_text(wanted, encoding="ascii")
    return python


def generate(python: Path, into: Path) -> None:
    """The contract's Python modules."""
    into.mkdir(parents=True, exist_ok=True)
    command = [str(python), "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}"]
    command += [f"--python_out={into}", f"--grpc_python_out={into}", "camera_ai.proto"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"protoc failed on proto/camera_ai.proto: {done.stderr.strip()[-300:]}")
