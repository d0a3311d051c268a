"""The fleet's arithmetic, and that what is played are the examples that people copy."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fleet_page
from fleet_front import CONTROLS, EXAMPLES, FRONTS, PROXIES, Slot, rendered
from fleet_judge import Accounts, Beat, Book, back_after, cameras_on, farthest, settle
from fleet_play import Phase, Played
from promise import CannotRun

SLOTS = [Slot(f"s{number}", 41000 + number, 42000 + number) for number in range(1, 5)]


class Examples(unittest.TestCase):
    def test_every_server_and_the_proxy_move_to_the_ports_of_the_play(self) -> None:
        for front in (*FRONTS, *CONTROLS):
            if front.changes is None:
                continue
            text = (PROXIES / front.file).read_text(encoding="utf-8")
            made = rendered(text, front.changes(SLOTS, 43000, Path("/w"), 44000))
            self.assertIn("43000", made)
            for slot in SLOTS:
                self.assertRegex(made, rf"127\.0\.0\.1(:|, port_value: ){slot.port}\b", front.name)
            settings = "\n".join(line.partition("#")[0] for line in made.splitlines())
            self.assertNotRegex(settings, r"0\.0\.0\.0|:50051", front.name)

    def test_little_else_changes(self) -> None:
        for front in FRONTS:
            if front.changes is None:
                continue
            text = (PROXIES / front.file).read_text(encoding="utf-8")
            made = rendered(text, front.changes(SLOTS, 43000, Path("/w"), 44000))
            pairs = zip(text.splitlines(), made.splitlines(), strict=True)
            changed = [old for old, new in pairs if old != new]
            self.assertEqual(len(changed), {"envoy.yaml": 6, "haproxy.cfg": 5, "nginx.conf": 12}[front.file])

    def test_an_example_that_has_changed_its_shape_is_an_error(self) -> None:
        with self.assertRaisesRegex(CannotRun, "found 0 times, not 1"):
            rendered("server a", [("server b", "server c", 1)])
        with self.assertRaisesRegex(CannotRun, "found 2 times, not 1"):
            rendered("a a", [("a", "b", 1)])
        with self.assertRaisesRegex(CannotRun, re.escape(EXAMPLES[3])):
            rendered(f"server {EXAMPLES[3]}", [])
        self.assertEqual(rendered(f"# {EXAMPLES[3]}", []), f"# {EXAMPLES[3]}")


class Cameras(unittest.TestCase):
    def test_a_camera_is_where_its_latest_stream_was_opened(self) -> None:
        opened = [(1.0, "a", "x"), (2.0, "b", "x"), (1.5, "a", "y"), (9.0, "a", "z")]
        self.assertEqual(cameras_on("a", opened, 5.0), ["y"])
        self.assertEqual(cameras_on("b", opened, 5.0), ["x"])
        self.assertEqual(cameras_on("a", opened, 1.6), ["x", "y"])
        self.assertEqual(cameras_on("a", opened, 9.0), ["y", "z"])

    def test_cameras_begin_spread_over_a_period(self) -> None:
        report = {"cameras": 4, "fps": 2.0, "started_unix_ms": 100_000}
        self.assertEqual(Beat.of(report, 2), Beat(100.25, 2.0))


class Back(unittest.TestCase):
    """Two frames a second, due at .25 and .75; slowest OK answer of each second 10 ms."""

    beat = Beat(100.25, 2.0)

    def back(self, missed: list[int], at: float, slowest: list[float | None] | None = None) -> float | None:
        camera = {"bins_missed": missed, "bins_max_ms": slowest or [10.0 for _ in missed]}
        return back_after(camera, self.beat, 100.0, at)

    def test_the_next_frame_when_none_was_missed(self) -> None:
        self.assertAlmostEqual(self.back([0, 0], 100.3) or 0, 0.45 + 0.01)
        self.assertAlmostEqual(self.back([0, 0], 100.1) or 0, 0.15 + 0.01)

    def test_missed_ones_are_taken_to_be_the_first_after_the_event(self) -> None:
        self.assertAlmostEqual(self.back([1, 0], 100.1) or 0, 0.65 + 0.01)
        # Only one frame was due after the event, and it may be the one that was missed.
        self.assertAlmostEqual(self.back([1, 0], 100.5) or 0, 0.75 + 0.01)
        self.assertAlmostEqual(self.back([1, 2, 0], 100.5) or 0, 1.75 + 0.01)

    def test_a_late_answer_counts_from_when_it_came(self) -> None:
        self.assertAlmostEqual(self.back([0, 0], 100.3, [700.0, 10.0]) or 0, 0.45 + 0.7)

    def test_a_camera_that_never_comes_back(self) -> None:
        self.assertIsNone(self.back([1, 2, 2], 100.5, [10.0, None, None]))

    def test_the_end_of_a_second_belongs_to_the_next_one(self) -> None:
        self.assertAlmostEqual(self.back([2, 0], 100.9) or 0, 0.35 + 0.01)


class Even(unittest.TestCase):
    def test_how_far_from_the_mean(self) -> None:
        self.assertEqual(farthest({"a": 4, "b": 4, "c": 4}), 0)
        self.assertAlmostEqual(farthest({"a": 5, "b": 4, "c": 3}), 0.25)
        self.assertAlmostEqual(farthest({"a": 12, "b": 0}), 1)

    def test_nothing_is_not_even(self) -> None:
        self.assertEqual(farthest({"a": 0, "b": 0}), float("inf"))
        self.assertEqual(farthest({}), float("inf"))


def report(**changes: Any) -> dict[str, Any]:
    """Twenty frames: 12 answered by servers that lived, 6 by the killed one, 1 lost with it, 1 not taken."""
    counts = {"sent": 19, "answered": 17, "lost": 1, "unaccepted": 1}
    none = dict.fromkeys(counts, 0)
    camera = {"camera_id": "x", **counts, "warmup": none, "protocol_errors": 0, "end": "complete"}
    warmup = {**none, "sent": 1, "answered": 1}
    return {**counts, "warmup": warmup, "per_camera": [{**camera, **changes}]}


class Books(unittest.TestCase):
    books = {"a": Book(8, 8), "b (drained)": Book(4, 4)}

    def wrong(self, found: dict[str, Any], **changes: Any) -> tuple[str, ...]:
        given = {"books": self.books, "killed": Book(5, 5), "struck": ["x", "y"], **changes}
        return settle(found, **given).wrong

    def test_books_that_agree(self) -> None:
        found = settle(report(), self.books, Book(5, 5), ["x", "y"])
        self.assertEqual(found.wrong, ())
        self.assertEqual((found.sent, found.answered, found.killed), (20, 18, 6))

    def test_a_frame_that_a_server_took_and_nobody_has(self) -> None:
        self.assertIn("received 8 frames and accounts for 7", self.wrong(report(), books={"a": Book(8, 7)})[0])
        more = {**self.books, "a": Book(10, 10)}
        self.assertIn("cameras have 18 answers", self.wrong(report(), books=more)[0])
        gone = {**self.books, "a": Book(8, 8, 1)}
        self.assertIn("for cameras that had left", self.wrong(report(), books=gone)[0])

    def test_answers_from_nowhere(self) -> None:
        self.assertIn("cameras have 18 answers", self.wrong(report(), killed=Book(2, 2))[0])
        self.assertEqual(self.wrong(report(), killed=Book(4, 4)), (), "one more of each struck camera")

    def test_a_frame_lost_elsewhere_than_with_the_killed(self) -> None:
        self.assertIn("x lost 1 frames", self.wrong(report(), struck=["y", "z"])[0])
        self.assertIn("x lost 3 frames", self.wrong(report(lost=3))[0])

    def test_errors_and_ends_are_told(self) -> None:
        strange = self.wrong(report(protocol_errors=1, first_protocol_error="second answer"))
        self.assertEqual(strange, ("x: second answer",))
        self.assertEqual(self.wrong(report(end="INTERNAL: 503")), ("x ended: INTERNAL: 503",))
        self.assertEqual(self.wrong(report(end="UNAVAILABLE: server shut down")), ())


class Phases(unittest.TestCase):
    even = {"a": 100, "b": 100}

    def test_marks_of_a_kill(self) -> None:
        good = Phase("kill", 0.0, "s1", ["x", "y"], [0.2, 2.9], self.even)
        self.assertEqual(good.wrong(), [])
        late = Phase("kill", 0.0, "s1", ["x", "y"], [0.2, 3.1], self.even)
        self.assertIn("back after", late.wrong()[0])
        away = Phase("drain", 0.0, "s1", ["x", "y"], [0.2, None], self.even)
        self.assertIn("back after", away.wrong()[0])
        nobody = Phase("drain", 0.0, "s1", [], [], self.even)
        self.assertIn("nothing was tested", nobody.wrong()[0])

    def test_marks_of_evenness(self) -> None:
        self.assertEqual(Phase("add", 0.0, answered={"a": 119, "b": 81}).wrong(), [])
        self.assertIn("21% off", Phase("add", 0.0, answered={"a": 121, "b": 79}).wrong()[0])


class Page(unittest.TestCase):
    def test_every_play_has_its_row(self) -> None:
        even = {"a": 10, "b": 10}
        phases = [
            Phase("start", 0.0, answered=even),
            Phase("kill", 0.0, "s1", ["x"], [0.25], even),
            Phase("drain", 0.0, "s2", ["x", "y"], [0.5, 0.1], even),
        ]
        accounts = Accounts(100, 98, 1, 1, 90, 90, 8, 9, ())
        good = Played("Envoy", 0.5, phases, accounts, 0, 100, 98, 7, [])
        bad = Played("nginx", 0.5, phases, accounts, 0, 100, 98, 7, ["a | b"])
        lines = fleet_page.table([[good], [bad]]).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("| 1: 0.25 / 0.25 | 2: 0.50 / 0.50 | 0.0 0.0 0.0 |", lines[2])
        self.assertTrue(lines[2].endswith("| holds |"))
        self.assertTrue(lines[3].endswith("| FAIL: a \\| b |"))
        self.assertEqual({line.replace("\\|", "").count("|") for line in lines}, {lines[0].count("|")})

    def test_only_the_measured_part_is_replaced(self) -> None:
        page = f"a\n{fleet_page.BEGIN}\n\nold\n\n{fleet_page.END}\nb\n"
        self.assertEqual(
            fleet_page.between_markers(page, "new"), f"a\n{fleet_page.BEGIN}\n\nnew\n\n{fleet_page.END}\nb\n"
        )
        with self.assertRaises(ValueError):
            fleet_page.between_markers("no markers", "new")

    def test_the_page_has_its_markers(self) -> None:
        page = (PROXIES.parents[1] / "docs" / "fleet.md").read_text(encoding="utf-8")
        self.assertIn("| verdict |", fleet_page.between_markers(page, fleet_page.HEAD))


if __name__ == "__main__":
    unittest.main()
