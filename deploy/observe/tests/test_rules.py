"""The rules, their tests, their faults and their runbook name the same alerts."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fire
import queries
import shorten
from faults import FAULTS

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = (PROMETHEUS / "rules" / "vedette.rules.yml").read_text(encoding="utf-8")
TESTS = "".join(
    path.read_text(encoding="utf-8") for path in sorted((PROMETHEUS / "tests").glob("*.test.yml"))
)
RUNBOOK = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")

ALERT = re.compile(r"^ {6}- alert: (\w+)\n(.*?)(?=^ {6}- |^ {2}- |\Z)", re.MULTILINE | re.DOTALL)
ALERTS = dict(ALERT.findall(RULES))
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
# What the runbook quotes: after these words, in backticks.
QUOTING = re.compile(
    r"^- (?:Log|Frames say|Clients are told): (.*?)(?=^- |\Z)", re.MULTILINE | re.DOTALL
)


def source() -> str:
    """The server's source, with literals that go on on the next line made whole."""
    files = sorted((ROOT / "server" / "src").rglob("*.rs"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\\\n\s*", "", text)


class Rules(unittest.TestCase):
    def test_there_are_alerts_of_two_severities(self) -> None:
        self.assertGreater(len(ALERTS), 20)
        for name, body in ALERTS.items():
            self.assertRegex(body, r"labels: \{severity: (critical|warning)\}", name)
            for annotation in ("summary", "description"):
                self.assertRegex(body, rf"\n {{10}}{annotation}: ", name)

    def test_each_alert_links_to_its_section_of_the_runbook(self) -> None:
        for name, body in ALERTS.items():
            self.assertIn(f"runbook_url: docs/alerts.md#{name.lower()}\n", body)
            self.assertIn(name, SECTIONS)
            for point in ("Look", "Threshold"):
                self.assertIn(point, SECTIONS[name], name)
        self.assertEqual(list(SECTIONS), [name for name in SECTIONS if name in ALERTS])

    def test_each_alert_is_tested_to_fire_and_not_to_fire(self) -> None:
        for name in ALERTS:
            self.assertRegex(
                TESTS, rf"alertname: {name}\n +exp_alerts:\n", f"{name} fires in no test"
            )
            silent = rf"alertname: {name}, exp_alerts: \[\]"
            self.assertRegex(TESTS, silent, f"{name} is silent in no test")

    def test_each_recorded_series_has_a_tested_value(self) -> None:
        recorded = re.findall(r"- record: (\S+)", RULES)
        self.assertGreater(len(recorded), 10)
        for name in recorded:
            self.assertRegex(TESTS, rf"- expr: '(round\()?{name}", name)

    def test_rules_ask_only_for_metrics_that_the_server_has(self) -> None:
        expressions = re.findall(
            r"expr: (?:>-\n)?(.*?)(?=\n {8}\w|\n {6}[-#]|\n\n|\Z)", RULES, re.DOTALL
        )
        self.assertGreater(len(expressions), len(ALERTS))
        asked = set().union(*(queries.metrics_of(expression) for expression in expressions))
        self.assertIn("vedette_frames_total", asked)
        self.assertEqual(asked - queries.known_metrics(), set())

    def test_each_alert_has_a_fault_that_makes_it_fire(self) -> None:
        by_faults = {alert for fault in FAULTS for alert, _ in fault.expects}
        self.assertEqual(
            set(ALERTS) - by_faults, {"VedetteCamerasLost"}, "played in healthy_then_lost"
        )
        self.assertEqual(fire.alert_names(), list(ALERTS))
        known = by_faults | {alert for fault in FAULTS for alert in fault.may}
        self.assertEqual(known - set(ALERTS), set(), "faults name alerts that are none")


class Shortened(unittest.TestCase):
    def test_only_durations_differ(self) -> None:
        short = shorten.shorten(RULES)
        self.assertNotEqual(short, RULES)
        self.assertEqual(shorten.without_durations(short), shorten.without_durations(RULES))

    def test_a_minute_becomes_a_second_within_bounds(self) -> None:
        for text, short in {
            "rate(x[10m])": "rate(x[10s])",
            "rate(x[1m])": "rate(x[5s])",
            "x[6h] offset 1h": "x[360s] offset 60s",
            "        for: 5m": "        for: 5s",
            "        for: 30s": "        for: 1s",
            "description: For 5 minutes": "description: For 5 minutes",
            "14 * 86400": "14 * 86400",
        }.items():
            self.assertEqual(shorten.shorten(text), short)


class Runbook(unittest.TestCase):
    def test_its_quotations_are_what_the_server_says(self) -> None:
        said, quotations = source(), []
        for block in QUOTING.findall(RUNBOOK):
            quotations += re.findall(r"`([^`]+)`", block)
        self.assertGreater(len(quotations), 20)
        for quotation in quotations:
            for piece in re.split(r"<[^>]*>", quotation):
                if piece.strip():
                    self.assertIn(piece, said, quotation)

    def test_it_names_only_metrics_that_exist(self) -> None:
        words = re.findall(r"\b(?:vedette|process)_[a-z_]+\b(?!:)", RUNBOOK)
        self.assertGreater(len(words), 20)
        self.assertEqual(set(words) - queries.known_metrics(), set())

    def test_its_links_into_pages_lead_somewhere(self) -> None:
        links = re.findall(r"\]\(([^)#]*)#?([^)]*)\)", RUNBOOK)
        for file, anchor in links:
            page = ROOT / "docs" / file if file else ROOT / "docs" / "alerts.md"
            self.assertTrue(page.exists(), file)
            if anchor:
                heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                self.assertIn(anchor, slugs, file)

    def test_the_table_goes_between_its_marks(self) -> None:
        self.assertIn(fire.BEGIN, RUNBOOK)
        self.assertLess(RUNBOOK.index(fire.BEGIN), RUNBOOK.index(fire.END))
        result = fire.Result("a", "something breaks", fired={"VedetteDown": 3.5})
        self.assertIn("| something breaks | `VedetteDown` | 3.5 |", fire.markdown([result]))


class Judging(unittest.TestCase):
    def test_an_alert_without_a_fault_is_found(self) -> None:
        fired = {name: 1.0 for name in ALERTS if name != "VedettePanics"}
        self.assertEqual(fire.never_fired([fire.Result("a", "", fired=fired)]), ["VedettePanics"])

    def test_labels_are_part_of_what_is_wanted(self) -> None:
        alert = {"alertname": "VedetteReloadFailed", "what": "model"}
        self.assertTrue(fire.matches(alert, ("VedetteReloadFailed", {"what": "model"})))
        self.assertFalse(fire.matches(alert, ("VedetteReloadFailed", {"what": "tokens"})))
        self.assertFalse(fire.Result("a", "", unexpected=["VedetteDown"]).right)
        self.assertFalse(fire.Result("a", "", missing=["VedetteDown"]).right)


if __name__ == "__main__":
    unittest.main()
