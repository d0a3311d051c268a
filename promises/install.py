"""What the suite needs on a machine: Debian packages, Python packages, stubs, the programs under test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from env import ROOT
from promise import CannotRun

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
CACHE = ROOT / "models" / "cache"
VENV = CACHE / "pyenv-promises"
PYTHON = VENV / "bin" / "python"
OUT = ROOT / "target" / "promises"
STUBS = OUT / "stubs"
FAULTS_SERVER = OUT / "vedette-server-faults"
RELEASE = ROOT / "target" / "release"
FUZZER = ROOT / "fuzz" / "run.py"

# Command and the Debian package that brings it.
PACKAGES = {
    "ip": "iproute2",
    "nft": "nftables",
    "setpriv": "util-linux",
    "h2load": "nghttp2-client",
    "nghttp": "nghttp2-client",
    "nginx": "nginx",
    "haproxy": "haproxy",
    "faketime": "faketime",
    "djpeg": "libjpeg-turbo-progs",
    "openssl": "openssl",
}

# The models module that runs pip and explains its failures is not part of this folder.
sys.path.append(str(ROOT / "models"))

Say = Callable[[str], None]


def run(command: Sequence[str | Path], what: str, **extra: str) -> None:
    """Runs a step of the set-up; its output is shown only when it fails."""
    import fetch

    done = fetch.run_captured([str(part) for part in command], {**os.environ, **extra}, ROOT)
    if done.returncode != 0:
        raise CannotRun(f"{what} failed:\n{done.stdout[-3000:]}")


def on_path(command: str) -> bool:
    """Whether a command is there; administrators' folders may be missing in PATH."""
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


def install_packages(say: Say) -> None:
    """Debian packages whose commands are missing, without starting the services that they bring."""
    missing = sorted({package for command, package in PACKAGES.items() if not on_path(command)})
    if not missing:
        return
    say(f"apt-get install {' '.join(missing)}")
    with no_services():
        install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        try:
            run(install, "apt-get install", **quiet)
        except CannotRun:
            run(["apt-get", "update"], "apt-get update")
            run(install, "apt-get install", **quiet)


class no_services:
    """A proxy that is installed must not start listening by itself: Debian asks this file."""

    POLICY = Path("/usr/sbin/policy-rc.d")

    def __enter__(self) -> None:
        self.own = not self.POLICY.exists()
        if self.own:
            self.POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
            self.POLICY.chmod(0o755)

    def __exit__(self, *_: object) -> None:
        if self.own:
            self.POLICY.unlink()


def install_venv(say: Say) -> None:
    """The virtual environment, made anew when its list changes, or its place: its commands name that."""
    import fetch

    stamp = VENV / "stamp"
    wanted = fetch.sha256_bytes(f"{sys.version}{VENV}".encode() + REQUIREMENTS.read_bytes())
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    say(f"Python packages into {VENV}")
    cache = VENV.parent
    cache.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        # Without pip: Debian splits the module that would install it; the host's pip does it.
        run([sys.executable, "-m", "venv", "--without-pip", VENV], "python3 -m venv")
        with fetch.temporary_folder(cache) as tmp:
            options = ["--quiet", "--no-input", "--only-binary=:all:", "--require-hashes"]
            arguments = [f"--python={PYTHON}", "install", *options, f"--requirement={REQUIREMENTS}"]
            fetch.run_pip(arguments, REQUIREMENTS.name, cache, 300 * fetch.MB, tmp)
    except fetch.SetupError as error:
        raise CannotRun(str(error)) from error
    stamp.write_text(wanted, encoding="ascii")


def generate_stubs() -> None:
    """The contract's Python, from proto/."""
    STUBS.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [PYTHON, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}"]
    command += [f"--python_out={STUBS}", f"--grpc_python_out={STUBS}", "camera_ai.proto"]
    run(command, "generating the stubs")


def install_all(say: Say) -> None:
    """Everything but the programs under test."""
    if os.geteuid() != 0:
        raise CannotRun(
            "the suite makes network namespaces and needs root: sudo make test-promises"
        )
    install_packages(say)
    install_venv(say)
    generate_stubs()


def tools_path() -> str:
    """PATH with what the project's set-up and this one have installed."""
    return f"{os.environ.get('PATH', '')}:{CACHE / 'bin'}"


def build_fuzz(say: Say) -> str:
    """Builds the decoder's fuzz targets. Returns why that was not possible; empty if it was."""
    try:
        if not FUZZER.exists():
            raise CannotRun("fuzz/run.py does not exist")
        say("building the fuzz targets")
        run([sys.executable, FUZZER, "--build"], "building the fuzz targets", PATH=tools_path())
    except CannotRun as error:
        return str(error)
    return ""


def build(say: Say) -> str:
    """Builds the programs under test. Returns why there is no server with faults; empty if there is."""
    extra = {"PATH": tools_path()}
    run([sys.executable, ROOT / "models" / "setup.py", "--quiet"], "models/setup.py")
    cargo = ["cargo", "build", "--release", "--locked"]
    why = ""
    say("building the server with faults")
    try:
        run([*cargo, "-p", "vedette-server", "--features", "faults"], "the build", **extra)
        FAULTS_SERVER.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(RELEASE / "vedette-server", FAULTS_SERVER)
    except CannotRun as error:
        why = str(error)
        FAULTS_SERVER.unlink(missing_ok=True)
    # Last, so that target/release holds what users get.
    say("building the server and client-sim")
    run([*cargo, "-p", "vedette-server", "-p", "client-sim"], "the build", **extra)
    return why
