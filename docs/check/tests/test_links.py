"""Links of Markdown and of built pages; what a page fetches."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import links


class Files(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def write(self, name: str, text: str) -> None:
        """A file of the repository or book."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Markdown(Files):
    def faults(self, text: str) -> list[str]:
        """What is wrong with a page of this text."""
        self.write("docs/page.md", text)
        self.write("other.md", "# A heading\n")
        self.write("code.py", "1\n2\n")
        return links.markdown_faults(self.root)[1]

    def test_good_links(self) -> None:
        text = "# Top\n[a](../other.md#a-heading) [b](#top) [c](../code.py#L2) [d](..) [e](https://x.example/y#z)"
        self.assertEqual(self.faults(text), [])

    def test_broken_links(self) -> None:
        for target, says in (
            ("../missing.md", "no such file"),
            ("../other.md#another", "no such heading"),
            ("#nowhere", "no such heading"),
            ("../code.py#L9", "only 3 lines"),
            ("../code.py#part", "only pages have headings"),
            ("../../outside.md", "leads out"),
            ("/other.md", "begins with /"),
        ):
            with self.subTest(target):
                (fault,) = self.faults(f"# Top\n\n[a]({target})\n")
                self.assertIn(says, fault)
                self.assertTrue(fault.startswith("docs/page.md:3: "), fault)


class Html(Files):
    def faults(self, body: str) -> list[str]:
        """What is wrong with a book of this page."""
        self.write("index.html", f'<html><body id="top">{body}</body></html>')
        self.write("sub/other.html", '<h1 id="a-heading">x</h1>')
        self.write("own.css", "a { background: url('picture.png') }")
        return links.html_faults(self.root)[1]

    def test_good_pages(self) -> None:
        body = (
            '<link rel="stylesheet" href="own.css"><a href="sub/other.html#a-heading">a</a><a href="#top">b</a>'
            '<a href="https://x.example">c</a><img src="data:image/png;base64,AA"><a href="sub/other.html?x=1">d</a>'
        )
        self.assertEqual(self.faults(body), [])

    def test_faults(self) -> None:
        for body, says in (
            ('<a href="missing.html">a</a>', "no such file"),
            ('<a href="../README.html">a</a>', "no such file"),
            ('<a href="sub/other.html#b">a</a>', "no such anchor"),
            ('<a href="#nowhere">a</a>', "no such anchor"),
            ('<img src="missing.png">', "no such file"),
            ('<script src="https://cdn.example/x.js"></script>', "from elsewhere"),
            ('<link rel="stylesheet" href="//cdn.example/x.css">', "from elsewhere"),
            ("<style>@import 'https://cdn.example/x.css';</style>", "from elsewhere"),
            ('<p style="background: url(https://cdn.example/x.png)">', "from elsewhere"),
        ):
            with self.subTest(body):
                found = self.faults(body)
                self.assertEqual(len(found), 1, found)
                self.assertIn(says, found[0])

    def test_style_sheets_fetch_nothing_from_elsewhere(self) -> None:
        self.write("fonts.css", "@font-face { src: url(https://fonts.example/x.woff2) }")
        self.assertIn("from elsewhere", self.faults("")[0])

    def test_no_pages_is_a_fault(self) -> None:
        self.assertEqual(len(links.html_faults(self.root)[1]), 1)


if __name__ == "__main__":
    unittest.main()
