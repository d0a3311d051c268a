"""Blocks that are not run but looked at: settings, scenarios, tokens, messages, and syntax."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process

HERE = Path(__file__).resolve().parent

# Time for a program to look at a file, in seconds.
CHECK_SECONDS = 30.0


class Wrong(Exception):
    """A block that is not what it should be. Displays as one line."""


@dataclass(frozen=True)
class Tools:
    """What checks work with. `cwd` is a copy of the repository."""

    cwd: Path
    env: dict[str, str]
    python: Path
    stubs: Path

    def call(self, command: list[str], stdin: str = "") -> str:
        """Runs a program that must succeed, and returns what it printed."""
        done = process.run(command, self.cwd, self.env, CHECK_SECONDS, stdin)
        if done.code != 0:
            raise Wrong(" ".join(process.tail(done.output).split()) or f"exit code {done.code}")
        return done.output

    def write(self, name: str, text: str) -> Path:
        """A file with the block's text, beside the copy's own."""
        path = self.cwd / name
        path.write_text(text, encoding="utf-8")
        return path


def python_syntax(text: str, _tools: Tools, _argument: str) -> None:
    """Compiles."""
    try:
        compile(text, "block", "exec")
    except SyntaxError as error:
        raise Wrong(f"line {error.lineno}: {error.msg}") from error


def shell_syntax(text: str, tools: Tools, _argument: str) -> None:
    """Bash can read it."""
    tools.call(["bash", "-n"], text)


def toml_syntax(text: str, _tools: Tools, _argument: str) -> None:
    """Parses, and holds something."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"no TOML: {error}") from error
    if not tables:
        raise Wrong("the block holds nothing")


def json_syntax(text: str, _tools: Tools, _argument: str) -> None:
    """Parses: one document, or one a line."""
    try:
        json.loads(text)
    except json.JSONDecodeError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise Wrong(f"no JSON: {whole}") from whole
        for line in lines:
            try:
                json.loads(line)
            except json.JSONDecodeError:
                raise Wrong(f"no JSON: {whole}") from whole


def yaml(text: str, tools: Tools, _argument: str) -> None:
    """Parses, and is more than a word."""
    tools.call([str(tools.python), str(HERE / "messages.py"), "yaml"], text)


def message(text: str, tools: Tools, name: str) -> None:
    """A message of the contract, field by field."""
    reader = [str(tools.python), str(HERE / "messages.py"), "message", name, str(tools.stubs)]
    tools.call(reader, text)


def config(text: str, tools: Tools, _argument: str) -> None:
    """The server takes the settings, and each of them is in force then."""
    path = tools.write("checked-settings.toml", text)
    # Variables win over the file; here the file alone is asked.
    asking = Tools(tools.cwd, without_settings(tools.env), tools.python, tools.stubs)
    printed = tomllib.loads(asking.call(["vedette-server", "--config", str(path), "--print-config"]))
    written = tomllib.loads(text)
    if not written:
        raise Wrong("the block sets nothing")
    for key, value in written.items():
        if key not in printed:
            raise Wrong(f"{key} is not in force: --print-config does not show it")
        if not same(value, printed[key]):
            raise Wrong(f"{key} is {printed[key]!r} in force, not {value!r}")


def without_settings(env: dict[str, str]) -> dict[str, str]:
    """An environment that sets nothing of the server's."""
    return {key: value for key, value in env.items() if not key.startswith("VEDETTE_")}


def same(written: Any, printed: Any) -> bool:
    """Whether a value is in force; sizes such as 1920x1080 are printed as the number of pixels."""
    if isinstance(written, str) and isinstance(printed, int):
        width, _, height = written.partition("x")
        return width.isdigit() and height.isdigit() and int(width) * int(height) == printed
    return bool(written == printed)


def tokens(text: str, tools: Tools, _argument: str) -> None:
    """A server starts with it."""
    path = tools.write("checked-tokens.toml", text)
    path.chmod(0o600)
    command = ["vedette-server", "--backend", "spin", "--token-file", str(path)]
    server = process.Server(command, tools.cwd, tools.env, tools.cwd / "checked-tokens.log")
    try:
        server.wait()
        server.stop()
    except process.ServerFailed as error:
        raise Wrong(str(error)) from error
    finally:
        server.kill()


def scenario(text: str, tools: Tools, _argument: str) -> None:
    """client-sim takes it, up to the point where it wants its server: nobody listens at port 1."""
    path = tools.write("checked-scenario.toml", text)
    command = ["client-sim", "run", "--scenario", str(path), "--addr", "127.0.0.1:1"]
    done = process.run([*command, "--connect-seconds", "0.1"], tools.cwd, tools.env, CHECK_SECONDS)
    if "cannot reach 127.0.0.1:1" not in done.output:
        raise Wrong(" ".join(process.tail(done.output).split()))


def instances(text: str, tools: Tools, _argument: str) -> None:
    """client-sim takes the list, up to the point where it wants its server."""
    path = tools.write("checked-instances.toml", text)
    first = tomllib.loads(text)["instance"][0].get("name", "")
    command = ["client-sim", "capacity", "--instances", str(path), "--instance", first]
    command += ["--addr", "127.0.0.1:1", "--connect-seconds", "0.1"]
    done = process.run(command, tools.cwd, tools.env, CHECK_SECONDS)
    if "cannot reach 127.0.0.1:1" not in done.output:
        raise Wrong(" ".join(process.tail(done.output).split()))


def manifest(text: str, tools: Tools, _argument: str) -> None:
    """The set-up knows each model that the block adds to its list, and all of its keys."""
    models = tools.cwd / "models"
    path = models / "manifest.toml"
    path.write_text(path.read_text(encoding="utf-8") + "\n" + text, encoding="utf-8")
    known = set(_KEYS)
    for name, entry in tomllib.loads(text)["models"].items():
        if unknown := set(entry) - known:
            raise Wrong(f"models.{name} has {', '.join(sorted(unknown))}, which the set-up does not know")
        command = [sys.executable, "setup.py", "--check", "--only", name, "--model", name]
        done = process.run(command, models, tools.env, CHECK_SECONDS)
        # The reader's file is not here, and that is all that may be wrong.
        if done.code != 0 and Path(entry["path"]).name not in done.output:
            raise Wrong(" ".join(process.tail(done.output).split()))


_KEYS = ("path", "sha256", "layout", "labels", "input", "edit", "license", "source")

CHECKS: dict[str, Callable[[str, Tools, str], None]] = {
    "json": json_syntax,
    "yaml": yaml,
    "config": config,
    "tokens": tokens,
    "scenario": scenario,
    "instances": instances,
    "manifest": manifest,
    "message": message,
    "shell-syntax": shell_syntax,
    "python-syntax": python_syntax,
    "toml-syntax": toml_syntax,
    "json-syntax": json_syntax,
    "yaml-syntax": yaml,
}
