"""Prometheus' configuration, the rules, and the rules' own tests: by promtool, which decides."""

from __future__ import annotations

import re
from pathlib import Path

from registry import check, complaints, need, tool

HOW = "sudo apt-get install -y --no-install-recommends prometheus"
RULES = "deploy/prometheus/rules/vedette.rules.yml"
TESTS = "deploy/prometheus/tests"


@check("promtool takes the configuration and the rules")
def configuration(root: Path) -> list[str]:
    """Also every rules file that the configuration names."""
    promtool = tool("promtool", HOW)
    command = [promtool, "check", "config", "--lint=all", "--lint-fatal"]
    return complaints([*command, "deploy/prometheus/prometheus.yml"], root)


@check("every rule does what its tests say")
def rules(root: Path) -> list[str]:
    """Fires, and does not fire; and nothing fires on a good day."""
    promtool = tool("promtool", HOW)
    tests = sorted((root / TESTS).glob("*.test.yml"))
    if not tests:
        return [f"{TESTS} has no tests"]
    return complaints([promtool, "test", "rules", *tests], root)


@check("every alert has its section in the runbook", fast=True)
def runbook(root: Path) -> list[str]:
    """And every section its alert."""
    text, page = need(root / RULES), need(root / "docs" / "alerts.md")
    alerts = re.findall(r"- alert: (\w+)", text)
    linked = re.findall(r"runbook_url: docs/alerts\.md#(\w+)", text)
    sections = re.findall(r"^### (Vedette\w+)$", page, re.MULTILINE)
    wrong = [f"{name} has no section in docs/alerts.md" for name in alerts if name not in sections]
    wrong += [
        f"docs/alerts.md explains {name}, which is no alert"
        for name in sections
        if name not in alerts
    ]
    if linked != [name.lower() for name in alerts]:
        wrong.append("not every alert links to its own section")
    return wrong if alerts else [f"{RULES} has no alerts"]
