"""What is put in place of a page's words before a block runs: the whole list.

Pages name the ports that everybody knows, a host that the reader has, and a picture of the reader's.
Blocks run beside whatever else this machine does, so they get ports of their own. A report names every
substitution that was made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Pictures that the set-up brings; any would do that a server can decode.
PICTURES = "models/cache/pictures"
PICTURE = f"{PICTURES}/chelsea.png"
PRICE = "0.09"

# Longest measurement of client-sim in a short run, in seconds; with --all they are as written.
SHORT_SECONDS = 2
SHORT_PING_SECONDS = 0.2

_HOSTS = r"(?<![\w.-])(?:HOST|SERVER|localhost|127\.0\.0\.1|0\.0\.0\.0)"
_LOGICAL_LINE = re.compile(r"(?:[^\n]*\\\n)*[^\n]*")
_SIMULATOR = r"(\bclient-sim (?:run|capacity|detect))\b(?! --help)"


@dataclass(frozen=True)
class Place:
    """What is put in: the ports of the block's server, and the interpreter of the environment."""

    port: int
    admin_port: int
    python: Path
    short: bool


@dataclass(frozen=True)
class Rule:
    """A pattern, what replaces it, and how the report calls it. Applied to one logical line at a time."""

    name: str
    pattern: re.Pattern[str]
    replacement: str
    unless: str = ""


def rules(place: Place) -> list[Rule]:
    """The list, in the order in which it is applied."""
    found = [
        Rule(
            "vedette.example -> loopback, by the certificate's name",
            re.compile(r"https://vedette\.example:50051"),
            f"https://127.0.0.1:{place.port} --tls-domain vedette.example",
        ),
        Rule("cameras' port", re.compile(_HOSTS + r":50051\b"), f"127.0.0.1:{place.port}"),
        Rule("operators' port", re.compile(_HOSTS + r":9464\b"), f"127.0.0.1:{place.admin_port}"),
        # client-sim has no variable for its server, as vedette-server has.
        Rule(
            "client-sim's --addr", re.compile(_SIMULATOR), rf"\1 --addr 127.0.0.1:{place.port}", "--addr"
        ),
        Rule("pictures", re.compile(r"--images DIR\b"), f"--images {PICTURES}"),
        Rule("a price", re.compile(r"--price-per-hour PRICE\b"), f"--price-per-hour {PRICE}"),
        Rule("a picture", re.compile(r"\bPICTURE\b(?:\.\.\.)?"), PICTURE),
        # What it builds is what --bin names; building it again in each folder takes minutes.
        Rule("no build", re.compile(r"^cargo build --release\b.*$", re.MULTILINE), ":"),
        Rule("the environment's Python", re.compile(r"\bvenv/bin/python3?\b"), str(place.python)),
    ]
    if place.short:
        # By itself it tries seven numbers of calls on two kinds of connections, which takes half a minute.
        found.append(
            Rule(
                "a short ping",
                re.compile(r"\bclient-sim ping\b(?! --help)"),
                f"client-sim ping --in-flight 1 --seconds {SHORT_PING_SECONDS}",
                "--in-flight",
            )
        )
        # Not shorter than what is written: a second stays a second.
        longer = rf"(?:[{SHORT_SECONDS + 1}-9]|\d{{2,}})"
        found.append(
            Rule(f"--seconds {SHORT_SECONDS}", re.compile(rf"--seconds {longer}\b"), f"--seconds {SHORT_SECONDS}")
        )
    return found


def substitute(text: str, place: Place) -> tuple[str, list[str]]:
    """The text with everything put in, and the names of what was."""
    made: list[str] = []

    def line(match: re.Match[str]) -> str:
        found = match[0]
        for rule in rules(place):
            if rule.unless and rule.unless in found:
                continue
            found, count = rule.pattern.subn(rule.replacement, found)
            if count and rule.name not in made:
                made.append(rule.name)
        return found

    return _LOGICAL_LINE.sub(line, text), made
