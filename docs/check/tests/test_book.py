"""Pages of the repository as pages of a book: what becomes of their links."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from book import Book, chapters


def chapter(path: str, content: str, source: str | None = None) -> dict[str, Any]:
    """A chapter as mdBook hands it over."""
    return {"path": path, "source_path": source or path, "content": content, "sub_items": []}


class Books(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.docs = Path(folder.name) / "docs"
        self.docs.mkdir()
        (self.docs.parent / "SECURITY.md").write_text(
            "# Secret\n\n[t](docs/threat.md#who) [r](README.md#run) ![p](docs/p.png) [x](server)\n", encoding="utf-8"
        )
        (self.docs.parent / "a.proto").write_text("message A {}\n", encoding="utf-8")

    def made(self, *found: dict[str, Any]) -> list[str]:
        """The pages' texts."""
        Book(self.docs, list(found), {"README.md": "index.md"}).rewrite()
        return [one["content"] for one in found]

    def test_links_lead_to_pages(self) -> None:
        text = "[a](../SECURITY.md#tls) [b](threat.md) [c](README.md) [d](../README.md#run) [e](#x) ![f](p.png)"
        found = self.made(
            chapter("index.md", "# I\n", "README.md"),
            chapter("security.md", "# S\n\n<!-- book: ../SECURITY.md -->\n"),
            chapter("threat.md", text),
        )
        expected = "[a](security.md#tls) [b](threat.md) [c](index.md) [d](index.md) [e](#x) ![f](p.png)"
        self.assertEqual(found[2], expected)

    def test_links_to_what_the_book_has_not_become_text(self) -> None:
        text = "see [the `server`](../server/src) and [![p](p.png) it](../x.py), "
        text += "[y](https://y.example), ![z](../z.png)."
        (found,) = self.made(chapter("a.md", text))
        self.assertEqual(found, "see the `server` and ![p](p.png) it, [y](https://y.example), .")

    def test_links_in_code_stay(self) -> None:
        text = "`[a](../b.md)`\n\n```\n[a](../b.md)\n```\n"
        self.assertEqual(self.made(chapter("a.md", text)), [text])

    def test_a_page_may_stand_for_a_file(self) -> None:
        found = self.made(
            chapter("security.md", "# S\n\n<!-- book: ../SECURITY.md -->\n\n[s](../SECURITY.md)\n"),
            chapter("threat.md", "# T\n"),
            chapter("file.md", "# The file\n\n<!-- book: ../a.proto -->\n"),
        )
        self.assertEqual(found[0], "# Secret\n\n[t](threat.md#who) [r](index.md) ![p](p.png) x\n")
        self.assertEqual(found[2], "# The file\n\n`a.proto`:\n\n```protobuf\nmessage A {}\n```\n")

    def test_pages_in_folders_are_reached(self) -> None:
        found = self.made(chapter("sub/a.md", "[b](../b.md#c)"), chapter("b.md", "[a](sub/a.md)"))
        self.assertEqual(found, ["[b](../b.md#c)", "[a](sub/a.md)"])

    def test_chapters_below_others_are_found(self) -> None:
        inner = {"Chapter": chapter("b.md", "")}
        outer = chapter("a.md", "")
        outer["sub_items"] = ["Separator", inner]
        items = [{"PartTitle": "x"}, {"Chapter": outer}, {"Chapter": chapter("", "draft")}]
        self.assertEqual([one["path"] for one in chapters(items)], ["a.md", "b.md"])


if __name__ == "__main__":
    unittest.main()
