"""Fences, links and anchors as GitHub reads them."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import markdown

PAGE = """# One `code` and [a link](x.md)

text with `[no](link)` and [one](a.md#b), [two
lines](c.md "title"), ![picture](p.png) and [![both](i.png)](target.md).

```sh
# no heading
echo [no](link)
```

- item

  ~~~~toml title="x"
  ```
  a = 1
  ~~~~

    indented [no](link)

<!-- [no](comment.md) --> <a href="tag.md" id="by-hand">x</a>

[ref]: defined.md

## One `code` and [a link](x.md)
### É, 2nd: a/b_c -- d
"""


class Fences(unittest.TestCase):
    def test_fences_have_their_line_language_and_text(self) -> None:
        first, second = markdown.fences(PAGE)
        self.assertEqual((first.line, first.language), (6, "sh"))
        self.assertEqual(first.text, "# no heading\necho [no](link)\n")
        self.assertEqual((second.line, second.language), (13, "toml"))
        self.assertEqual(second.text, "```\na = 1\n")

    def test_a_fence_that_is_not_closed_ends_with_the_page(self) -> None:
        (only,) = markdown.fences("```json\n{}\n")
        self.assertEqual(only.text, "{}\n")

    def test_code_in_a_line_is_no_fence(self) -> None:
        self.assertEqual(markdown.fences("```a``` text\n"), [])


class Links(unittest.TestCase):
    def test_links_outside_of_code_and_comments_are_found(self) -> None:
        targets = [link.target for link in markdown.links(PAGE)]
        expected = ["x.md", "a.md#b", "c.md", "p.png", "i.png", "target.md", "tag.md", "defined.md", "x.md"]
        self.assertEqual(sorted(targets), sorted(expected))

    def test_a_link_knows_where_its_target_stands(self) -> None:
        for link in markdown.links(PAGE):
            self.assertEqual(PAGE[link.start : link.end], link.target)
            self.assertEqual(PAGE.count("\n", 0, link.start) - link.line <= 1, True)


class Anchors(unittest.TestCase):
    def test_anchors_are_those_of_github(self) -> None:
        found = markdown.anchors(PAGE)
        expected = {"one-code-and-a-link", "one-code-and-a-link-1", "é-2nd-ab_c----d", "by-hand"}
        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
