#!/usr/bin/env python3
"""Preprocessor of mdBook: makes pages that are written to be read in the repository into pages of a book.

- A page with the comment <!-- book: ../FILE --> becomes that file: Markdown as it is, others as a block.
- Links to files that are pages, whatever their name, lead to the page; links to others become plain text,
  as the book has nothing to show there.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown

_STUB = re.compile(r"<!-- book: (?P<file>\S+) -->")

# From where to where a text is replaced, and by what.
Edit = tuple[int, int, str]

# How files that are not Markdown are coloured.
LANGUAGES = {".proto": "protobuf", ".toml": "toml", ".rs": "rust", ".py": "python"}


def chapters(items: list[Any]) -> Iterator[dict[str, Any]]:
    """Every chapter with a page, those below others too."""
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter is None:
            continue
        if chapter.get("path"):
            yield chapter
        yield from chapters(chapter["sub_items"])


def inside(folder: str, target: str) -> str:
    """A link's file as a path from the repository's root, which has `folder`."""
    return posixpath.normpath(posixpath.join(folder, target))


class Book:
    """The pages, and where each file of the repository is among them."""

    def __init__(self, source: Path, found: list[dict[str, Any]], pages: dict[str, str]) -> None:
        self.source = source
        self.folder = source.name
        self.chapters = found
        # Paths in the repository -> paths in the book, both with / between folders.
        self.places = dict(pages)
        self.explained = frozenset(pages)
        for chapter in found:
            self.places[f"{self.folder}/{chapter['source_path']}"] = chapter["path"]
            if stub := _STUB.search(chapter["content"]):
                self.places[inside(self.folder, stub["file"])] = chapter["path"]

    def rewrite(self) -> None:
        """All chapters in place."""
        for chapter in self.chapters:
            folder = posixpath.dirname(f"{self.folder}/{chapter['source_path']}")
            text = chapter["content"]
            if stub := _STUB.search(text):
                file = inside(folder, stub["file"])
                text, folder = self.included(file, text), posixpath.dirname(file)
            chapter["content"] = self.relinked(text, folder, posixpath.dirname(chapter["path"]))

    def included(self, file: str, stub: str) -> str:
        """What a page shows that stands for this file."""
        content = (self.source.parent / file).read_text(encoding="utf-8")
        if file.endswith(".md"):
            return content
        title = stub.lstrip().splitlines()[0]
        language = LANGUAGES.get(posixpath.splitext(file)[1], "text")
        return f"{title}\n\n`{file}`:\n\n```{language}\n{content.rstrip()}\n```\n"

    def relinked(self, text: str, folder: str, page_folder: str) -> str:
        """A text whose links were relative to `folder`, as a page in `page_folder` of the book."""
        edits: list[Edit] = []
        for link in markdown.links(text):
            target, _, fragment = link.target.partition("#")
            if not target or "://" in target or target.startswith("mailto:"):
                continue
            file = inside(folder, target)
            place = self.places.get(file) or self.places.get(f"{file}/README.md")
            if place is None and file.startswith(f"{self.folder}/") and link.image:
                place = file.removeprefix(f"{self.folder}/")
            if place is None:
                edits += unlinked(text, link)
                continue
            # A page that stands for another has headings of its own.
            kept = f"#{fragment}" if fragment and file not in self.explained else ""
            relative = posixpath.relpath(place, page_folder or ".")
            edits.append((link.start, link.end, relative + kept))
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


def unlinked(text: str, link: markdown.Link) -> list[Edit]:
    """What takes a link's brackets and target away, or takes out a picture."""
    end = text.index(")", link.end) + 1
    closing = link.start - 2
    opening, depth = closing, 0
    for at in range(closing, -1, -1):
        depth += {"]": 1, "[": -1}.get(text[at], 0)
        if depth == 0:
            opening = at
            break
    if link.image:
        return [(opening - 1, end, "")]
    return [(opening, opening + 1, ""), (closing, end, "")]


def main() -> int:
    """See above, and mdBook's guide on preprocessors: [context, book] on stdin, the book on stdout."""
    if sys.argv[1:2] == ["supports"]:
        return 0 if sys.argv[2:3] == ["html"] else 1
    context, book = json.load(sys.stdin)
    config = context["config"]
    source = (Path(context["root"]) / config["book"].get("src", "src")).resolve()
    pages = config.get("preprocessor", {}).get("repository", {}).get("pages", {})
    Book(source, list(chapters(book["items"])), pages).rewrite()
    json.dump(book, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
