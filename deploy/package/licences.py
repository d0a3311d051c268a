#!/usr/bin/env python3
"""Writes the licences of all crates that are linked into the programs, as their authors ship them.

The binaries hold these crates' code, and their licences ask for the notice to go with it. What is
linked is read from Cargo.lock by `cargo metadata`; the texts come from the crates' own sources. A
crate without any text of its own is listed with what its manifest says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("vedette-server", "client-sim")
TARGETS = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
}
# How the files are named in which authors put licences and notices, in lower case.
NAMES = ("license", "licence", "copying", "copyright", "notice", "unlicense")
# Sources of others that a crate brings along, beside its own root.
VENDORED = {"turbojpeg-sys": ("libjpeg-turbo/LICENSE.md", "libjpeg-turbo/README.ijg")}
RULE = "=" * 98


class LicenceError(Exception):
    """Why the list cannot be written: one line that says what to do."""


def metadata(machine: str) -> dict[str, Any]:
    """What cargo knows of the workspace's packages and how they depend on each other."""
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command += [f"--filter-platform={TARGETS[machine]}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LicenceError(f"cargo metadata failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def linked(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The packages from elsewhere whose code the programs hold, by name and version.

    Build scripts' and tests' own dependencies are not part of a program. Procedural macros are:
    what they write is.
    """
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] in PROGRAMS]
    if len(waiting) != len(PROGRAMS):
        raise LicenceError(f"the workspace lacks one of {', '.join(PROGRAMS)}")
    seen = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if normal and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    outside = [packages[key] for key in seen if packages[key]["source"] is not None]
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def texts(package: dict[str, Any]) -> list[tuple[str, str]]:
    """The licence files of a package: path within it, and text."""
    home = Path(package["manifest_path"]).parent
    paths = [path for path in home.iterdir() if path.name.lower().startswith(NAMES)]
    # Some keep them in a folder of that name.
    for folder in [path for path in paths if path.is_dir()]:
        paths += folder.iterdir()
    if package["license_file"]:
        paths.append(home / package["license_file"])
    for extra in VENDORED.get(package["name"], ()):
        path = home / extra
        if not path.is_file():
            raise LicenceError(f"{package['name']}: {extra} is not where it was; see VENDORED")
        paths.append(path)
    files = sorted({path for path in paths if path.is_file() and path.suffix != ".rs"})
    return [
        (str(path.relative_to(home)), path.read_text(encoding="utf-8", errors="replace").strip())
        for path in files
    ]


def document(packages: list[dict[str, Any]]) -> str:
    """The list, then each different text once with the packages that it is of."""
    lines = [
        "Vedette's programs hold code of the following packages, under the licences named. Their texts",
        "follow, each once, as the packages carry them. ONNX Runtime and the model have files of their own.",
        "Rust's standard library is under MIT or Apache-2.0 (https://www.rust-lang.org/policies/licenses).",
        "",
    ]
    of: dict[str, list[str]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        own = texts(package)
        note = "" if own else "  (the package carries no text)"
        lines.append(f"  {name:<40} {package['license'] or 'see its text'}{note}")
        for path, text in own:
            of.setdefault(text, []).append(f"{name} ({path})")
    for text, owners in sorted(of.items(), key=lambda item: item[1][0]):
        lines += ["", RULE, *owners, RULE, "", text]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", choices=sorted(TARGETS), default="x86_64")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    try:
        packages = linked(metadata(args.machine))
        text = document(packages)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
    except (LicenceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.out}: licences of {len(packages)} packages, {len(text.encode()) // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
