"""Tables, pages, and the list of promises."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import run
from promise import Finding, Promise, anchor, cell, markdown, promise, table


def row(_env: object) -> Finding:
    """Twenty streams
    are cut."""
    return Finding("", held=True)


def entry(number: int, **changes: object) -> Promise:
    """A promise with nothing special about it."""
    fields = {"quiet": False, "last": False, "seconds": 1} | changes
    return Promise(number, f"title {number}", "at most 20 s", row=row, **fields)  # type: ignore[arg-type]


class Tables(unittest.TestCase):
    def test_columns_of_a_terminal_table_line_up(self) -> None:
        judged = [
            (entry(1), Finding("16.2 s", held=True)),
            (entry(22), Finding("could not run:\nno nft", held=False)),
        ]
        lines = table(judged).splitlines()
        self.assertEqual({line.index("|") for line in lines[:1] + lines[2:]}, {12})
        self.assertEqual(lines[0].split()[0], "promise")
        self.assertTrue(lines[2].endswith("| HOLDS"), lines[2])
        self.assertIn("could not run: no nft", lines[3])
        self.assertTrue(lines[3].endswith("| FAIL"), lines[3])

    def test_a_page_has_every_row_its_figure_and_its_prose(self) -> None:
        judged = [(entry(4), Finding("a | b", held=False, detail="line one\nline two"))]
        page = markdown(judged, {"machine": "2 cores"})
        self.assertIn("0 of 1 hold", page)
        self.assertIn("machine: 2 cores.", page)
        self.assertIn(r"| [4](#4-title-4) title 4 | a \| b | at most 20 s | FAIL |", page)
        self.assertIn(
            "## 4 title 4\n\nTwenty streams\nare cut.\n\n    line one\n    line two", page
        )

    def test_a_cell_is_one_line_without_bars(self) -> None:
        self.assertEqual(cell("a\n  b | c"), r"a b \| c")

    def test_anchors_are_those_of_the_headings(self) -> None:
        made = Promise(5, "rapid reset, CONTINUATION flood", "", False, False, 1, row)
        self.assertEqual(anchor(made), "5-rapid-reset-continuation-flood")

    def test_a_promise_says_its_scenario_and_is_tested_once(self) -> None:
        with self.assertRaises(ValueError):
            promise(9001, "x", mark="y")(lambda _env: Finding("", held=True))
        promise(9002, "x", mark="y")(row)
        with self.assertRaises(ValueError):
            promise(9002, "x", mark="y")(row)
        from promise import _REGISTRY

        del _REGISTRY[9002]


class Order(unittest.TestCase):
    def test_quiet_rows_come_first_and_those_that_look_back_last(self) -> None:
        entries = [entry(1), entry(2, quiet=True), entry(3, last=True), entry(4, quiet=True)]
        self.assertEqual([p.number for p in run.in_order(entries)], [2, 4, 1, 3])

    def test_only_takes_known_numbers(self) -> None:
        entries = [entry(1), entry(2)]
        self.assertEqual([p.number for p in run.chosen(entries, [2])], [2])
        with self.assertRaises(run.CannotRun):
            run.chosen(entries, [3])

    def test_a_row_that_breaks_is_a_failure_that_names_its_place(self) -> None:
        try:
            raise KeyError("no such series")
        except KeyError as error:
            found = run.failure(error)
        self.assertFalse(found.held)
        self.assertIn("KeyError", found.figure)
        self.assertRegex(found.detail, r"test_promise\.py:\d+")


class Registry(unittest.TestCase):
    def test_every_row_has_a_number_a_mark_and_a_scenario_without_the_packages(self) -> None:
        found = run.load_rows()
        self.assertEqual(len({p.number for p in found}), len(found))
        for made in found:
            self.assertTrue(made.mark and made.title and len(made.prose) > 40, made)
            self.assertIsNone(re.search(r"TODO|FIXME", made.prose))


if __name__ == "__main__":
    unittest.main()
