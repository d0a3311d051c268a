"""Grafana's dashboards and what is provisioned. Their queries are tried on live servers by
deploy/observe/dashboards.py."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from registry import check, need

DASHBOARDS = "deploy/grafana/dashboards"
METRICS = "server/src/telemetry/metrics.rs"
SUFFIXES = re.compile(r"_(bucket|count|sum)$")


def boards(root: Path) -> dict[str, dict[str, Any]]:
    """Every dashboard by its file's name."""
    return {
        path.name: json.loads(need(path)) for path in sorted((root / DASHBOARDS).glob("*.json"))
    }


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether two places in the grid share a cell."""
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


@check("panels have ids and places of their own", fast=True)
def panels(root: Path) -> list[str]:
    """Grafana takes two panels with one id, and shows one of them."""
    wrong, found = [], boards(root)
    for name, board in found.items():
        ids = [panel["id"] for panel in board["panels"]]
        if len(ids) != len(set(ids)):
            wrong.append(f"{name}: two panels have the same id")
        for one, other in itertools.combinations(board["panels"], 2):
            if overlap(one["gridPos"], other["gridPos"]):
                wrong.append(f"{name}: {one['title']} lies on {other['title']}")
    return wrong if found else [f"{DASHBOARDS} is empty"]


@check("dashboards ask only for metrics that the server has", fast=True)
def metrics(root: Path) -> list[str]:
    """A panel over a metric that was renamed stays empty, and nobody is told."""
    known = set(re.findall(r'"(vedette_[a-z0-9_]+)"', need(root / METRICS)))
    asked = {
        (name, SUFFIXES.sub("", metric) if metric not in known else metric)
        for name in boards(root)
        for metric in re.findall(r"\bvedette_[a-z0-9_]+", need(root / DASHBOARDS / name))
    }
    wrong = [
        f"{name}: the server has no {metric}"
        for name, metric in sorted(asked)
        if metric not in known
    ]
    return wrong if asked else ["no dashboard asks for anything"]


@check("the data source and the dashboards are where they are provisioned", fast=True)
def provisioned(root: Path) -> list[str]:
    """Each dashboard by its variable, so that it works with any Prometheus."""
    folder = root / "deploy" / "grafana" / "provisioning"
    wrong = []
    if "url: $PROMETHEUS_URL" not in need(folder / "datasources" / "vedette.yml"):
        wrong.append("the data source does not take its address from PROMETHEUS_URL")
    if "path: /var/lib/grafana/dashboards" not in need(folder / "dashboards" / "vedette.yml"):
        wrong.append("the provider does not read /var/lib/grafana/dashboards")
    for name, board in boards(root).items():
        names = [variable["name"] for variable in board["templating"]["list"]]
        if "datasource" not in names:
            wrong.append(f"{name} has no variable for its data source")
    return wrong
