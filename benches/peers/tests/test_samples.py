"""What follows from several runs."""

from __future__ import annotations

import math
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from samples import (
    INVALID,
    Sample,
    Spec,
    Store,
    bracket,
    collapsed,
    decided,
    holds,
    median,
    next_count,
)


def sample(
    max_ms: float | None, unanswered: int = 0, verdict: str = "PASS", run: int = 0
) -> Sample:
    """A run with this slowest answer."""
    spec = Spec("ours", "cpu", "ramp", 30, 4.0, run)
    return Sample(spec, verdict, 1200, unanswered, 10.0, 5.0, max_ms, 5.2, 20.0)


class Runs(unittest.TestCase):
    """Median and verdict."""

    def test_the_median_of_nothing_and_of_failures_is_infinite(self) -> None:
        self.assertEqual(median([]), math.inf)
        self.assertEqual(median([5.0, None, None]), math.inf)
        self.assertEqual(median([5.0, 7.0, None]), 7.0)
        self.assertEqual(median([5.0, 7.0]), 7.0)

    def test_a_count_holds_when_most_runs_answer_all_in_time(self) -> None:
        self.assertTrue(holds([sample(60), sample(99.9), sample(400)]))
        self.assertFalse(holds([sample(60), sample(100), sample(400)]))
        self.assertFalse(holds([sample(60), sample(60, unanswered=1), sample(60, unanswered=1)]))
        self.assertFalse(holds([sample(60, verdict=INVALID)]))
        self.assertFalse(holds([]))

    def test_two_runs_that_agree_decide_three(self) -> None:
        self.assertFalse(decided([sample(60)], 3))
        self.assertTrue(decided([sample(60), sample(60)], 3))
        self.assertFalse(decided([sample(60), sample(160)], 3))
        self.assertTrue(decided([sample(160), sample(160)], 3))
        # Of two, one failure is enough: the median is the slower one.
        self.assertTrue(decided([sample(160)], 2))
        self.assertFalse(decided([sample(60)], 2))


class Counts(unittest.TestCase):
    """The search for the largest count."""

    def test_it_halves_the_gap_until_it_is_closed(self) -> None:
        self.assertEqual(next_count({20: True, 25: False}), 22)
        self.assertEqual(next_count({20: True, 22: True, 25: False}), 23)
        self.assertIsNone(next_count({20: True, 24: True, 25: False}))
        self.assertIsNone(next_count({1: True, 40: True}))
        self.assertIsNone(next_count({1: False}))
        self.assertEqual(next_count({4: False}), 2)

    def test_a_count_that_holds_above_one_that_does_not_is_luck(self) -> None:
        self.assertEqual(bracket({10: True, 15: False, 20: True}), (10, 15))

    def test_far_beyond_the_collapse_nothing_is_tried(self) -> None:
        worst = {10: 90.0, 15: 1500.0, 20: 3000.0}
        self.assertFalse(collapsed(worst, 20))
        self.assertTrue(collapsed(worst, 25))
        self.assertFalse(collapsed({15: 1500.0}, 20))
        self.assertTrue(collapsed({15: math.inf, 20: math.inf}, 25))


class Kept(unittest.TestCase):
    """The file of samples."""

    def test_an_interrupted_file_is_read_up_to_where_it_is_sound(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "new" / "samples.jsonl"
            store = Store(path, keep=False)
            store.add(sample(60, run=0))
            store.add(sample(None, run=1))
            with path.open("a", encoding="utf-8") as file:
                file.write('{"spec": {"server": "ou')
            again = Store(path, keep=True)
            self.assertEqual(again.samples, store.samples)
            self.assertEqual(again.counts("ours", "cpu", "ramp"), [30])
            self.assertEqual(again.worst("ours", "cpu", "ramp"), {30: math.inf})
            self.assertEqual(Store(path, keep=False).samples, {})


if __name__ == "__main__":
    unittest.main()
