"""Whether a package that was unpacked somewhere runs: version, settings, a start, and an orderly end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

# A cold disk and one worker for each of many cores.
START_SECONDS = 60.0
STOP_SECONDS = 15.0


class TrialError(Exception):
    """Why the package is of no use."""


def environment(home: Path, repository: Path | None) -> dict[str, str]:
    """Where the network and its runtime are, which a package names by their final places."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("VEDETTE_")}
    if repository is None:
        model, library = "usr/share/vedette/yolox_nano.onnx", "usr/lib/vedette/libonnxruntime.so"
        base = home
    else:
        model, library = "yolox_nano.onnx", "onnxruntime/libonnxruntime.so"
        base = repository / "models" / "cache"
    return {**own, "VEDETTE_MODEL": str(base / model), "VEDETTE_RUNTIME_LIB": str(base / library)}


def settings(home: Path) -> Path:
    """The file that comes with it."""
    for place in ("etc/vedette/vedette.toml", "usr/share/doc/vedette/examples/vedette.toml"):
        if (home / place).is_file():
            return home / place
    raise TrialError(f"{home} holds no vedette.toml")


def output(command: list[str], variables: dict[str, str]) -> str:
    """What a program says that has to end well."""
    done = subprocess.run(
        command, env=variables, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise TrialError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def start_and_stop(command: list[str], variables: dict[str, str]) -> str:
    """Starts the server, waits for its line, ends it in order. Returns the address."""
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8") as log:
        # The log goes to a file: nobody reads a pipe here while the line is waited for.
        process = subprocess.Popen(
            command, env=variables, cwd="/", stdout=subprocess.PIPE, stderr=log, text=True
        )
        late = threading.Timer(START_SECONDS, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            match = re.match(r"listening on (\S+)", process.stdout.readline())
            late.cancel()
            if match is not None:
                process.send_signal(signal.SIGTERM)
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise TrialError(f"it does not end within {STOP_SECONDS:.0f} s of SIGTERM") from error
        finally:
            late.cancel()
            process.kill()
            process.wait()
        log.seek(0)
        last = log.read().strip()[-500:]
    if match is None:
        raise TrialError(f"it does not start (exit {code}): {last}")
    if code != 0:
        raise TrialError(f"exit {code} after SIGTERM: {last}")
    return match[1]


def run(home: Path, repository: Path | None) -> str:
    """Tries out what lies under `home`; network and runtime are `repository`'s if it is given."""
    server, config = str(home / "usr/bin/vedette-server"), str(settings(home))
    variables = environment(home, repository)
    version = output([server, "--version"], variables)
    output([str(home / "usr/bin/client-sim"), "--version"], variables)
    printed = output([server, "--config", config, "--print-config"], variables)
    if "grace_seconds = 10" not in printed:
        raise TrialError(f"--print-config does not show the settings of {config}")
    ports = ["--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"]
    start_and_stop([server, "--config", config, *ports], variables)
    return f"{version}: unpacked, started with its own settings, ended in order"
