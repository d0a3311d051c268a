"""A Prometheus of the test's own on loopback, and questions to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from types import TracebackType
from typing import Any

import shorten

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "promises"))

from env import LOOPBACK, Env, wait_until
from promise import CannotRun
from server import Server

RULES = ROOT / "deploy" / "prometheus" / "rules"
JOB = "vedette"
START_SECONDS = 30.0

# Labels and value of one series.
Sample = tuple[dict[str, str], float]


class Refused(Exception):
    """Prometheus does not take a query."""


class Prometheus:
    """Scrapes every second what it is told to watch, with the shipped rules, shortened."""

    def __init__(self, env: Env) -> None:
        if shutil.which("prometheus") is None:
            raise CannotRun(
                "no prometheus: sudo apt-get install -y --no-install-recommends prometheus"
            )
        self.env = env
        self.folder = env.work / "prometheus"
        self.port = env.port()
        self._process: subprocess.Popen[Any] | None = None
        self._targets = self.folder / "targets.json"

    def __enter__(self) -> Prometheus:
        (self.folder / "rules").mkdir(parents=True)
        for rules in RULES.glob("*.rules.yml"):
            short = shorten.shorten(rules.read_text(encoding="utf-8"))
            (self.folder / "rules" / rules.name).write_text(short, encoding="utf-8")
        self.watch({})
        (self.folder / "prometheus.yml").write_text(self._config(), encoding="utf-8")
        with (self.folder / "log").open("wb") as log:
            self._process = self.env.spawn(
                [
                    "prometheus", "--log.level=warn",
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address={LOOPBACK}:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        wait_until(self._ready, START_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.env.end(self._process)

    def _config(self) -> str:
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "900ms",
                "evaluation_interval": "1s",
            },
            "rule_files": [f"{self.folder}/rules/*.rules.yml"],
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}],
                }
            ],
        }
        # YAML that is JSON as well.
        return json.dumps(config, indent=2)

    def _ready(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise CannotRun(f"prometheus ended: see {self.folder / 'log'}")
        with contextlib.suppress(OSError):
            return self._get("/-/ready")[0] == 200
        return False

    def watch(self, servers: dict[str, Server]) -> None:
        """Scrapes these from now on, each as the instance of its name, and nothing else."""
        targets = [
            {"targets": [server.admin], "labels": {"instance": name}}
            for name, server in servers.items()
        ]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(targets), encoding="utf-8")
        new.rename(self._targets)

    def _get(self, path: str) -> tuple[int, bytes]:
        client = http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        with contextlib.closing(client):
            client.request("GET", path)
            answer = client.getresponse()
            return answer.status, answer.read()

    def _ask(self, path: str, **parameters: str | float) -> list[dict[str, Any]]:
        status, body = self._get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(body)
        if status != 200:
            raise Refused(f"{answer.get('error', status)}: {parameters}")
        data: list[dict[str, Any]] = answer["data"]["result"]
        return data

    def query(self, expression: str) -> list[Sample]:
        """What an expression is now."""
        found = self._ask("query", query=expression)
        return [(entry["metric"], float(entry["value"][1])) for entry in found]

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """What it was from `start` to `end`, in seconds since the Unix epoch, every `step` seconds."""
        found = self._ask("query_range", query=expression, start=start, end=end, step=step)
        return [
            (entry["metric"], [(float(t), float(v)) for t, v in entry["values"]]) for entry in found
        ]

    def label_values(self, label: str, series: str) -> list[str]:
        """The values of a label among series of the last minute."""
        parameters = {"match[]": series, "start": time.time() - 60}
        _, body = self._get(f"/api/v1/label/{label}/values?{urllib.parse.urlencode(parameters)}")
        values: list[str] = json.loads(body)["data"]
        return values

    def firing(self) -> list[dict[str, str]]:
        """Labels of the alerts that fire now."""
        return [labels for labels, _ in self.query('ALERTS{alertstate="firing"}')]

    def wait_for_scrape(self, name: str, seconds: float = 15.0) -> None:
        """Waits until a server has been scraped."""
        wait_until(lambda: bool(self.query(f'up{{instance="{name}"}} == 1')), seconds)
