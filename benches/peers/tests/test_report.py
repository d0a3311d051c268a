"""Tables, marks, sentences and the plot, for results of either kind."""

from __future__ import annotations

import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import plot
import report
from campaign import Plan
from contest import CPU, OURS, REAL, SAME_WORK, WALL, keys
from samples import INVALID, Sample, Spec, Store
from table import Table, figure, trials

COUNTS = [10, 30, 31]


def results(folder: str, slowest: dict[str, dict[int, float]], clock: str = CPU) -> report.Results:
    """Three runs of each; frames go unanswered from a second on."""
    store = Store(Path(folder) / "samples.jsonl", keep=False)
    for key, by_count in slowest.items():
        for cameras, ms in by_count.items():
            for run in range(3):
                spec = Spec(key, clock, "ramp", cameras, 4.0, run)
                lost = 100 if ms > 1000 else 0
                store.add(Sample(spec, "PASS", 1200, lost, ms / 2, 5.0, ms + run - 1, 5.2, 20.0))
    counts = {CPU: COUNTS, WALL: COUNTS, REAL: COUNTS}
    return report.Results(
        store, Plan([CPU, WALL, REAL], keys(), 3, 10.0, 4.0, counts, "ramp", True, 50.0)
    )


class Page(unittest.TestCase):
    """From samples to words."""

    def setUp(self) -> None:
        """Where samples go."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def marks(self, slowest: dict[str, dict[int, float]]) -> dict[str, report.Mark]:
        """By the server that is compared with; the last is of all."""
        found = report.marks(results(self.folder, slowest))
        return {mark.promise: mark for mark in found}

    def verdict(self, slowest: dict[str, dict[int, float]], part: str) -> str:
        """Of the mark whose promise has these words."""
        found = self.marks(slowest)
        return next(mark.verdict() for promise, mark in found.items() if part in promise)

    def test_marks_hold_fail_or_were_not_tried(self) -> None:
        ours = {10: 20.0, 30: 60.0, 31: 99.0}
        better = {10: 19.0, 30: 61.0, 31: 120.0}
        worse = {10: 21.0, 30: 61.0, 31: 120.0}
        self.assertEqual(self.verdict({OURS: ours, "sync_cpp": worse}, "synchronous C++"), "PASS")
        self.assertEqual(self.verdict({OURS: ours, "sync_cpp": better}, "synchronous C++"), "FAIL")
        self.assertEqual(self.verdict({OURS: ours}, "synchronous C++"), "NOT TRIED")
        self.assertEqual(self.verdict({OURS: ours, "sync_cpp": worse}, "as the best"), "PASS")
        self.assertEqual(self.verdict({OURS: worse, "sync_cpp": ours}, "as the best"), "FAIL")

    def test_a_server_given_up_is_not_ahead(self) -> None:
        hopeless = {10: 5000.0, 30: 9000.0}
        ours = {10: 20.0, 30: 60.0, 31: 99.0}
        slowest = {OURS: ours, "sync_python": hopeless}
        self.assertEqual(self.verdict(slowest, "synchronous Python"), "PASS")

    def test_the_articles_table(self) -> None:
        found = results(self.folder, {OURS: {30: 60.0, 31: 120.0}, "sync_cpp": {10: 50.0, 11: 130}})
        rows = {row[0]: row for row in report.article_table(found, CPU).rows}
        self.assertEqual(rows["Vedette"][3], "60.0 (59.0 60.0 61.0)")
        self.assertEqual(rows["Vedette"][-2:], ["30", "1.00"])
        self.assertEqual(rows["synchronous C++"][-2:], ["10", "3.00"])
        self.assertEqual(rows["synchronous Python"][-2:], ["-", "-"])
        wall = report.article_table(found, WALL).rows[-1]
        self.assertEqual(wall[0], "Vedette (CPU time)")
        self.assertEqual(wall[3], "60.0 (59.0 60.0 61.0)")

    def test_sentences_follow_the_figures(self) -> None:
        slow, fast = {1: 50.0, 2: 200.0}, {30: 60.0, 31: 200.0}
        by_language = {"sync_python": slow, "asyncio_python": slow, "sync_cpp": fast,
                       "async_cpp": fast}  # fmt: skip
        found = report.about_language(results(self.folder, by_language))
        self.assertIn("brings +29 cameras, and asynchrony on top of it +0: the language", found)
        by_asynchrony = {**by_language, "sync_cpp": slow}
        found = report.about_language(results(self.folder, by_asynchrony))
        self.assertIn("brings +0 cameras, and asynchrony on top of it +29: the asynchrony", found)
        self.assertEqual(report.about_language(results(self.folder, {})), "Not measured.")

    def test_sentences_say_it_too_when_another_is_ahead(self) -> None:
        ahead = {"pool_python": {30: 50.0, 31: 60.0, 32: 500.0}, OURS: {30: 80.0, 31: 200.0}}
        found = report.about_processes(results(self.folder, ahead))
        self.assertIn("Python, process pool, serves 31 cameras", found)
        self.assertIn("Vedette serves 30, with 80.0 ms", found)
        self.assertIn("0.97 times", found)

    def test_inference_is_compared_where_all_fit(self) -> None:
        fits = {"pool_python": {4: 60.0, 6: 200.0}, SAME_WORK: {4: 50.0, 6: 90.0, 7: 300.0},
                OURS: {4: 40.0, 6: 70.0, 9: 90.0, 10: 200.0}}  # fmt: skip
        found = report.about_inference(results(self.folder, fits, REAL))
        self.assertIn("serves 4 cameras, Vedette 6 when it does the same work", found)
        self.assertIn("and 9 as by default. At 6 cameras", found)

    def test_invalid_runs_are_told_apart_and_counted(self) -> None:
        found = results(self.folder, {})
        spec = Spec(OURS, CPU, "ramp", 30, 4.0, 0)
        found.store.add(Sample(spec, INVALID, 9, 0, 6.0, 5.0, 20.0, 5.0, 20.0, invalid=2))
        self.assertEqual(report.cell(found.runs(CPU, OURS, 30), lambda run: run.max_ms), "20.0*")
        self.assertIn("In 3 tries", report.notes(found)[0])

    def test_every_table_has_as_many_cells_as_columns(self) -> None:
        found = results(self.folder, {OURS: {30: 60.0}})
        for table in report.tables(found):
            for row in table.rows:
                self.assertEqual(len(row), len(table.columns), table.title)

    def test_the_plot_is_a_picture_whatever_was_measured(self) -> None:
        for slowest in ({}, {OURS: {1: 0.01}}, {OURS: {1: 6.0, 40: 90000.0}, "sync_cpp": {1: 7.0}}):
            drawn = plot.draw("5 < 6 ms", report.lines(results(self.folder, slowest)), 100.0)
            tree = xml.etree.ElementTree.fromstring(drawn)
            words = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
            self.assertEqual("Vedette" in words, OURS in slowest)


class Writing(unittest.TestCase):
    """Figures and tables."""

    def test_figures(self) -> None:
        shown = [figure(value) for value in (5.04, 99.94, 123.4, 15236.0, float("inf"))]
        self.assertEqual(shown, ["5.0", "99.9", "123", "15,236", "none"])
        self.assertEqual(trials([5.0], 5.0), "5.0")
        self.assertEqual(trials([5.0, None, 7.0], 7.0), "7.0 (5.0 none 7.0)")

    def test_tables(self) -> None:
        table = Table("T", ["server", "ms"], [["a", "5.0"], ["longer", "12.0"]])
        self.assertEqual(table.plain(), "T\nserver    ms\n------------\na        5.0\nlonger  12.0")
        self.assertIn("| --- | ---: |\n| a | 5.0 |", table.markdown())

    def test_labels_do_not_overlap(self) -> None:
        self.assertEqual(plot.spread([10, 12, 50], 18, 100), [10, 28, 50])
        self.assertEqual(plot.spread([95, 90], 18, 100), [100, 82])
        self.assertEqual(plot.spread([], 18, 100), [])


if __name__ == "__main__":
    unittest.main()
