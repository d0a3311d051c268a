"""Whether every file of settings can be read at all."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import parse
from registry import check, files, need


@check("TOML files", fast=True)
def toml(root: Path) -> list[str]:
    """Each parses."""
    wrong = []
    for path in files(root, "*.toml"):
        try:
            tomllib.loads(need(path))
        except tomllib.TOMLDecodeError as error:
            wrong.append(f"{path.relative_to(root)}: {error}")
    return wrong


@check("JSON files", fast=True)
def json_files(root: Path) -> list[str]:
    """Each parses."""
    wrong = []
    for path in files(root, "*.json"):
        try:
            json.loads(need(path))
        except json.JSONDecodeError as error:
            wrong.append(f"{path.relative_to(root)}: {error}")
    return wrong


@check("YAML files")
def yaml(root: Path) -> list[str]:
    """Each parses; templates of other tools are not YAML yet."""
    paths = [path for path in files(root, "*.yaml", "*.yml") if "templates" not in path.parts]
    return [f"{path.relative_to(root)}: {why}" for path in paths if (why := parse.yaml(path)[1])]
