"""What is done with a block, decided before anything runs."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blocks import Block, parse_mark
from rules import decide, in_order, logical_lines, with_exec


def block(kind: str, text: str, mark: str | None = None, line: int = 1) -> Block:
    """A block of a page."""
    return Block("p.md", line, kind, text, parse_mark(mark) if mark else None)


class Decisions(unittest.TestCase):
    def test_commands_without_a_mark_fail(self) -> None:
        for kind in ("shell", "console", "python"):
            self.assertEqual(decide(block(kind, "ls\n"), False).action, "fail")

    def test_a_mark_that_is_misspelt_fails(self) -> None:
        bad = Block("p.md", 1, "toml", "a = 1\n", None, "`run` knows no 'sever'")
        self.assertEqual(decide(bad, True).action, "fail")

    def test_data_says_what_it_is(self) -> None:
        for text, action in (
            ("max_cameras = 5\n", "config"),
            ('[[token]]\nname = "a"\n', "tokens"),
            ("[[group]]\ncameras = 1\n", "scenario"),
            ('[[rogue]]\nbehaviour = "flood"\n', "scenario"),
            ('[[instance]]\nname = "a"\n', "instances"),
            ('[models.mine]\npath = "x"\n', "manifest"),
            ("a = \n", "fail"),
            ("[[token]]\n[[group]]\n", "fail"),
        ):
            self.assertEqual(decide(block("toml", text), False).action, action, text)
        self.assertEqual(decide(block("json", "{}"), False).action, "json")
        self.assertEqual(decide(block("yaml", "a: 1"), False).action, "yaml")

    def test_marks_decide(self) -> None:
        for kind, text, mark, action in (
            ("shell", "ls\n", "run", "shell"),
            ("console", "$ ls\n", "run: server", "console"),
            ("shell", "ls\n", "check: syntax", "shell-syntax"),
            ("shell", "ls\n", "not run: it needs an account", "skip"),
            ("shell", "a\nvedette-server --x \\\n  y\n", "run: serves", "serve"),
            ("shell", "vedette-server\nls\n", "run: serves", "fail"),
            ("python", "x = 1\n", "run: file=a.py, name=n", "file"),
            ("python", "x = 1\n", "run: file=a.py", "fail"),
            ("python", "x = 1\n", "run", "fail"),
            ("toml", "a = 1\n", "run", "fail"),
            ("json", "{}", "check: message=Object", "message"),
            ("toml", "a = 1\n", "check: message=Object", "fail"),
            ("json", "{}", "check: config", "fail"),
            ("toml", "a = 1\n", "check: config, syntax", "fail"),
            ("console", "$ ls\n", "check: syntax", "fail"),
            ("shell", "ls\n", "run: needs=no-such-command-here", "skip"),
            ("shell", "ls\n", "run: needs=sh", "shell"),
        ):
            with self.subTest(f"{kind} {mark}"):
                self.assertEqual(decide(block(kind, text, mark), False).action, action)

    def test_slow_blocks_run_when_all_do(self) -> None:
        slow = block("shell", "ls\n", "run: slow")
        self.assertEqual(decide(slow, False).action, "skip")
        self.assertEqual(decide(slow, True).action, "shell")


class Lines(unittest.TestCase):
    def test_the_last_command_takes_the_shells_place(self) -> None:
        text = "make x\n# a word\nvedette-server --a \\\n    b   # prints\n"
        self.assertEqual(logical_lines(text), ["make x", "vedette-server --a b   # prints"])
        self.assertEqual(with_exec(text), "make x\nexec vedette-server --a b   # prints\n")


class Order(unittest.TestCase):
    def test_names_make_groups_and_steps_their_order(self) -> None:
        marks = ["run: name=a, step=2", "run", "run: name=a, step=1", "run: name=b", "run: name=b"]
        blocks = [block("shell", "x", mark, line) for line, mark in enumerate(marks, 1)]
        groups, faults = in_order(blocks)
        self.assertEqual([[one.line for one in group] for group in groups], [[3, 1], [2], [4, 5]])
        self.assertEqual(faults, [])

    def test_the_same_name_on_another_page_is_another_group(self) -> None:
        mark = parse_mark("run: name=a")
        groups, _ = in_order([Block("p.md", 1, "shell", "x", mark), Block("q.md", 1, "shell", "x", mark)])
        self.assertEqual(len(groups), 2)

    def test_steps_that_make_no_order_are_faults(self) -> None:
        for marks in (
            ("run: name=a, step=1", "run: name=a"),
            ("run: name=a, step=1", "run: name=a, step=1"),
            ("run: name=a, step=one", "run: name=a, step=2"),
        ):
            blocks = [block("shell", "x", mark, line) for line, mark in enumerate(marks, 1)]
            groups, faults = in_order(blocks)
            self.assertEqual((groups, len(faults)), ([], 2), marks)


if __name__ == "__main__":
    unittest.main()
