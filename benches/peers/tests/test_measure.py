"""Servers and simulators that misbehave: each costs one run, never the bench."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import build
import contest
import measure
from samples import INVALID, Spec

SPEC = Spec("peer", "cpu", "ramp", 3, 1.0, 0)
GOOD = """{"sent": 30, "ok": 29, "not_sent": 0, "verdict": "PASS", "mean_ms": 6.0, "min_ms": 5.0,
"max_ms": 9.0, "warmup": {"ok": 10}}"""
LISTENING = "echo listening on 127.0.0.1:1; exec sleep 60"


class Misbehaving(unittest.TestCase):
    """Shell scripts in the places of server and simulator."""

    def setUp(self) -> None:
        """A folder for scripts and logs."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for patch in (
            mock.patch.object(contest, "OUT", self.folder),
            mock.patch.object(measure, "START_SECONDS", 0.4),
            mock.patch.object(measure, "STOP_SECONDS", 0.2),
            mock.patch.object(measure, "SIMULATOR_SECONDS", -2.5),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def server(self, script: str) -> contest.Server:
        """A server that is this script."""
        return contest.Server("peer", "Peer", "#000000", lambda _port: ["sh", "-c", script])

    def simulator(self, script: str) -> None:
        """A simulator that is this script; `$out` is where its report belongs."""
        path = self.folder / "simulator"
        find = 'while [ "$1" != --json ]; do shift; done; out=$2\n'
        path.write_text(f"#!/bin/sh\n{find}{script}\n", encoding="utf-8")
        path.chmod(0o755)
        patch = mock.patch.object(measure, "SIMULATOR", path)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_run(self) -> None:
        self.simulator(f"echo '{GOOD}' >$out")
        sample = measure.measure(self.server(LISTENING), SPEC)
        self.assertEqual((sample.error, sample.sent, sample.unanswered), ("", 30, 1))
        self.assertEqual((sample.max_ms, sample.verdict), (9.0, "PASS"))
        self.assertGreater(sample.memory_mib, 0.0)

    def test_a_server_that_ends_or_stays_silent(self) -> None:
        sample = measure.measure(self.server("echo no port >&2; exit 1"), SPEC)
        self.assertEqual(sample.error, "peer: ended at once: no port")
        self.assertEqual((sample.unanswered, sample.max_ms), (30, None))
        sample = measure.measure(self.server("exec sleep 60"), SPEC)
        self.assertIn("did not listen within 0.4 s", sample.error)

    def test_a_simulator_that_fails_lies_or_hangs(self) -> None:
        for script, words in (
            ("echo cannot reach it >&2; exit 2", "cannot reach it"),
            ("exit 2", "the simulator ended with 2"),
            ("echo '{' >$out", "is not usable"),
            ("echo '[]' >$out", "is not usable"),
            ("echo '{\"sent\": 3}' >$out", "is not usable"),
            ("exec sleep 60", "did not end within 0.5 s"),
        ):
            with self.subTest(script=script):
                self.simulator(script)
                sample = measure.measure(self.server(LISTENING), SPEC)
                self.assertIn(words, sample.error)

    def test_a_simulator_without_breath_is_tried_three_times(self) -> None:
        self.simulator(f"echo x >>{self.folder}/tries; echo '{GOOD}' | sed s/PASS/INVALID/ >$out")
        sample = measure.measure(self.server(LISTENING), SPEC)
        self.assertEqual((sample.verdict, sample.invalid), (INVALID, 2))
        self.assertEqual(len((self.folder / "tries").read_text().splitlines()), 3)

    def test_a_server_that_will_not_stop_is_ended_with_its_children(self) -> None:
        pids = self.folder / "pids"
        stubborn = f"trap '' TERM; sleep 60 & echo $! >{pids}; echo listening on x; wait; sleep 60"
        began = time.monotonic()
        with measure.running(self.server(stubborn), "cpu", 1):
            child = int(pids.read_text())
        self.assertLess(time.monotonic() - began, 10.0)
        deadline = time.monotonic() + 5
        while alive(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse(alive(child))


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be collected does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


class Figures(unittest.TestCase):
    """What is read from the system."""

    def test_processes_are_found_by_session(self) -> None:
        stat = "7 (a) b (c)) S 1 7 42 0 -1 0 0 0 0 0 120 30 0 0 20 0 1 0"
        self.assertEqual(measure.parse_stat(stat), (42, 150))
        self.assertEqual(measure.parse_peak_kib("Name:\tx\nVmHWM:\t  2048 kB\n"), 2048)
        self.assertEqual(measure.parse_peak_kib("Name:\tzombie\n"), 0)
        self.assertGreater(measure.usage(os.getsid(0)).peak_mib, 0.0)

    def test_missing_packages_are_named(self) -> None:
        with mock.patch("shutil.which", return_value=None):
            self.assertIn("protobuf-compiler-grpc", build.missing_packages())
            with self.assertRaisesRegex(build.CannotRun, "apt-get install -y g"):
                build.check_packages()


if __name__ == "__main__":
    unittest.main()
