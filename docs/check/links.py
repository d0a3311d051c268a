#!/usr/bin/env python3
"""Looks at every link of the Markdown files: whether the file is there, and the heading. With --html DIR at the
built pages as well: their links, their anchors, and that they fetch nothing from elsewhere.

Links to other sites are not followed. Exit code 0, or 1 with a line for each fault.
"""

from __future__ import annotations

import argparse
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown
from blocks import pages

ROOT = Path(__file__).resolve().parents[2]

# Attributes that make a browser fetch something by itself.
FETCHING = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("audio", "src"),
    ("link", "href"), ("object", "data"), ("embed", "src"), ("use", "href"),
}  # fmt: skip

_CSS_URL = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?P<target>[^'\")\s]+)")
_LINES = re.compile(r"L(\d+)(?:-L(\d+))?")


def is_external(target: str) -> bool:
    """Whether this leads to another site, or is no place at all."""
    return bool(urlsplit(target).scheme) or target.startswith("//")


class Anchors:
    """The anchors of files, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, set[str]] = {}

    def of(self, path: Path) -> set[str]:
        """Those of a Markdown file."""
        if path not in self._known:
            self._known[path] = markdown.anchors(path.read_text(encoding="utf-8"))
        return self._known[path]


def link_fault(page: Path, target: str, root: Path, anchors: Anchors) -> str:
    """What is wrong with a relative link of a page; empty when nothing is."""
    path_part, _, fragment = target.partition("#")
    if path_part.startswith("/"):
        return "begins with / and leads out of the repository"
    path = (page.parent / unquote(path_part)).resolve() if path_part else page
    if not path.is_relative_to(root):
        return "leads out of the repository"
    if not path.exists():
        return "there is no such file"
    if not fragment:
        return ""
    if path.suffix == ".md":
        return "" if unquote(fragment) in anchors.of(path) else "that page has no such heading"
    numbers = _LINES.fullmatch(fragment)
    if numbers is None or path.is_dir():
        return "only pages have headings"
    last = int(numbers[2] or numbers[1])
    lines = path.read_text(encoding="utf-8", errors="replace").count("\n") + 1
    return "" if last <= lines else f"that file has only {lines} lines"


def markdown_faults(root: Path) -> tuple[int, list[str]]:
    """The number of relative links in all Markdown files, and the faults."""
    anchors, count, faults = Anchors(), 0, []
    for page in pages(root):
        for link in markdown.links(page.read_text(encoding="utf-8")):
            if is_external(link.target):
                continue
            count += 1
            if fault := link_fault(page, link.target, root, anchors):
                faults.append(f"{page.relative_to(root)}:{link.line}: {link.target}: {fault}")
    return count, faults


class Page(HTMLParser):
    """Anchors, links, and what a browser fetches, of a built page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._style = tag == "style"
        for name, value in attributes:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            if name == "style":
                self.fetched += [match["target"] for match in _CSS_URL.finditer(value)]
            if name == "srcset":
                self.fetched += [part.split()[0] for part in value.split(",") if part.strip()]
            if (tag, name) in FETCHING:
                self.fetched.append(value)
            elif name in ("href", "src"):
                self.links.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.fetched += [match["target"] for match in _CSS_URL.finditer(data)]


def read_html(folder: Path) -> dict[Path, Page]:
    """All built pages."""
    found = {}
    for path in sorted(folder.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        found[path.resolve()] = page
    return found


def html_faults(folder: Path) -> tuple[int, list[str]]:
    """The number of links within the built pages, and the faults."""
    folder = folder.resolve()
    found, count, faults = read_html(folder), 0, []
    if not found:
        return 0, [f"{folder} has no pages; build them first (make book)"]
    for path, page in found.items():
        name = path.relative_to(folder).as_posix()
        for target in page.fetched:
            if is_external(target) and not target.startswith("data:"):
                faults.append(f"{name}: fetches {target} from elsewhere")
        for target in [*page.links, *page.fetched]:
            if is_external(target):
                continue
            count += 1
            file, _, fragment = target.partition("#")
            file = file.partition("?")[0]
            to = (path.parent / unquote(file)).resolve() if file else path
            if file.startswith("/"):
                to = (folder / unquote(file).lstrip("/")).resolve()
            if to.is_dir():
                to = to / "index.html"
            if not to.is_relative_to(folder) or not to.exists():
                faults.append(f"{name}: {target}: there is no such file in the book")
            elif fragment and to in found and unquote(fragment) not in found[to].anchors:
                faults.append(f"{name}: {target}: that page has no such anchor")
    for path in sorted(folder.rglob("*.css")):
        for match in _CSS_URL.finditer(path.read_text(encoding="utf-8")):
            if is_external(match["target"]) and not match["target"].startswith("data:"):
                faults.append(f"{path.relative_to(folder)}: fetches {match['target']} from elsewhere")
    return count, faults


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--html", type=Path, help="folder of the built pages")
    arguments = parser.parse_args()
    count, faults = markdown_faults(ROOT)
    print(f"{count} relative links in {len(pages(ROOT))} Markdown files, {len(faults)} faults")
    if arguments.html:
        more, html = html_faults(arguments.html)
        print(f"{more} links in the built pages, {len(html)} faults")
        faults += html
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
