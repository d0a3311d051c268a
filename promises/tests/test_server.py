"""What is read from a server, and how its command is put together."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from env import wait_until, wrap
from server import accounts, parse_metrics

TEXT = """# HELP vedette_frames_total Frames by what became of them
# TYPE vedette_frames_total counter
vedette_frames_total{outcome="ok"} 7
vedette_frames_total{outcome="bad_image"} 2

vedette_frames_received_total 9
process_cpu_seconds_total 0.25
"""


class Metrics(unittest.TestCase):
    def test_series_keep_their_labels(self) -> None:
        found = parse_metrics(TEXT)
        self.assertEqual(found['vedette_frames_total{outcome="ok"}'], 7)
        self.assertEqual(found["process_cpu_seconds_total"], 0.25)
        self.assertEqual(len(found), 4)

    def test_a_label_may_hold_blanks(self) -> None:
        self.assertEqual(parse_metrics('a{b="c d"} 1e3\n'), {'a{b="c d"}': 1000})

    def test_accounts_are_received_and_the_sum_of_outcomes(self) -> None:
        self.assertEqual(accounts(parse_metrics(TEXT)), (9, 9))
        self.assertEqual(accounts(parse_metrics(TEXT.replace("} 7", "} 6"))), (9, 8))


class Wrappers(unittest.TestCase):
    def test_a_plain_command_stays_itself(self) -> None:
        self.assertEqual(wrap(["a", "b"], None, None, None), ["a", "b"])

    def test_memory_limit_around_namespace_around_account(self) -> None:
        netns = SimpleNamespace(name="n")
        cgroup = SimpleNamespace(procs=Path("/c/cgroup.procs"))
        found = wrap(["a"], netns, cgroup, "nobody")  # type: ignore[arg-type]
        self.assertEqual(found[:2], ["sh", "-c"])
        self.assertEqual(found[3:8], ["/c/cgroup.procs", "ip", "netns", "exec", "n"])
        self.assertEqual(
            found[8:], ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "a"]
        )

    def test_waiting_ends_with_the_condition_or_the_time(self) -> None:
        left = iter([False, True])
        self.assertLess(wait_until(lambda: next(left), 5), 5)
        with self.assertRaises(TimeoutError):
            wait_until(lambda: False, 0.1)


if __name__ == "__main__":
    unittest.main()
