"""Blocks that show a console: commands behind `$`, and what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Stands between the outputs of two commands.
MARK = "--8<-- command"


@dataclass
class Exchange:
    """A command, and the lines that it is to print."""

    command: str
    expected: list[str] = field(default_factory=list)


class NoConsole(Exception):
    """A block that shows no console. Displays as one line."""


def read(text: str) -> list[Exchange]:
    """The commands in their order. Lines behind `>` go on with the command above."""
    found: list[Exchange] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Exchange(line[2:]))
        elif not found:
            raise NoConsole("the block does not begin with a command behind `$ `")
        elif line.startswith("> ") and not found[-1].expected:
            found[-1].command += "\n" + line[2:]
        else:
            found[-1].expected.append(line)
    if not found:
        raise NoConsole("the block has no command behind `$ `")
    return found


def script(exchanges: list[Exchange]) -> str:
    """One script of all commands, so that variables and folders last, and `$?` is the last command's. Exit
    codes are not looked at otherwise: what is printed shows what came of it."""
    between = f"_code=$?\nprintf '\\n%s\\n' '{MARK}'\n(exit $_code)\n"
    return "".join(f"{exchange.command}\n{between}" for exchange in exchanges)


def outputs(printed: str) -> list[list[str]]:
    """What each command printed, without empty lines at its end."""
    found: list[list[str]] = [[]]
    for line in printed.splitlines():
        if line == MARK:
            found.append([])
        else:
            found[-1].append(line)
    for lines in found:
        while lines and not lines[-1].strip():
            lines.pop()
    return found[:-1]


def fits(expected: str, line: str) -> bool:
    """Whether a line is the expected one; `...` in it stands for anything, blanks count as one."""
    parts = (re.escape(" ".join(part.split())) for part in expected.split("..."))
    pattern = r"\s*.*\s*".join(part.replace(r"\ ", r"\s+") for part in parts)
    return re.fullmatch(pattern, " ".join(line.split())) is not None


def differs(expected: list[str], lines: list[str]) -> str:
    """The first expected line that was not printed; empty when all were. A line `...` stands for any
    number of lines."""
    expected = [line for line in expected if line.strip()]
    lines = [line for line in lines if line.strip()]
    if not expected:
        return ""
    if expected[0].strip() == "...":
        rest = expected[1:]
        if not rest:
            return ""
        tries = [differs(rest, lines[at:]) for at in range(len(lines) + 1)]
        return "" if "" in tries else tries[-1]
    if not lines:
        return f"{expected[0]!r} was not printed"
    if not fits(expected[0], lines[0]):
        return f"{expected[0]!r} was to be printed, {lines[0]!r} was"
    if len(expected) == 1:
        return "" if len(lines) == 1 else f"{lines[1]!r} was printed, and nothing more was expected"
    return differs(expected[1:], lines[1:])
