"""Versions and requirements as Cargo reads them, and the list that is judged by them."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from advisories import Crate, Known, built_crates, matches, version

LIST = Path(__file__).resolve().parents[1] / "advisories.toml"


class Versions(unittest.TestCase):
    def test_versions_are_in_their_order(self) -> None:
        order = ["0.9.9", "1.0.0-0", "1.0.0-alpha.1", "1.0.0-alpha.2", "1.0.0-alpha.10"]
        order += ["1.0.0-rc.1", "1.0.0", "1.0.1+build", "1.10.0", "2"]
        self.assertEqual(order, sorted(order, key=version))
        self.assertEqual(version("2"), version("2.0.0"))

    def test_requirements_mean_what_cargo_means(self) -> None:
        for requirement, met, unmet in (
            (">= 0.4.4", ["0.4.4", "0.4.20", "1.0.0"], ["0.4.3", "0.4.4-rc.1"]),
            ("^0.3.26", ["0.3.26", "0.3.27"], ["0.3.25", "0.4.0"]),
            ("^1.8.1", ["1.8.1", "1.54.1"], ["1.8.0", "2.0.0"]),
            ("0.13.10", ["0.13.10", "0.13.11"], ["0.13.9", "0.14.0"]),
            (">= 0.23, < 0.23.13", ["0.23.0", "0.23.12"], ["0.22.9", "0.23.13"]),
            ("<= 0.22", ["0.21.7", "0.22.4"], ["0.23.0"]),
            ("> 1.2", ["1.3.0"], ["1.2.9"]),
            ("=0.2.1", ["0.2.1"], ["0.2.0", "0.2.2"]),
            ("~1.2.3", ["1.2.3", "1.2.9"], ["1.2.2", "1.3.0"]),
        ):
            for text in met:
                self.assertTrue(matches(requirement, text), f"{text} {requirement}")
            for text in unmet:
                self.assertFalse(matches(requirement, text), f"{text} {requirement}")

    def test_what_is_neither_is_an_error(self) -> None:
        for requirement, text in ((">= x", "1.0.0"), (">= 1.0", "one")):
            with self.assertRaises(ValueError):
                matches(requirement, text)


class Advisories(unittest.TestCase):
    known = Known.read(LIST)

    def test_every_entry_can_be_judged_and_names_a_crate_that_was_looked_up(self) -> None:
        for entry in self.known.advisories:
            self.known.affecting([Crate(entry["crate"], "1.0.0")])
            self.assertIn(entry["crate"], self.known.crates)
            self.assertRegex(entry["id"], r"^RUSTSEC-\d{4}-\d{4}$")

    def test_old_versions_are_found_and_new_ones_are_not(self) -> None:
        found = self.known.affecting([Crate("h2", "0.4.3"), Crate("rustls", "0.23.44")])
        self.assertEqual(
            [line.split(":")[0] for line in found],
            ["RUSTSEC-2024-0332", "RUSTSEC-2026-0258", "RUSTSEC-2026-0285"],
        )
        self.assertEqual(self.known.affecting([Crate("h2", "0.4.16")]), [])

    def test_a_crate_that_nobody_looked_up_is_named(self) -> None:
        crates = [Crate("h2", "0.4.16"), Crate("left-pad", "1.0.0")]
        self.assertEqual(self.known.unknown(crates), ["left-pad"])

    def test_only_crates_of_others_in_the_graph_count(self) -> None:
        metadata = """{"resolve": {"nodes": [{"id": "a"}, {"id": "ours"}]}, "packages": [
            {"id": "a", "name": "h2", "version": "0.4.3", "source": "registry"},
            {"id": "b", "name": "winapi", "version": "0.3.9", "source": "registry"},
            {"id": "ours", "name": "server", "version": "0.1.0", "source": null}]}"""
        self.assertEqual(built_crates(metadata), {Crate("h2", "0.4.3")})
