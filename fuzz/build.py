"""Builds the fuzz targets with cargo-fuzz: AddressSanitizer, debug assertions, coverage."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# Below the workspace's own folder, so that `make clean` takes it along.
OUT = ROOT / "target" / "fuzz"
TOOLS = ROOT / "target" / "tools"

CARGO_FUZZ = "0.13.2"

# The C library is instrumented as well: AddressSanitizer's calls are the same ones that Rust's
# runtime answers (ABI version 8), and src/hooks.c makes GCC's coverage known to libFuzzer.
C_FLAGS = "-fsanitize=address -fsanitize-coverage=trace-pc,trace-cmp -fno-omit-frame-pointer"

# The crate by which cargo asks rustc what it sets with the flags given.
PROBE = "___"

# Crates whose branches libFuzzer counts and whose memory the sanitizer watches: what an input passes
# through. After a change here, remove target/fuzz: cargo does not know of this list.
INSTRUMENTED = f"""
    config decode model raw request vedette_fuzz vedette_proto vedette_server
    bytes figment fdeflate flate2 image image_webp memchr miniz_oxide png prost serde serde_json
    serde_core toml toml_datetime toml_edit tracing_subscriber winnow {PROBE}
"""

# Its build also links programs, which need the hooks too.
HOOK_WRAP = "-Wl,--wrap=__sanitizer_cov_trace_pc"


class CannotRun(Exception):
    """One line for people."""


def build() -> None:
    """Builds every target."""
    OUT.mkdir(parents=True, exist_ok=True)
    install_cargo_fuzz()
    start = time.monotonic()
    command = ["cargo", "fuzz", "build", "--fuzz-dir", str(HERE), "--target-dir", str(OUT)]
    command += ["--target", triple(), "--debug-assertions"]
    run(command, environment())
    print(f"built in {time.monotonic() - start:.0f} s")


def binary(target: str) -> Path:
    """Where a target's program is."""
    path = OUT / triple() / "release" / target
    if not path.exists():
        raise CannotRun(f"{path} has not been built; leave out --no-build")
    return path


def environment() -> dict[str, str]:
    """What the compilers are told."""
    # The commands that the set-up fetches come last, as in the Makefile.
    path = [str(TOOLS / "bin"), os.environ.get("PATH", os.defpath), str(ROOT / "models/cache/bin")]
    env = os.environ | {
        "PATH": os.pathsep.join(path),
        # The coverage and sanitizer flags of the stable compiler are those of the nightly one.
        "RUSTC_BOOTSTRAP": "1",
    }
    if not shutil.which("g++", path=env["PATH"]):
        raise CannotRun("g++ is needed to build libFuzzer; install it (apt-get install g++)")
    hooks = OUT / "hooks.o"
    run(["gcc", "-O2", "-c", str(HERE / "src" / "hooks.c"), "-o", str(hooks)], env)
    target = triple().replace("-", "_")
    env[f"CC_{target}"] = "gcc"
    env[f"CFLAGS_{target}"] = C_FLAGS
    env["RUSTC_WRAPPER"] = str(HERE / "rustc.sh")
    env["INSTRUMENTED"] = " ".join(INSTRUMENTED.split())
    env["LDFLAGS"] = f"-fsanitize=address {HOOK_WRAP} {hooks}"
    return env


def install_cargo_fuzz() -> None:
    """Installs cargo-fuzz below target/ unless it is there or on PATH."""
    if shutil.which("cargo-fuzz") or (TOOLS / "bin" / "cargo-fuzz").exists():
        return
    print(f"installing cargo-fuzz {CARGO_FUZZ} into {TOOLS.relative_to(ROOT)}")
    command = ["cargo", "install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--quiet"]
    run([*command, "--root", str(TOOLS)], dict(os.environ))


def triple() -> str:
    """This machine, as rustc calls it."""
    try:
        text = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRun(f"rustc does not run: {error}") from error
    return next(line.split()[1] for line in text.splitlines() if line.startswith("host:"))


def run(command: list[str], env: dict[str, str]) -> None:
    """Runs a command in the repository."""
    try:
        subprocess.run(command, check=True, cwd=ROOT, env=env)
    except FileNotFoundError as error:
        raise CannotRun(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise CannotRun(f"`{' '.join(command)}` failed") from error
