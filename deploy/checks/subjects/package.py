"""The packages' contents: one list, and the .deb's table the same."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from registry import ROOT, Skip, check, need

sys.path.append(str(ROOT / "deploy" / "package"))


@check("what is packed exists", fast=True)
def sources(root: Path) -> list[str]:
    """Of what is part of the repository."""
    import contents

    items = [*contents.EVERYWHERE, contents.CONFIG, contents.UNIT, contents.SYSUSERS]
    own = [item for item in items if item.source.split("/")[0] not in ("target", "models")]
    return [f"{item.source} does not exist" for item in own if not (root / item.source).is_file()]


@check("the .deb's table is the list", fast=True)
def table(root: Path) -> list[str]:
    """[package.metadata.deb] of server/Cargo.toml against contents.py."""
    import contents

    manifest = tomllib.loads(need(root / "server/Cargo.toml"))
    deb = manifest["package"].get("metadata", {}).get("deb")
    if deb is None:
        raise Skip("server/Cargo.toml has no [package.metadata.deb]")
    found = {(source.removeprefix("../"), target, mode) for source, target, mode in deb["assets"]}
    items = [*contents.EVERYWHERE, contents.CONFIG]
    wanted = {(item.source, item.target, f"{item.mode:o}") for item in items}
    wrong = [f"not in server/Cargo.toml: {one}" for one in sorted(wanted - found)]
    wrong += [f"not in contents.py: {one}" for one in sorted(found - wanted)]
    if f"/{contents.CONFIG.target}" not in deb["conf-files"]:
        wrong.append("the settings are not among conf-files: an upgrade would overwrite them")
    return wrong
