#!/usr/bin/env python3
"""Packs what `cargo build --release` has built: a tarball, a .deb with --deb, and SHA256SUMS of both.

The same inputs give the same bytes: files are sorted, belong to root, and carry SOURCE_DATE_EPOCH
(the last commit's time unless set). What was packed is unpacked again and has to run.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import contents
import trial
from contents import ROOT, Item

DIST = ROOT / "target" / "dist"
# The version that the table in server/Cargo.toml was written for.
CARGO_DEB = "3.8.0"


class PackError(Exception):
    """Why there is no package: one line that says what to do."""


def run(command: Sequence[str | Path], what: str, **extra: str) -> str:
    """Output of a program of the build; its last words when it fails."""
    parts = [str(part) for part in command]
    try:
        done = subprocess.run(
            parts, cwd=ROOT, env={**os.environ, **extra}, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise PackError(f"{what}: {parts[0]} is not installed") from error
    if done.returncode != 0:
        raise PackError(f"{what} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def epoch() -> int:
    """The time that every file gets, in seconds since 1970."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    text = text or run(["git", "log", "-1", "--format=%ct"], "git log").strip()
    if not text.isdigit():
        raise PackError(f"SOURCE_DATE_EPOCH is {text!r}; give seconds since 1970")
    return int(text)


def version() -> str:
    """The workspace's."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return str(manifest["workspace"]["package"]["version"])


def stripped(program: Path, into: Path) -> Path:
    """A copy without line tables, which are four fifths of a program; names for backtraces stay."""
    copy = into / program.name
    run(["strip", "--strip-debug", "-o", copy, program], "strip (apt-get install binutils)")
    return copy


def tarball(path: Path, items: Sequence[Item], top: str, when: int, scratch: Path) -> None:
    """Packs the files under the folder `top`."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        folders: set[str] = set()
        for item in sorted(items, key=lambda item: item.target):
            parents = Path(top, item.target).parents
            for folder in [str(parent) for parent in reversed(parents) if parent.name]:
                if folder not in folders:
                    folders.add(folder)
                    tar.addfile(entry(folder, 0o755, when, tarfile.DIRTYPE))
            source = stripped(item.path, scratch) if item in contents.PROGRAMS else item.path
            data = source.read_bytes()
            head = entry(f"{top}/{item.target}", item.mode, when, tarfile.REGTYPE)
            head.size = len(data)
            tar.addfile(head, io.BytesIO(data))


def entry(name: str, mode: int, when: int, kind: bytes) -> tarfile.TarInfo:
    """A head that says nothing of the machine that packed it."""
    head = tarfile.TarInfo(name)
    head.mode, head.mtime, head.type = mode, when, kind
    head.uname = head.gname = "root"
    return head


def tar_items(with_model: bool) -> list[Item]:
    """The list for a tarball. Settings are an example there: unpacking must not overwrite a machine's own."""
    example = Item(contents.CONFIG.source, f"{contents.DOC}/examples/vedette.toml")
    items = [*contents.EVERYWHERE, contents.UNIT, contents.SYSUSERS, example]
    return [item for item in items if with_model or not item.model]


def need(items: Sequence[Item]) -> None:
    """Every file must be there."""
    for item in items:
        if not item.path.is_file():
            where = {"target": "cargo build --release --locked", "models": "python3 models/setup.py"}
            how = where.get(item.source.split("/")[0], "it is part of the repository")
            raise PackError(f"{item.source} is missing: {how}")


def deb(when: int) -> Path:
    """The .deb, by the table in server/Cargo.toml."""
    tool = shutil.which("cargo-deb")
    if tool is None:
        raise PackError(f"no cargo-deb: cargo install cargo-deb --locked --version {CARGO_DEB}")
    # Not `cargo deb`: that would be the cargo of the folder it is called from.
    command = [tool, "--package", "vedette-server", "--no-build", "--no-dbgsym", "--strip"]
    out = run([*command, "--output", DIST], "cargo-deb", SOURCE_DATE_EPOCH=str(when))
    return Path(out.strip().splitlines()[-1])


def sums(paths: Sequence[Path]) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(paths)
    ]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="ascii")
    print("".join(lines), end="")


def build(args: argparse.Namespace) -> None:
    """Everything that the command line asks for."""
    DIST.mkdir(parents=True, exist_ok=True)
    machine = platform.machine()
    licences = [sys.executable, ROOT / "deploy/package/licences.py", "--machine", machine]
    run([*licences, "--out", ROOT / contents.CRATES], "licences.py")
    when, items = epoch(), tar_items(not args.without_model)
    need(items)
    top = f"vedette-{version()}-linux-{machine}" + ("-bare" if args.without_model else "")
    made = [DIST / f"{top}.tar.gz"]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tarball(made[0], items, top, when, scratch)
        unpacked = scratch / "unpacked"
        with tarfile.open(made[0]) as tar:
            tar.extractall(unpacked, filter="data")
        print(trial.run(unpacked / top, ROOT if args.without_model else None))
        if args.deb:
            made.append(deb(when))
            run(["dpkg-deb", "-x", made[1], scratch / "deb"], "dpkg-deb")
            print(trial.run(scratch / "deb", None))
    sums(made)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deb", action="store_true", help="a .deb too (cargo-deb, dpkg)")
    parser.add_argument(
        "--without-model",
        action="store_true",
        help="leave network and ONNX Runtime out of the tarball",
    )
    try:
        build(parser.parse_args())
    except (PackError, trial.TrialError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
