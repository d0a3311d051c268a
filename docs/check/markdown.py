"""What the checks have to know of Markdown: fences, headings with their anchors, links. No more than
that, and as GitHub and mdBook agree on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPEN = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_INLINE = re.compile(
    r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\](?:\([^()]*\))?)*)\]"
    r"\((?P<target>[^()\s<>]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)"
)
_DEFINITION = re.compile(r"^ {0,3}\[(?P<label>[^\]]+)\]:\s*(?P<target>\S+)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"<[a-zA-Z][^<>]*?\b(?:href|src)=\"(?P<target>[^\"]*)\"")
_ANCHOR = re.compile(r"<[a-zA-Z][^<>]*?\b(?:id|name)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its line (of the fence, from 1), what stands behind the fence, and its text."""

    line: int
    info: str
    text: str
    end: int

    @property
    def language(self) -> str:
        """The first word behind the fence, in lower case."""
        words = self.info.replace("{", " ").replace(",", " ").split()
        return words[0].lower() if words else ""


@dataclass(frozen=True)
class Link:
    """A link or picture: where it points, on which line, and where its text and target stand."""

    line: int
    target: str
    text: str
    start: int
    end: int
    image: bool


def fences(text: str) -> list[Fence]:
    """All fenced blocks in their order; one that is not closed ends with the text."""
    found: list[Fence] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opened = _OPEN.match(lines[at])
        if not opened:
            at += 1
            continue
        fence, indent = opened["fence"], len(opened["indent"])
        closing = re.compile(rf"^ *{re.escape(fence[0])}{{{len(fence)},}}\s*$")
        start, at = at, at + 1
        body: list[str] = []
        while at < len(lines) and not closing.match(lines[at]):
            body.append(lines[at][min(indent, len(lines[at]) - len(lines[at].lstrip(" "))) :])
            at += 1
        inner = "".join(f"{line}\n" for line in body)
        found.append(Fence(start + 1, opened["info"].strip(), inner, at + 1))
        at += 1
    return found


def _blanked(match: re.Match[str]) -> str:
    """As many characters, none of them Markdown's; lines stay lines."""
    return re.sub(r"[^\n]", " ", match[0])


def without_code(text: str) -> str:
    """The text with code and comments blanked out, every other character where it was."""
    lines = text.splitlines(keepends=True)
    for fence in fences(text):
        for at in range(fence.line - 1, min(fence.end, len(lines))):
            lines[at] = re.sub(r"[^\n]", " ", lines[at])
    # An indented block follows an empty line and is no list's; four spaces are enough to tell here.
    for at, line in enumerate(lines):
        if line.startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            after = at
            while after < len(lines) and (lines[after].startswith("    ") or not lines[after].strip()):
                if not re.match(r" +([-*+]|\d+\.) ", lines[after]):
                    lines[after] = re.sub(r"[^\n]", " ", lines[after])
                after += 1
    blanked = _COMMENT.sub(_blanked, "".join(lines))
    # Code in a link's text is kept as brackets see it: blanks.
    return _CODE_SPAN.sub(_blanked, blanked)


def links(text: str) -> list[Link]:
    """Inline links and pictures, definitions of references, and those of HTML tags."""
    clean = without_code(text)
    found: list[Link] = []

    def add(match: re.Match[str], image: bool, group: str = "target") -> None:
        line = clean.count("\n", 0, match.start()) + 1
        start, end = match.span(group)
        label = text[slice(*match.span("text"))] if "text" in match.groupdict() else ""
        found.append(Link(line, match[group], label, start, end, image))

    def inline(within: str, offset: int) -> None:
        for match in _INLINE.finditer(clean, offset, offset + len(within)):
            add(match, bool(match["image"]))
            if "](" in match["text"]:
                inline(match["text"], match.start("text"))

    inline(clean, 0)
    for match in _DEFINITION.finditer(clean):
        add(match, False)
    for match in _ATTRIBUTE.finditer(clean):
        add(match, False)
    return sorted(found, key=lambda link: link.start)


def headings(text: str) -> Iterator[str]:
    """The headings' texts as written."""
    inside = {at for fence in fences(text) for at in range(fence.line, fence.end + 1)}
    for number, line in enumerate(text.splitlines(), 1):
        if number not in inside and (match := _HEADING.match(line)):
            yield match[2]


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    plain = re.sub(r"<[^>]*>", "", plain).replace("`", "").replace("*", "")
    kept = re.sub(r"[^\w\- ]", "", plain.strip().lower())
    return kept.replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Everything in this text that a link can point to."""
    found: set[str] = set()
    for heading in headings(text):
        name = base = slug(heading)
        count = 0
        while name in found:
            count += 1
            name = f"{base}-{count}"
        found.add(name)
    return found | set(_ANCHOR.findall(without_code(text)))
