"""Whether every file of settings can be read at all."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import parse
from registry import check, files, need


def unreadable(root: Path, pattern: str, load: Callable[[str], object]) -> list[str]:
    """Files that do not parse. Errors of both parsers are a `ValueError`."""
    wrong = []
    for path in files(root, pattern):
        try:
            load(need(path))
        except ValueError as error:
            wrong.append(f"{path.relative_to(root)}: {error}")
    return wrong


@check("TOML files", fast=True)
def toml(root: Path) -> list[str]:
    """Each parses."""
    return unreadable(root, "*.toml", tomllib.loads)


@check("JSON files", fast=True)
def json_files(root: Path) -> list[str]:
    """Each parses."""
    return unreadable(root, "*.json", json.loads)


@check("YAML files")
def yaml(root: Path) -> list[str]:
    """Each parses; templates of other tools are not YAML yet."""
    paths = [path for path in files(root, "*.yaml", "*.yml") if "templates" not in path.parts]
    return [f"{path.relative_to(root)}: {why}" for path in paths if (why := parse.yaml(path)[1])]
