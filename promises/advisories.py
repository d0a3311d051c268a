"""Which of our crates a list of known advisories says are affected (advisories.toml)."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Major, minor, patch; then whether it is a release (a pre-release comes before it), and the parts
# of the pre-release in their order.
Version = tuple[tuple[int, int, int], bool, tuple[tuple[int, str], ...]]

VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+\S+)?")
COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(\S+)")


def version(text: str) -> Version:
    """A version (semver.org, section 11); parts that are left out are 0."""
    match = VERSION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no version")
    major, minor, patch = (int(match[part] or 0) for part in (1, 2, 3))
    parts = (match[4] or "").split(".") if match[4] else []
    order = tuple((int(p), "") if p.isdigit() else (1 << 62, p) for p in parts)
    return (major, minor, patch), not parts, order


def _next(text: str, operator: str) -> Version:
    """The first version beyond those that a caret, a tilde or a shortened `=` or `<=` allows."""
    numbers = [int(part) for part in text.partition("-")[0].partition("+")[0].split(".")]
    at = len(numbers) - 1
    if operator == "^":
        at = next((place for place, value in enumerate(numbers) if value), len(numbers) - 1)
    elif operator == "~":
        at = min(1, at)
    bumped = [*numbers[:at], numbers[at] + 1, 0, 0][:3]
    return (bumped[0], bumped[1], bumped[2]), True, ()


def matches(requirement: str, text: str) -> bool:
    """Whether a version meets a requirement as Cargo writes them: comparators between commas, all
    of which must hold. Pre-releases are ordered where they belong and not treated apart."""
    found = version(text)
    return all(_holds(found, part.strip()) for part in requirement.split(","))


def _holds(found: Version, comparator: str) -> bool:
    match = COMPARATOR.fullmatch(comparator)
    if not match:
        raise ValueError(f"{comparator!r} is no comparator")
    operator, text = match[1] or "^", match[2]
    bound = version(text)
    whole = text.count(".") >= 2
    match operator:
        case ">=":
            return found >= bound
        case "<":
            return found < bound
        case ">":
            return found > bound if whole else found >= _next(text, "=")
        case "<=":
            return found <= bound if whole else found < _next(text, "=")
        case "=" if whole:
            return found == bound
        case _:
            return bound <= found < _next(text, operator)


@dataclass(frozen=True)
class Crate:
    """A crate that is built."""

    name: str
    version: str


@dataclass(frozen=True)
class Known:
    """The list: what was looked up, when, and what was found."""

    looked_up: str
    newest: str
    crates: frozenset[str]
    advisories: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, path: Path) -> Known:
        """From the file."""
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(
            data["looked_up"],
            data["newest_advisory"],
            frozenset(data["crates"]),
            tuple(data["advisories"]),
        )

    def unknown(self, crates: Iterable[Crate]) -> list[str]:
        """Crates that nobody looked up."""
        return sorted({crate.name for crate in crates} - self.crates)

    def affecting(self, crates: Iterable[Crate]) -> list[str]:
        """Advisories about these versions."""
        return [
            f"{entry['id']}: {crate.name} {crate.version}"
            for crate in crates
            for entry in self.advisories
            if entry["crate"] == crate.name
            and not any(
                matches(requirement, crate.version)
                for requirement in (*entry.get("patched", ()), *entry.get("unaffected", ()))
            )
        ]


def built_crates(metadata: str) -> set[Crate]:
    """Crates of others in the graph that `cargo metadata` describes."""
    data = json.loads(metadata)
    nodes = {node["id"] for node in data["resolve"]["nodes"]}
    return {
        Crate(package["name"], package["version"])
        for package in data["packages"]
        if package["source"] and package["id"] in nodes
    }
