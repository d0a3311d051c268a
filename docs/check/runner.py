"""Does what the plans say, group by group, and notes what came of each block."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import console
import data
import place
import process
import rules
from blocks import Block
from substitutions import Place, substitute

# Longest that a block may take, in seconds: short ones, and those marked as slow.
SHORT_SECONDS = 60.0
SLOW_SECONDS = 1800.0

# client-sim says one of these; which one is the machine's affair where a mark says `verdict`.
_VERDICT = re.compile(r"^(PASS|FAIL|INVALID|HOLDS|DOES NOT HOLD)\b", re.MULTILINE)
VERDICT_CODES = {0, 1, 2}

_FILE = re.compile(r"[\w][\w.-]*(/[\w.-]+)*")


@dataclass(frozen=True)
class Result:
    """What came of a block. `verdict`: PASS, FAIL or NOT RUN."""

    block: Block
    verdict: str
    detail: str = ""
    seconds: float = 0.0
    action: str = ""
    substitutions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """What all groups share."""

    work: Path
    binaries: Path
    python: Path
    stubs: Path
    every: bool
    root: Path


class Failed(Exception):
    """What was wrong with a block. Displays as one line or more."""


class Group:
    """Blocks that share a folder, ports and a server."""

    def __init__(self, blocks: list[Block], name: str, setting: Setting) -> None:
        self.blocks = blocks
        self.setting = setting
        self.port, self.admin_port = place.free_port(), place.free_port()
        self.env = place.variables(setting.binaries, self.port, self.admin_port)
        self.name = name
        self.cwd: Path | None = None
        self.server: process.Server | None = None
        self.made: list[str] = []

    def folder(self) -> Path:
        """The group's copy of the repository, made when the first block needs it."""
        if self.cwd is None:
            work, root = self.setting.work, self.setting.root
            self.cwd = place.folder(work, self.name, self.setting.binaries, root)
        return self.cwd

    def run(self) -> list[Result]:
        """Every block in turn; then its server has to leave in order."""
        results = [self.one(block) for block in self.blocks]
        try:
            self.stop_server()
        except process.ServerFailed as error:
            last = results[-1]
            results[-1] = Result(last.block, "FAIL", f"at the end of the group: {error}", last.seconds)
        return results

    def one(self, block: Block) -> Result:
        """One block."""
        plan = rules.decide(block, self.setting.every)
        if plan.action == "skip":
            return Result(block, "NOT RUN", plan.why, action=plan.action)
        self.made = []
        begun = time.monotonic()
        try:
            if plan.action == "fail":
                raise Failed(plan.why)
            actions: dict[str, Callable[[Block, rules.Plan], None]] = {
                "shell": self.shell,
                "console": self.console,
                "serve": self.serve,
                "file": self.file,
            }
            actions.get(plan.action, self.check)(block, plan)
        except (Failed, data.Wrong, console.NoConsole, process.ServerFailed) as error:
            seconds = time.monotonic() - begun
            return Result(block, "FAIL", str(error), seconds, plan.action, self.made)
        seconds = time.monotonic() - begun
        return Result(block, "PASS", "", seconds, plan.action, self.made)

    def put_in(self, text: str) -> str:
        """The text with the substitutions made."""
        ports = Place(self.port, self.admin_port, self.setting.python, not self.setting.every)
        found, self.made = substitute(text, ports)
        return found

    def check(self, block: Block, plan: rules.Plan) -> None:
        """Data, and syntax."""
        tools = data.Tools(self.folder(), self.env, self.setting.python, self.setting.stubs)
        data.CHECKS[plan.action](block.text, tools, plan.why)

    def file(self, block: Block, plan: rules.Plan) -> None:
        """Saves a block that later ones of its group use; they have to name it."""
        if not _FILE.fullmatch(plan.why):
            raise Failed(f"{plan.why!r} is no name for a file in the block's folder")
        after = self.blocks[self.blocks.index(block) + 1 :]
        if not any(Path(plan.why).name in later.text for later in after):
            raise Failed(f"no later block of this name uses {plan.why}")
        if f"{block.kind}-syntax" in data.CHECKS:
            self.check(block, rules.Plan(f"{block.kind}-syntax"))
        path = self.folder() / plan.why
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def start_server(self, command: list[str]) -> None:
        """The group's server, in place of one that runs."""
        self.stop_server()
        log = self.folder() / "server-of-the-checks.log"
        self.server = process.Server(command, self.folder(), self.env, log)
        self.server.wait()

    def stop_server(self) -> None:
        """Ends the group's server, if there is one."""
        server, self.server = self.server, None
        if server is not None:
            try:
                server.stop()
            finally:
                server.kill()

    def needs_server(self, block: Block) -> None:
        """Starts one where the mark asks for it, with the flags that it gives."""
        assert block.mark is not None
        if "server" in block.mark:
            flags = shlex.split(block.mark.value("server"))
            if flags or self.server is None:
                self.start_server(["vedette-server", *flags])

    def script(self, text: str, seconds: float) -> process.Done:
        """Runs commands, of which the first that fails ends the block."""
        command = ["bash", "-eu", "-o", "pipefail", "-c", text]
        return process.run(command, self.folder(), self.env, seconds)

    def shell(self, block: Block, _plan: rules.Plan) -> None:
        """Commands that end by themselves, with the exit code that the mark allows."""
        assert block.mark is not None
        self.needs_server(block)
        limit = SLOW_SECONDS if "slow" in block.mark else SHORT_SECONDS
        done = self.script(self.put_in(block.text), limit)
        if done.code is None:
            raise Failed(f"not done within {limit:g} s: {process.tail(done.output).strip()}")
        wanted = {int(block.mark.value("exit") or 0)}
        if "verdict" in block.mark:
            if not _VERDICT.search(done.output):
                raise Failed(f"client-sim gave no verdict: {process.tail(done.output).strip()}")
            wanted = VERDICT_CODES
        if done.code not in wanted:
            raise Failed(f"exit code {done.code}: {process.tail(done.output).strip()}")

    def console(self, block: Block, _plan: rules.Plan) -> None:
        """Commands, each held against what the page says that it prints."""
        assert block.mark is not None
        exchanges = console.read(block.text)
        self.needs_server(block)
        limit = SLOW_SECONDS if "slow" in block.mark else SHORT_SECONDS
        text = self.put_in(console.script(exchanges))
        done = process.run(["bash", "-c", text], self.folder(), self.env, limit)
        printed = console.outputs(done.output)
        for exchange, lines in zip(exchanges, printed, strict=False):
            if difference := console.differs(exchange.expected, lines):
                raise Failed(f"$ {exchange.command}\n{difference}")
        if len(printed) != len(exchanges):
            raise Failed(f"ended early: {process.tail(done.output).strip()}")

    def serve(self, block: Block, _plan: rules.Plan) -> None:
        """Commands of which the last is a server, which later blocks use."""
        self.start_server(["bash", "-eu", "-c", rules.with_exec(self.put_in(block.text))])


def run_all(blocks: list[Block], setting: Setting, say: Callable[[Result], None]) -> list[Result]:
    """All blocks; the results come in the order in which blocks ran."""
    groups, faults = rules.in_order(blocks)
    results: list[Result] = []

    def note(result: Result) -> None:
        results.append(result)
        say(result)

    for block, why in faults:
        note(Result(block, "FAIL", why))
    for group in groups:
        first = group[0]
        stem = first.page.replace("/", "-").removesuffix(".md")
        name = (first.mark.value("name") if first.mark else "") or str(first.line)
        runner = Group(group, f"{stem}-{name}", setting)
        try:
            for result in runner.run():
                note(result)
        finally:
            if runner.server is not None:
                runner.server.kill()
    return results
