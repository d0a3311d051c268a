"""Consoles: commands behind $ and what they print."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import console


def lines(text: str) -> list[str]:
    """A text's lines."""
    return text.splitlines()


class Reading(unittest.TestCase):
    def test_commands_and_what_they_print(self) -> None:
        found = console.read("$ one \\\n> two\na\n> b\n\n$ three\n")
        self.assertEqual(found[0].command, "one \\\ntwo")
        self.assertEqual(found[0].expected, ["a", "> b", ""])
        self.assertEqual((found[1].command, found[1].expected), ("three", []))

    def test_a_block_without_a_command_is_no_console(self) -> None:
        for text in ("", "output\n$ ls\n"):
            with self.assertRaises(console.NoConsole):
                console.read(text)

    def test_a_script_keeps_variables_exit_codes_and_outputs_apart(self) -> None:
        exchanges = console.read("$ a=1; false\n$ echo $? $a\n$ printf no-newline\n")
        done = subprocess.run(
            ["bash", "-c", console.script(exchanges)], capture_output=True, text=True, check=False
        )
        self.assertEqual(console.outputs(done.stdout), [[], ["1 1"], ["no-newline"]])


class Comparing(unittest.TestCase):
    def test_what_fits(self) -> None:
        for expected, printed in (
            ("a  b", "a b"),
            ("a\nb", "a\n\nb"),
            ("took ... ms", "took 12.5 ms"),
            ("took ...", "took"),
            ("...", "anything\nat all"),
            ("...", ""),
            ("a\n...\nd", "a\nb\nc\nd"),
            ("...\nd", "d"),
            ("", "anything"),
            ("a (b) [c]", "a (b) [c]"),
        ):
            with self.subTest(expected):
                self.assertEqual(console.differs(lines(expected), lines(printed)), "")

    def test_what_does_not(self) -> None:
        for expected, printed in (
            ("a", "b"),
            ("a", ""),
            ("a", "a\nb"),
            ("a\nb", "a"),
            ("a\n...\nd", "a\nb"),
            ("took ... ms", "took 12.5 s"),
            ("a.c", "abc"),
        ):
            with self.subTest(expected):
                self.assertNotEqual(console.differs(lines(expected), lines(printed)), "")


if __name__ == "__main__":
    unittest.main()
