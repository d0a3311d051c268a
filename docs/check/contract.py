#!/usr/bin/env python3
"""Holds docs/wire-contract.md against proto/camera_ai.proto: every message, field, enum, value and call is
described with its number and type, and nothing is described that the contract does not have.

Exit code 0 when they agree, 1 with a line for each difference.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto" / "camera_ai.proto"
PAGE = ROOT / "docs" / "wire-contract.md"

_BLOCK = re.compile(r"\b(message|enum|service)\s+(\w+)\s*\{([^{}]*)\}")
_FIELD = re.compile(r"(repeated\s+)?([\w.]+)\s+(\w+)\s*=\s*(\d+)\s*;")
_VALUE = re.compile(r"(\w+)\s*=\s*(\d+)\s*;")
_CALL = re.compile(r"rpc\s+(\w+)\s*\(\s*(stream\s+)?(\w+)\s*\)\s*returns\s*\(\s*(stream\s+)?(\w+)\s*\)\s*;")
_HEADING = re.compile(r"^#{2,6} (?:(message|enum|service) )`?(\w+)`?\s*$")
_CELL = re.compile(r"`([^`]+)`")

# The columns of a table, besides the one that explains.
COLUMNS = {
    "message": ("field", "number", "type"),
    "enum": ("value", "number"),
    "service": ("call", "takes", "answers"),
}

# A description says something.
LEAST_WORDS = 2


class Unreadable(Exception):
    """A file that is not as it should be. Displays as one line."""


@dataclass
class Part:
    """A message, enum or service: the rows that its table has to have, by name."""

    kind: str
    name: str
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)


def without_comments(text: str) -> str:
    """The contract's own words only."""
    return re.sub(r"//[^\n]*", "", text)


def read_proto(text: str) -> dict[str, Part]:
    """What the contract has, by name."""
    found: dict[str, Part] = {}
    clean = without_comments(text)
    for kind, name, body in _BLOCK.findall(clean):
        part = Part(kind, name)
        if kind == "message":
            for repeated, type_name, field_name, number in _FIELD.findall(body):
                part.rows[field_name] = (number, f"repeated {type_name}" if repeated else type_name)
            rest = _FIELD.sub("", body)
        elif kind == "enum":
            part.rows = {value: (number,) for value, number in _VALUE.findall(body)}
            rest = _VALUE.sub("", body)
        else:
            for call, takes, request, gives, response in _CALL.findall(body):
                asked = f"stream {request}" if takes else request
                part.rows[call] = (asked, f"stream {response}" if gives else response)
            rest = _CALL.sub("", body)
        if rest.strip():
            raise Unreadable(f"{kind} {name}: this check cannot read {' '.join(rest.split())!r}")
        found[name] = part
    if not found:
        raise Unreadable("the contract has no message")
    return found


def cells(line: str) -> list[str]:
    """A table's row."""
    inner = line.strip().strip("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def read_page(text: str) -> tuple[dict[str, Part], list[str]]:
    """What the page describes, by name, and what is wrong with how it does."""
    found: dict[str, Part] = {}
    faults: list[str] = []
    part: Part | None = None
    in_table = False
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            part = Part(heading[1], heading[2])
            if part.name in found:
                faults.append(f"{part.name} is described twice")
            found[part.name] = part
            in_table = False
        elif line.startswith("#"):
            part = None
        elif part is not None and line.startswith("|"):
            row = cells(line)
            columns = COLUMNS[part.kind]
            if tuple(row[: len(columns)]) == columns:
                in_table = True
            elif in_table and not set(line) <= set("|-: "):
                add_row(part, row, faults)
        elif not line.startswith("|"):
            in_table = False
    return found, faults


def add_row(part: Part, row: list[str], faults: list[str]) -> None:
    """A described field, value or call."""
    named = _CELL.fullmatch(row[0])
    if named is None:
        faults.append(f"{part.name}: the first cell of a row is a name in backticks, not {row[0]!r}")
        return
    name, width = named[1], len(COLUMNS[part.kind])
    if name in part.rows:
        faults.append(f"{part.name}.{name} is described twice")
    part.rows[name] = tuple(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip("`") for cell in row[1:width])
    words = " ".join(row[width:]).split()
    if len(words) < LEAST_WORDS:
        faults.append(f"{part.name}.{name} is listed and not described")


def differences(contract: dict[str, Part], page: dict[str, Part]) -> list[str]:
    """A line for everything in which the page is not the contract."""
    found = [f"{name} is not described" for name in contract if name not in page]
    found += [f"{name} is no part of the contract" for name in page if name not in contract]
    for name in sorted(set(contract) & set(page)):
        known, told = contract[name], page[name]
        if known.kind != told.kind:
            found.append(f"{name}: the contract has the {known.kind}, the page the {told.kind}")
            continue
        found += [f"{name}.{row} is not described" for row in known.rows if row not in told.rows]
        found += [f"{name}.{row} is no part of the contract" for row in told.rows if row not in known.rows]
        for row in sorted(set(known.rows) & set(told.rows)):
            if known.rows[row] != told.rows[row]:
                found.append(f"{name}.{row} is {' '.join(known.rows[row])}, not {' '.join(told.rows[row])}")
    return found


def main() -> int:
    """See above."""
    try:
        contract = read_proto(PROTO.read_text(encoding="utf-8"))
    except Unreadable as error:
        print(f"{PROTO.relative_to(ROOT)}: {error}", file=sys.stderr)
        return 1
    page, faults = read_page(PAGE.read_text(encoding="utf-8"))
    faults += differences(contract, page)
    for fault in faults:
        print(f"docs/wire-contract.md: {fault}", file=sys.stderr)
    rows = sum(len(part.rows) for part in contract.values())
    if not faults:
        print(f"wire-contract.md: {len(contract)} messages, enums and services, {rows} rows, all as in the contract")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
