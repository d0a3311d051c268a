"""What is done with a block: decided by its language and its mark, before anything runs."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass

from blocks import Block, Mark

# What a block that is run may be; data is looked at.
RUNNABLE = {"shell", "console"}

# Checks of TOML, by the table that tells what it is; without one of these it is the server's settings.
TABLES = {
    "token": "tokens",
    "group": "scenario",
    "rogue": "scenario",
    "instance": "instances",
    "models": "manifest",
}

_SERVER_LINE = re.compile(r"^(?:\S*/)?vedette-server\b")


@dataclass(frozen=True)
class Plan:
    """`action`: `skip`, `fail`, `shell`, `console`, `serve`, `file`, or the name of a check.
    `why`: of a skip or a failure; of a check its argument."""

    action: str
    why: str = ""


def fail(why: str) -> Plan:
    """A block that nothing can be done with."""
    return Plan("fail", why)


def decide(block: Block, every: bool) -> Plan:
    """The plan for a block; `every` runs the slow ones too."""
    mark = block.mark
    if block.fault:
        return fail(block.fault)
    if mark is None:
        return unmarked(block)
    if mark.verb == "not run":
        return Plan("skip", mark.reason)
    if mark.verb == "check":
        return checked(block, mark)
    return runnable(block, mark, every)


def unmarked(block: Block) -> Plan:
    """Data says by itself what it is; a command does not say what it needs."""
    if block.kind in RUNNABLE or block.kind == "python":
        return fail(
            "no mark says what is done with this block: put <!-- run -->, <!-- run: server --> or "
            "<!-- not run: the reason --> on the line before it (docs/check/README.md has them all)"
        )
    return data(block)


def data(block: Block) -> Plan:
    """The check that fits a block of data."""
    if block.kind != "toml":
        return Plan(block.kind)
    try:
        tables = tomllib.loads(block.text)
    except tomllib.TOMLDecodeError as error:
        return fail(f"no TOML: {error}")
    kinds = {check for table, check in TABLES.items() if table in tables}
    if len(kinds) > 1:
        return fail(f"tables of more than one kind of file: {', '.join(sorted(kinds))}")
    return Plan(kinds.pop() if kinds else "config")


def checked(block: Block, mark: Mark) -> Plan:
    """A block whose mark names the check."""
    if len(mark.options) != 1:
        return fail("one check for a block")
    (name,) = mark.options
    if name == "syntax":
        if block.kind == "console":
            return fail("what a console shows is run, or it is not: `run` or `not run`")
        return Plan(f"{block.kind}-syntax")
    if name == "message":
        if block.kind != "json":
            return fail("`check: message=` is for JSON")
        return Plan("message", mark.value("message"))
    if block.kind != "toml":
        return fail(f"`check: {name}` is for TOML")
    return Plan(name)


def runnable(block: Block, mark: Mark, every: bool) -> Plan:
    """A block that is to be run, or saved for others to use."""
    if "slow" in mark and not every:
        return Plan("skip", "slow: only with --all")
    if needed := mark.value("needs"):
        missing = [command for command in needed.split() if shutil.which(command) is None]
        if missing:
            return Plan("skip", f"this machine has no {', '.join(missing)}")
    if "file" in mark:
        if "name" not in mark:
            return fail("`file=` needs `name=`: who uses the file?")
        return Plan("file", mark.value("file"))
    if block.kind not in RUNNABLE:
        return fail(f"`run` is for commands; save {block.kind} with `file=`, for commands to use")
    if "serves" in mark:
        if block.kind != "shell" or not ends_in_server(block.text):
            return fail("`serves` is for shell blocks whose last command is vedette-server")
        return Plan("serve")
    return Plan(block.kind)


def logical_lines(text: str) -> list[str]:
    """Commands that a backslash carries on to the next line, as one; without comments and empty ones."""
    whole = re.sub(r"\\\n\s*", "", text)
    lines = (line.strip() for line in whole.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def ends_in_server(text: str) -> bool:
    """Whether the last command is the server."""
    lines = logical_lines(text)
    return bool(lines) and _SERVER_LINE.match(lines[-1]) is not None


def with_exec(text: str) -> str:
    """The same commands, of which the last takes the shell's place, so that signals reach it."""
    lines = logical_lines(text)
    return "\n".join([*lines[:-1], f"exec {lines[-1]}"]) + "\n"


def in_order(blocks: list[Block]) -> tuple[list[list[Block]], list[tuple[Block, str]]]:
    """Blocks as groups that share a folder and a server: those of one name on one page, in the order of
    their steps, else as they stand. Beside them the blocks whose steps make no order."""
    groups: dict[tuple[str, str], list[Block]] = {}
    for number, block in enumerate(blocks):
        name = block.mark.value("name") if block.mark else ""
        groups.setdefault((block.page, name or f"#{number}"), []).append(block)
    ordered: list[list[Block]] = []
    faults: list[tuple[Block, str]] = []
    for (_, name), group in groups.items():
        steps = [block.mark.value("step") if block.mark else "" for block in group]
        if not any(steps):
            ordered.append(group)
        elif not all(step.isdigit() for step in steps) or len(set(steps)) != len(steps):
            why = f"either every block of {name!r} has a step of its own, a number, or none has one"
            faults.extend((block, why) for block in group)
        else:
            ordered.append([group[at] for at in sorted(range(len(group)), key=lambda at: int(steps[at]))])
    return ordered, faults
