"""What the long run makes of samples and reports, without a server."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import run
import soak
import soak_page
from client import Answer
from env import Env
from promise import CannotRun
from soak_client import OF_TIME, Books, meaning
from soak_play import OUTCOMES, Book, Play, faults, unstable
from soak_watch import (
    GROWTH_MARK,
    MIB,
    SAMPLE_SECONDS,
    WARM_SECONDS,
    Check,
    Level,
    Point,
    Record,
    Sample,
    by_thirds,
    checks_of,
    growth,
    least_squares,
    parse_status,
    theil_sen,
)

STATUS = "Name:\tvedette-server\nVmRSS:\t  156913 kB\nRssAnon:\t  124132 kB\nThreads:\t6\n"

# As many as a run of 20 minutes takes.
TIMES = [SAMPLE_SECONDS * n for n in range(240)]


def flat(extra: Any = lambda _at: 0.0) -> list[Point]:
    """A server of 160 MiB that grew to it, with a noise of 1 MiB, spikes of up to 20 MiB in a fifth of
    the samples, and whatever is added, in MiB."""
    luck = random.Random(7)
    points = []
    for at in TIMES:
        spike = luck.uniform(5, 20) if luck.random() < 0.2 else 0.0
        warm = min(1.0, at / WARM_SECONDS) * 20
        points.append((at, MIB * (140 + warm + luck.uniform(-0.5, 0.5) + spike + extra(at))))
    return points


def sample(at: float, rss: float, **changes: Any) -> Sample:
    """A sample with nothing special about it."""
    fields: dict[str, Any] = {
        "rss_bytes": int(rss),
        "anon_bytes": int(rss) - 30 * MIB,
        "fds": 30,
        "threads": 6,
        "cameras": 12,
        "cpu_seconds": at * 0.5,
        "received": int(at * 40),
        "outcomes": {"ok": int(at * 30), "bad_image": int(at * 10), "expired": 0},
    }
    return Sample(at=at, **(fields | changes))


def record(points: list[Point] | None = None, **changes: Any) -> Record:
    """A run in which everything held."""
    made = Record(samples=[sample(at, rss) for at, rss in points or flat()])
    made.begin, made.end = Level(11, 6), Level(11, 6)
    made.received = made.outcomes = 48_000
    made.alive = True
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def report(**changes: Any) -> dict[str, Any]:
    """A run of client-sim in which everything held."""
    tally = dict.fromkeys([*OUTCOMES, "lost"], 0) | {"sent": 20, "answered": 20, "ok": 20}
    made: dict[str, Any] = {
        **tally,
        "warmup": dict(tally),
        "protocol_errors": 0,
        "per_camera": [{"first_protocol_error": None}],
        "stream_ends": [],
        "heartbeats": None,
        "rogues": [],
    }
    return made | changes


def book() -> Book:
    """What clients say when everything held."""
    made = Book(killed=3, cases={"a.jpg": Counter(OK=3, SUPERSEDED=1)})
    rogues = [{"behaviour": name, "sent": 9} for name in ("garbage", "never-reads", "flapping")]
    beats = {"sent": 5, "answered": 5, "taken_for_frames": 0}
    made.enter("scenario", report(rogues=rogues, heartbeats=beats))
    told = {"sent": 9, "answered": 9, "unary": 2, "unanswered": 0, "cases": {}, "problems": []}
    made.enter_misuse(told)
    return made


def failed(checks: list[Check]) -> list[str]:
    """The names of what does not hold."""
    return [check.name for check in checks if not check.held]


class Slopes(unittest.TestCase):
    def test_all_three_find_a_line(self) -> None:
        line = [(float(x), 3.0 * x + 7) for x in range(30)]
        for slope in (theil_sen, by_thirds, least_squares):
            self.assertAlmostEqual(slope(line), 3.0)

    def test_memory_that_stays_holds_whatever_spikes_lie_on_it(self) -> None:
        found = growth(flat())
        assert found is not None
        self.assertTrue(found.held, found)
        self.assertLess(abs(found.judged), 0.5)

    def test_growth_of_the_warm_up_is_not_judged(self) -> None:
        found = growth(flat(lambda at: 50 * min(1.0, at / WARM_SECONDS)))
        assert found is not None
        self.assertTrue(found.held, found)

    def test_a_slow_leak_does_not_hold(self) -> None:
        for leak in (1.6, 3.0, 100.0):
            found = growth(flat(lambda at, leak=leak: leak * at / 600))
            assert found is not None
            self.assertFalse(found.held, found)
            self.assertAlmostEqual(found.judged, leak, delta=0.5)

    def test_a_leak_in_one_step_does_not_hold(self) -> None:
        for when in (500, 660, 800):
            found = growth(flat(lambda at, when=when: 3.0 if at > when else 0.0))
            assert found is not None
            self.assertFalse(found.held, found)

    def test_spikes_at_an_end_tilt_least_squares_only(self) -> None:
        found = growth(flat(lambda at: 60.0 if at > 1150 else 0.0))
        assert found is not None
        self.assertGreater(found.least_squares, GROWTH_MARK)
        self.assertTrue(found.held, found)

    def test_memory_that_shrinks_holds(self) -> None:
        found = growth(flat(lambda at: -5.0 * at / 600))
        assert found is not None
        self.assertTrue(found.held, found)

    def test_too_few_samples_say_nothing(self) -> None:
        self.assertIsNone(growth([point for point in flat() if point[0] < WARM_SECONDS + 25]))


class Checks(unittest.TestCase):
    def test_a_server_that_ends_as_it_began_holds(self) -> None:
        self.assertEqual(failed(checks_of(record())), [])

    def test_each_thing_fails_by_itself(self) -> None:
        leak = flat(lambda at: 4.0 * at / 600)
        for name, changes in (
            ("open files", {"end": Level(12, 6)}),
            ("threads", {"end": Level(11, 7)}),
            ("accounts", {"outcomes": 47_999}),
            ("cameras", {"cameras_left": 1}),
            ("process", {"alive": False}),
            ("process", {"panics": 1}),
        ):
            self.assertEqual(failed(checks_of(record(**changes))), [name])
        self.assertEqual(failed(checks_of(record(leak))), ["memory"])

    def test_what_was_not_seen_does_not_hold(self) -> None:
        self.assertEqual(
            failed(checks_of(Record())), ["memory", "open files", "threads", "accounts", "process"]
        )

    def test_less_than_at_the_start_is_fine(self) -> None:
        self.assertEqual(failed(checks_of(record(end=Level(10, 5)))), [])

    def test_sizes_of_the_kernel_are_bytes(self) -> None:
        found = parse_status(STATUS)
        self.assertEqual(found, {"VmRSS": 156913 << 10, "RssAnon": 124132 << 10, "Threads": 6})


class Clients(unittest.TestCase):
    def test_everybody_who_was_answered_holds(self) -> None:
        self.assertEqual(failed(soak.checks_of_clients(book())), [])

    def test_a_lost_frame_fails_wherever_it_was_lost(self) -> None:
        self.assertEqual(faults(report()), [])
        self.assertEqual(faults(report(lost=2)), ["2 frames lost"])
        lost = report()
        lost["warmup"]["lost"] = 1
        self.assertEqual(faults(lost), ["1 frames lost"])
        made = book()
        made.enter("visit", lost)
        self.assertEqual(failed(soak.checks_of_clients(made)), ["answers", "problems"])
        made = book()
        made.misuse["unanswered"] += 1
        self.assertEqual(failed(soak.checks_of_clients(made)), ["answers"])

    def test_what_else_a_camera_may_complain_of(self) -> None:
        ends = [{"streams": 2, "reason": "UNAVAILABLE: gone"}]
        cameras = [{"first_protocol_error": None}, {"first_protocol_error": "second answer"}]
        beats = {"sent": 3, "answered": 0, "taken_for_frames": 3}
        for changes, words in (
            ({"internal": 1}, "1 frames internal"),
            ({"stream_ends": ends}, "2 streams ended early: UNAVAILABLE: gone"),
            ({"protocol_errors": 1, "per_camera": cameras}, "protocol error: second answer"),
            ({"heartbeats": beats}, "3 heartbeats taken for frames"),
        ):
            self.assertEqual(faults(report(**changes)), [words])

    def test_a_kind_of_client_that_never_came_fails(self) -> None:
        for name in ("garbage", "never-reads", "flapping"):
            made = book()
            del made.rogues[name]
            self.assertEqual(failed(soak.checks_of_clients(made)), ["clients"])
        for change in ({"killed": 0}, {"runs": 0}, {"heartbeats": Counter()}):
            made = book()
            for name, value in change.items():
                setattr(made, name, value)
            self.assertEqual(failed(soak.checks_of_clients(made)), ["clients"])

    def test_the_same_bytes_have_one_answer(self) -> None:
        steady = {"a": Counter({"OK": 5, "EXPIRED": 2, "SUPERSEDED": 1, "OVERLOADED": 1})}
        self.assertEqual(unstable(steady, OF_TIME), [])
        self.assertEqual(
            unstable({"b": Counter({"OK": 5, "BAD_IMAGE TRUNCATED": 1})}, OF_TIME),
            ["b: BAD_IMAGE TRUNCATED, OK"],
        )
        self.assertEqual(unstable({"c": Counter({"INTERNAL": 5})}, OF_TIME), ["c: INTERNAL"])
        made = book()
        made.cases["b"] = Counter({"OK": 1, "UNSUPPORTED UNSUPPORTED": 1})
        self.assertEqual(failed(soak.checks_of_clients(made)), ["same answers", "problems"])


class Misuser(unittest.TestCase):
    def answer(self, frame: int, outcome: str, detail: str = "") -> Answer:
        """An answer of the server."""
        return Answer(frame_id=frame, outcome=outcome, detail=detail, at=0.0)

    def test_an_answer_is_its_outcome_and_its_stable_reason(self) -> None:
        self.assertEqual(meaning(self.answer(0, "OK")), "OK")
        self.assertEqual(meaning(self.answer(0, "EXPIRED", "late: by 3 ms")), "EXPIRED")
        found = meaning(self.answer(0, "BAD_IMAGE", "TRUNCATED: 5 of 9 rows"))
        self.assertEqual(found, "BAD_IMAGE TRUNCATED")

    def test_each_frame_is_answered_once(self) -> None:
        books = Books(open={0: "a", 1: "b"}, sent=2)
        books.take(self.answer(0, "OK"))
        books.take(self.answer(0, "OK"))
        self.assertEqual((books.answered, books.open), (1, {1: "b"}))
        self.assertEqual(books.problems, ["answer to frame 0, which awaits none"])
        told = json.loads(json.dumps(books.as_json()))
        self.assertEqual((told["unanswered"], told["cases"]), (1, {"a": {"OK": 1}}))


class Threads(unittest.TestCase):
    def test_a_client_that_breaks_is_a_problem_and_stops_nobody(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            env = Env(Path("/no/server"), Path("/no/client-sim"), work=Path(folder))
            play = Play(env, "127.0.0.1:1")
            turns = []

            def part(turn: int) -> None:
                turns.append(turn)
                if turn == 2:
                    play.leave()
                raise ValueError("broken")

            with mock.patch("soak_play.PAUSE_SECONDS", 0.0):
                play._repeat("part", part)
        self.assertEqual(turns, [0, 1, 2])
        self.assertEqual(play.book.problems, ["part: ValueError: broken"] * 3)

    def test_a_run_without_anything_to_judge_is_refused(self) -> None:
        with self.assertRaises(CannotRun):
            soak.Soak(Env(Path("a"), Path("b")), 2.5)

    def test_it_is_a_row_of_the_suite(self) -> None:
        row = next(entry for entry in run.load_rows() if entry.number == run.SOAK)
        self.assertFalse(row.quiet)
        self.assertIn("1 MiB per 10 min", row.mark)


class Page(unittest.TestCase):
    def whole(self, made: Record, clients: Book, interrupted: bool = False) -> dict[str, Any]:
        """A report as it is written."""
        checks = [*checks_of(made), *soak.checks_of_clients(clients)]
        facts = {"machine": "2 cores", "command": "python3 promises/soak.py"}
        return soak.as_report(made, clients, checks, facts, interrupted)

    def data(self, page: str) -> Any:
        """The report that lies in a page."""
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
        assert found is not None
        return json.loads(found[1])

    def test_it_holds_its_data_and_says_the_verdict(self) -> None:
        made = self.whole(record(), book())
        page = soak_page.render(made)
        self.assertEqual(self.data(page), json.loads(json.dumps(made)))
        self.assertIn('<div class="banner pass">', page)
        bad = soak_page.render(self.whole(record(end=Level(12, 6)), book()))
        self.assertIn('<div class="banner fail">', bad)
        self.assertIn("Does not hold: open files.", bad)
        self.assertIn(
            '<div class="banner invalid">', soak_page.render(self.whole(record(), book(), True))
        )

    def test_what_clients_said_cannot_end_the_page(self) -> None:
        clients = book()
        clients.problem("</script><script>alert(1)</script>")
        page = soak_page.render(self.whole(record(), clients))
        self.assertNotIn("<script>alert", page)
        self.assertEqual(self.data(page)["clients"]["problems"], clients.problems)

    def test_it_needs_nothing_from_elsewhere(self) -> None:
        page = soak_page.render(self.whole(record(), book()))
        self.assertEqual(re.findall(r'(?:src|href|url)[=(]"?(?!data:)[^#"\s]', page), [])
        self.assertIn("prefers-color-scheme: dark", page)

    def test_plots_are_whole_and_show_the_samples(self) -> None:
        made = self.whole(record(), book())
        page = soak_page.render(made)
        charts = [ET.fromstring(text) for text in re.findall(r'<svg class="chart.*?</svg>', page)]
        self.assertEqual(len(charts), 2 * len(soak_page.plots(made)))
        samples = made["samples"]
        for chart in (chart for chart in charts if chart.get("aria-label", "").startswith("Open")):
            line = next(path for path in chart.iter("path") if path.get("data-name"))
            shown = [float(value) for value in (line.get("data-y") or "").split()]
            self.assertEqual(shown, [sample["fds"] for sample in samples])
            self.check_drawn(chart, line, shown)

    def check_drawn(self, chart: ET.Element, line: ET.Element, shown: list[float]) -> None:
        """Holds places against values by the two outer lines of the grid."""
        texts = [
            (float(text.get("y") or 0) - 4, float(text.text or "0"))
            for text in chart.iter("text")
            if text.get("text-anchor") == "end" and text.text != "minutes"
        ]
        (y1, v1), (y2, v2) = texts[0], texts[-1]
        places = [tuple(map(float, at.split(","))) for at in (line.get("d") or "")[1:].split("L")]
        self.assertEqual(len(places), len(shown))
        for (_, y), value in zip(places, shown, strict=True):
            self.assertAlmostEqual(v1 + (y - y1) / (y2 - y1) * (v2 - v1), value, delta=0.1)
        self.assertTrue(all(a[0] < b[0] for a, b in itertools.pairwise(places)))

    def test_counters_become_rates(self) -> None:
        samples = [{"at": 0.0, "n": 0}, {"at": 5.0, "n": 50}, {"at": 7.0, "n": 50}]
        self.assertEqual(soak_page.rates(samples, lambda s: s["n"]), [0.0, 10.0, 0.0])

    def test_grids_are_round_and_hold_the_values(self) -> None:
        self.assertEqual(soak_page.ticks(0, 37, 4), [0, 10, 20, 30, 40])
        for low, high in ((0, 0), (0, 6), (158.6, 163.0), (0, 0.013), (1e6, 3e7)):
            found = soak_page.ticks(low, high, 4)
            self.assertLessEqual(found[0], low)
            self.assertGreaterEqual(found[-1], high)
            self.assertTrue(2 <= len(found) <= 8, found)

    def test_a_run_that_ended_at_once_has_a_page_too(self) -> None:
        for samples in ([], [sample(0.0, 160 * MIB)], [sample(0.0, MIB), sample(5.0, MIB)]):
            made = self.whole(Record(samples=samples), Book(), interrupted=True)
            self.assertIn("INTERRUPTED", soak_page.render(made))


if __name__ == "__main__":
    unittest.main()
