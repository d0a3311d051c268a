"""The fenced blocks of the pages, each with the mark that says what is to be done with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import markdown

# Languages whose blocks are checked; those of all others are for reading only.
CHECKED = {
    "sh": "shell",
    "bash": "shell",
    "shell": "shell",
    "console": "console",
    "python": "python",
    "py": "python",
    "toml": "toml",
    "yaml": "yaml",
    "yml": "yaml",
    "json": "json",
}

# Folders that hold no pages of this project.
LEFT_OUT = {".git", "target", "cache", "node_modules", "__pycache__"}

# Options of a mark; those that end in = take a value, the others may not have one, both are both.
OPTIONS = {
    "run": {"server", "server=", "serves", "name=", "step=", "slow", "verdict", "exit=", "file=", "needs="},
    "check": {"syntax", "message=", "config", "scenario", "tokens", "instances", "manifest"},
}

_MARK = re.compile(r"^(?P<verb>not run|run|check)\b\s*(?::\s*(?P<rest>.*))?$", re.DOTALL)

# Names are those of folders, too.
_NAME = re.compile(r"[A-Za-z0-9-]+")

# A reason says something; one word does not.
LEAST_REASON_WORDS = 3


class MarkError(Exception):
    """A mark that cannot be understood. Displays as one line."""


@dataclass(frozen=True)
class Mark:
    """`run`, `check` or `not run`, with its options or, for the last one, the reason."""

    verb: str
    options: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    def __contains__(self, option: str) -> bool:
        return option in self.options

    def value(self, option: str) -> str:
        """An option's value; empty when it is absent or has none."""
        return self.options.get(option, "")


@dataclass(frozen=True)
class Block:
    """A block of a page. `kind` is its language as the checks call it."""

    page: str
    line: int
    kind: str
    text: str
    mark: Mark | None = None
    fault: str = ""

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{self.page}:{self.line}"


def parse_mark(comment: str) -> Mark | None:
    """The mark of a comment's text; `None` when it is a comment of another kind."""
    match = _MARK.match(" ".join(comment.split()))
    if match is None:
        return None
    verb, rest = match["verb"], (match["rest"] or "").strip()
    if verb == "not run":
        if len(rest.split()) < LEAST_REASON_WORDS:
            raise MarkError("`not run` needs a reason: <!-- not run: it needs an account -->")
        return Mark(verb, reason=rest)
    if verb == "check" and not rest:
        raise MarkError(f"`check` needs one of {', '.join(sorted(OPTIONS['check']))}")
    options: dict[str, str] = {}
    for word in filter(None, (part.strip() for part in rest.split(","))):
        if word == "in order":
            continue
        name, equals, value = word.partition("=")
        name, value = name.strip(), value.strip()
        known = OPTIONS[verb]
        if (f"{name}=" if equals else name) not in known:
            raise MarkError(f"`{verb}` knows no {word!r}, only {', '.join(sorted(known))}")
        if equals and not value:
            raise MarkError(f"`{name}=` needs a value")
        if name == "name" and not _NAME.fullmatch(value):
            raise MarkError(f"{value!r} is no name: letters, digits and - only")
        if name == "exit" and not value.isdigit():
            raise MarkError(f"{value!r} is no exit code")
        options[name] = value
    return Mark(verb, options)


def comment_above(lines: list[str], fence_line: int) -> str | None:
    """The text of the comment that ends on the line before a fence (counted from 1)."""
    at = fence_line - 2
    if at < 0 or not lines[at].rstrip().endswith("-->"):
        return None
    start = at
    while start >= 0 and "<!--" not in lines[start]:
        start -= 1
    whole = "\n".join(lines[max(start, 0) : at + 1]).strip()
    if not whole.startswith("<!--") or whole.count("<!--") != 1:
        return None
    return whole[len("<!--") : -len("-->")].strip()


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """The blocks of a page in languages that are checked."""
    lines = text.splitlines()
    for fence in markdown.fences(text):
        kind = CHECKED.get(fence.language)
        if kind is None:
            continue
        mark, fault = None, ""
        try:
            comment = comment_above(lines, fence.line)
            mark = parse_mark(comment) if comment is not None else None
        except MarkError as error:
            fault = str(error)
        yield Block(page, fence.line, kind, fence.text, mark, fault)


def pages(root: Path) -> list[Path]:
    """Every Markdown file of the repository."""
    found = []
    for path in root.rglob("*.md"):
        if not LEFT_OUT.intersection(path.relative_to(root).parts[:-1]):
            found.append(path)
    return sorted(found)


def read_pages(root: Path, chosen: list[Path]) -> list[Block]:
    """The blocks of these files, page by page."""
    found: list[Block] = []
    for path in chosen:
        name = path.resolve().relative_to(root).as_posix()
        found.extend(blocks_of(name, path.read_text(encoding="utf-8")))
    return found
