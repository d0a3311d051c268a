"""The tools of requirements.txt, in an environment of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from registry import HERE, ROOT, VENV

REQUIREMENTS = HERE / "requirements.txt"

# The models module that runs pip and explains its failures is not part of this folder.
sys.path.append(str(ROOT / "models"))


def install() -> str:
    """Makes the environment where it is missing or its list has changed. Returns why that was not possible;
    empty if it was. The checks that need it are then skipped."""
    import fetch

    stamp = VENV / "stamp"
    wanted = fetch.sha256_bytes(f"{sys.version}{VENV}".encode() + REQUIREMENTS.read_bytes())
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return ""
    cache = VENV.parent
    cache.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(VENV, ignore_errors=True)
    # Without pip: Debian splits the module that would install it; the host's pip does it.
    create = [sys.executable, "-m", "venv", "--without-pip", str(VENV)]
    done = subprocess.run(create, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"python3 -m venv failed (apt-get install python3-venv): {done.stderr.strip()[-200:]}"
    try:
        with fetch.temporary_folder(cache) as tmp:
            options = ["--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--require-hashes"]
            python = f"--python={VENV / 'bin' / 'python'}"
            arguments = [python, "install", *options, f"--requirement={REQUIREMENTS}"]
            fetch.run_pip(arguments, REQUIREMENTS.name, cache, 200 * fetch.MB, tmp)
    except fetch.SetupError as error:
        shutil.rmtree(VENV, ignore_errors=True)
        return str(error)
    stamp.write_text(wanted, encoding="ascii")
    return ""


def python() -> Path:
    """The environment's interpreter; its packages are not importable from the outside."""
    return VENV / "bin" / "python"
