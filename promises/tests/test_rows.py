"""The arithmetic of rows, and what they read from tools."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import floods
import messages
import transport
from server import logged_at

NGHTTP = """[  0.002] send SETTINGS frame <length=12, flags=0x00, stream_id=0>
          [SETTINGS_MAX_CONCURRENT_STREAMS(0x03):100]
[  0.002] recv SETTINGS frame <length=24, flags=0x00, stream_id=0>
          (niv=4)
          [SETTINGS_MAX_CONCURRENT_STREAMS(0x03):7]
[  0.002] send SETTINGS frame <length=0, flags=0x01, stream_id=0>
"""

LOG = """{"timestamp":"2026-11-30T22:26:16.250000Z","level":"DEBUG","message":"stream opened"}
{"timestamp":"2026-11-30T22:26:17.750000Z","level":"DEBUG","message":"stream opened"}
{"timestamp":"2026-11-30T22:26:18.000000Z","level":"INFO","message":"stopped"}
not JSON: the last line of a server that was killed
"""


class Reading(unittest.TestCase):
    def test_the_cap_is_the_servers_and_not_the_tools_own(self) -> None:
        self.assertEqual(transport.advertised_streams(NGHTTP), "7")
        self.assertEqual(
            transport.advertised_streams(NGHTTP.replace("x03):7", "x04):7")), "nothing"
        )

    def test_instants_of_one_message_come_out_of_a_log(self) -> None:
        first, second = logged_at(LOG, "stream opened")
        self.assertAlmostEqual(second - first, 1.5)
        self.assertEqual(logged_at(LOG, "no such message"), [])


class Arithmetic(unittest.TestCase):
    def test_bins_count_from_the_first_instant_and_show_gaps(self) -> None:
        self.assertEqual(transport.bins([10.0, 10.05, 10.31], 0.1), [2, 0, 0, 1])

    def test_the_worst_second_is_the_steepest_one(self) -> None:
        samples = [(0.0, 0.0), (0.5, 0.1), (1.0, 0.2), (1.5, 0.9), (2.0, 1.0), (3.0, 1.0)]
        self.assertAlmostEqual(transport.worst_second(samples), 0.8)
        self.assertEqual(transport.worst_second([]), 0.0)

    def test_damage_is_the_same_for_the_same_seed(self) -> None:
        whole = bytes(range(256)) * 8
        self.assertEqual(messages.damaged(5, whole), messages.damaged(5, whole))
        changed = sum(messages.damaged(seed, whole) != whole for seed in range(100))
        self.assertGreater(changed, 80)
        self.assertTrue(all(messages.damaged(seed, b"x") for seed in range(100)), "never empty")

    def test_neighbours_are_undisturbed_only_if_all_was_answered_in_time(self) -> None:
        good = {"sent": 9, "ok": 9, "max_ms": 99.9, "reconnects": {"count": 0}}
        self.assertTrue(floods.undisturbed(good))
        for change in ({"ok": 8}, {"max_ms": 100.0}, {"sent": 0, "ok": 0}):
            self.assertFalse(floods.undisturbed({**good, **change}), change)
        self.assertFalse(floods.undisturbed({**good, "reconnects": {"count": 1}}))


if __name__ == "__main__":
    unittest.main()
