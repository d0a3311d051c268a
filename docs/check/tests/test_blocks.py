"""Blocks and their marks."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blocks import MarkError, blocks_of, pages, parse_mark


class Marks(unittest.TestCase):
    def test_marks_are_read(self) -> None:
        mark = parse_mark("run: server=--spin-ms 5 --tls-cert a.pem, name=tls, step=2, slow, in order")
        assert mark is not None
        self.assertEqual(mark.verb, "run")
        self.assertEqual(mark.value("server"), "--spin-ms 5 --tls-cert a.pem")
        self.assertEqual((mark.value("name"), mark.value("step")), ("tls", "2"))
        self.assertIn("slow", mark)
        self.assertNotIn("serves", mark)
        plain = parse_mark("run")
        assert plain is not None
        self.assertEqual(plain.options, {})

    def test_a_reason_may_go_over_lines(self) -> None:
        mark = parse_mark("not run: it needs an account\n   of a cloud: yours")
        assert mark is not None
        self.assertEqual(mark.reason, "it needs an account of a cloud: yours")

    def test_other_comments_are_no_marks(self) -> None:
        self.assertIsNone(parse_mark("running late"))
        self.assertIsNone(parse_mark("TODO: run"))

    def test_faults_are_found(self) -> None:
        for text, says in (
            ("not run", "needs a reason"),
            ("not run: because", "needs a reason"),
            ("run: sever", "knows no 'sever'"),
            ("run: name", "knows no 'name'"),
            ("run: slow=yes", "knows no"),
            ("run: name=", "needs a value"),
            ("run: name=../a", "is no name"),
            ("run: exit=many", "no exit code"),
            ("check", "needs one of"),
            ("check: run", "knows no 'run'"),
        ):
            with self.subTest(text), self.assertRaisesRegex(MarkError, says):
                parse_mark(text)


class Blocks(unittest.TestCase):
    def test_blocks_of_checked_languages_are_found_with_the_mark_directly_above(self) -> None:
        page = (
            "<!-- run -->\n```sh\na\n```\n"
            "<!-- run -->\n\n```sh\nb\n```\n"
            "```rust\nc\n```\n"
            "<!-- not run:\n     it is too\n     long -->\n```console\n$ d\n```\n"
            "<!-- rnu: x -->\n```bash\ne\n```\n"
            "<!-- run: sever -->\n```sh\nf\n```\n"
            "```\ng\n```\n"
        )
        found = list(blocks_of("p.md", page))
        self.assertEqual([block.text.strip() for block in found], ["a", "b", "$ d", "e", "f"])
        self.assertEqual([block.mark.verb if block.mark else None for block in found],
                         ["run", None, "not run", None, None])  # fmt: skip
        self.assertIn("sever", found[4].fault)
        self.assertEqual(found[0].place, "p.md:2")

    def test_pages_are_those_of_the_project(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for path in ("a.md", "docs/b.md", "target/c.md", "models/cache/d.md", ".git/e.md"):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text("x", encoding="utf-8")
            self.assertEqual([p.relative_to(root).as_posix() for p in pages(root)], ["a.md", "docs/b.md"])


if __name__ == "__main__":
    unittest.main()
