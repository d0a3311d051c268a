"""The order of the runs, with servers that are arithmetic."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import Campaign, Plan, Unfinished
from contest import CPU, OURS, REAL, SAME_WORK, WALL, Server
from samples import Sample, Spec, Store

# Cameras that each serves; beyond, its slowest answer is ten seconds.
FITS = {"sync_python": 7, OURS: 33, "async_cpp": 50}


def measured(server: Server, spec: Spec) -> Sample:
    """What a run gives."""
    late = spec.cameras > FITS[server.key]
    slowest = 10_000.0 if late else spec.cameras * 2.0
    return Sample(spec, "PASS", 100, 5 if late else 0, 6.0, 5.0, slowest, 5.1, 20.0)


def plan(**changes: object) -> Plan:
    """A small one."""
    settings: dict[str, object] = {
        "clocks": [CPU],
        "servers": list(FITS),
        "runs": 3,
        "table_seconds": 10.0,
        "sweep_seconds": 4.0,
        "counts": {CPU: [1, 10, 20, 40], WALL: [20], REAL: [2]},
        "phase": "ramp",
        "search": True,
        "minutes": 1e3,
    }
    return Plan(**{**settings, **changes})  # type: ignore[arg-type]


class Order(unittest.TestCase):
    """A whole campaign."""

    def setUp(self) -> None:
        """An empty file."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "samples.jsonl"
        self.specs: list[Spec] = []
        self.time = 0.0

    def run_plan(self, chosen: Plan, *, keep: bool = False) -> Store:
        """Does all that is missing."""

        def measure(server: Server, spec: Spec) -> Sample:
            self.specs.append(spec)
            self.time += spec.seconds
            return measured(server, spec)

        store = Store(self.path, keep=keep)
        Campaign(chosen, store, measure, lambda _line: None, lambda: self.time).run()
        return store

    def largest(self, store: Store, key: str) -> int:
        """The largest count that was found to hold."""
        held = store.held(key, CPU, "ramp")
        return max((count for count, held in held.items() if held), default=0)

    def test_the_largest_count_is_found_to_the_camera(self) -> None:
        store = self.run_plan(plan())
        self.assertEqual(self.largest(store, "sync_python"), 7)
        self.assertEqual(self.largest(store, OURS), 33)
        self.assertEqual(self.largest(store, "async_cpp"), 40)

    def test_servers_take_turns_within_a_run(self) -> None:
        self.run_plan(plan())
        first = [(spec.server, spec.run) for spec in self.specs[:6]]
        servers = ["sync_python", "async_cpp", OURS]
        self.assertEqual(first, [(key, run) for run in range(2) for key in servers])

    def test_hopeless_counts_are_left_out_but_the_tables_is_not(self) -> None:
        store = self.run_plan(plan())
        counts = store.counts("sync_python", CPU, "ramp")
        self.assertIn(30, counts)
        self.assertNotIn(40, counts)

    def test_it_stops_in_time_and_goes_on_later(self) -> None:
        with self.assertRaisesRegex(Unfinished, "--resume"):
            self.run_plan(plan(minutes=2.0))
        self.assertLessEqual(self.time, 120.0)
        self.time = 0.0
        self.run_plan(plan(), keep=True)
        self.assertEqual(len(self.specs), len(set(self.specs)))

    def test_a_second_time_nothing_is_left(self) -> None:
        self.run_plan(plan())
        self.specs.clear()
        store = self.run_plan(plan(), keep=True)
        self.assertEqual(self.specs, [])
        work = Campaign(plan(search=False), store, measured, print)
        self.assertEqual(work.left(work.stages), [])

    def test_runs_that_all_fail_are_not_repeated_for_an_hour(self) -> None:
        def broken(server: Server, spec: Spec) -> Sample:
            self.specs.append(spec)
            return Sample(spec, "FAILED", 9, 9, None, None, None, None, 0.0, error="no such flag")

        store = Store(self.path, keep=False)
        with self.assertRaisesRegex(Unfinished, "no such flag"):
            Campaign(plan(), store, broken, lambda _line: None).run()
        self.assertEqual(len(self.specs), 6)

    def test_ours_has_no_loop_by_the_wall_clock(self) -> None:
        chosen = plan(clocks=[WALL], search=False)
        self.assertNotIn(OURS, [server.key for server in chosen.contestants(WALL)])
        real = plan(servers=[OURS, SAME_WORK]).contestants(REAL)
        self.assertEqual([server.key for server in real], [SAME_WORK, OURS])


if __name__ == "__main__":
    unittest.main()
