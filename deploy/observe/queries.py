"""The queries of Grafana's dashboards, as Prometheus is asked them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
METRIC_NAMES = ROOT / "server" / "src" / "telemetry" / "metrics.rs"

Dashboard = dict[str, Any]
Panel = dict[str, Any]

# What metrics-process adds to the server's own, what Prometheus makes itself, and what a histogram's name
# becomes.
PROCESS_METRICS = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
}
PROMETHEUS_METRICS = {"up", "ALERTS"}
HISTOGRAM_SUFFIXES = ("_bucket", "_count", "_sum")

METRIC = re.compile(r"\b(?:vedette_[a-z0-9_]+|process_[a-z0-9_]+|up|ALERTS)\b(?!:)")
LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")


@dataclass(frozen=True)
class Query:
    """One question of a dashboard."""

    where: str
    expression: str
    legend: str = ""
    instant: bool = False


def dashboards() -> dict[str, Dashboard]:
    """Every dashboard by its file's name."""
    return {
        path.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(DASHBOARDS.glob("*.json"))
    }


def panels(dashboard: Dashboard) -> list[Panel]:
    """Those that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def panel_queries(panel: Panel) -> list[Query]:
    """What a panel asks."""
    return [
        Query(panel["title"], target["expr"], target["legendFormat"], target.get("instant", False))
        for target in panel["targets"]
    ]


def all_queries(dashboard: Dashboard) -> Iterator[Query]:
    """What panels and annotations ask."""
    for panel in panels(dashboard):
        yield from panel_queries(panel)
    for annotation in dashboard["annotations"]["list"]:
        yield Query(f"annotation {annotation['name']}", annotation["expr"])


def variables(dashboard: Dashboard) -> list[tuple[str, str, str]]:
    """Name, label and series of each variable that is asked of Prometheus."""
    found = []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = LABEL_VALUES.fullmatch(variable["query"]["query"])
            if asked is None:
                raise ValueError(f"variable {variable['name']}: {variable['query']['query']}")
            found.append((variable["name"], asked["label"], asked["series"]))
    return found


def filled(expression: str, window: str, values: Mapping[str, str] | None = None) -> str:
    """With Grafana's variables replaced: windows by `window`, the dashboard's own by everything."""
    text = expression.replace("$__rate_interval", window).replace("$__interval", window)
    for name, value in (values or {}).items():
        text = re.sub(rf"\${name}\b", value, text)
    return re.sub(r"\$(?:job|instance|camera)\b", ".+", text)


def metrics_of(expression: str) -> set[str]:
    """Names of the metrics that an expression asks for."""
    # Not within strings: values of labels.
    return set(METRIC.findall(re.sub(r'"[^"]*"', '""', expression)))


def known_metrics() -> set[str]:
    """Names of all metrics that the server has, from the file that alone may name them."""
    names = re.findall(r'"(vedette_[a-z0-9_]+)"', METRIC_NAMES.read_text(encoding="utf-8"))
    whole = set(names) | PROCESS_METRICS | PROMETHEUS_METRICS
    return whole | {name + suffix for name in names for suffix in HISTOGRAM_SUFFIXES}
