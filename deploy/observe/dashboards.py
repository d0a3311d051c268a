"""Asks every query of the Grafana dashboards of a live Prometheus, and looks that each has an answer.

Two servers under load, one of them with TLS, cameras' own series, bad pictures and more than it can compute;
a Prometheus that scrapes every second, with the shipped rules in a hurry (shorten.py). Every query of every
panel, annotation and variable must return something that is a number, and name only metrics that the server
has. With --picture FILE the fleet dashboard is drawn from the same data (render.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import queries
import render
from lab import Lab, certificate
from prometheus import Prometheus, Refused

from env import Env, wait_until
from promise import CannotRun
from server import Server
from sim import Simulation

ROOT = queries.ROOT
OUT = ROOT / "target" / "observe"
# Grafana's four scrapes, at one a second, and one to spare.
WINDOW = "5s"
EXIT_CANNOT_RUN = 2
SETTLE_SECONDS = 15.0


@dataclass(frozen=True)
class Checked:
    """A query, and what is wrong with it."""

    dashboard: str
    query: queries.Query
    series: int
    wrong: str


SCENARIO = """\
name = "dashboards"
seconds = 900
warmup_seconds = 0
phase = "random"
[[group]]
name = "entrance"
cameras = {cameras}
fps = 10
size = "640x480"
jitter_ms = 5
[[group]]
name = "corridor"
cameras = 2
fps = 5
size = "640x480"
[[group.burst]]
at_seconds = {burst}
seconds = 12
fps = {burst_fps}
[[rogue]]
behaviour = "garbage"
clients = 1
arrive_seconds = {garbage}
"""


@contextlib.contextmanager
def fleet(lab: Lab, cameras: int, seconds: float) -> Iterator[None]:
    """Two servers with everything on that has series, and their cameras."""
    cert, key = (lab.env.work / f"dashboards.{kind}" for kind in ("pem", "key"))
    certificate(lab, cert, key, days=10)
    own = ["--camera-metrics", "8", "--max-cameras", "12"]
    tls = ["--tls-cert", str(cert), "--tls-key", str(key)]
    spin = ["--backend", "spin", "--spin-ms"]
    with contextlib.ExitStack() as stack:

        def start(*flags: str) -> Server:
            server = Server(lab.env, *flags, *own, root=True, settles=False)
            return stack.enter_context(server)

        servers = {
            "vedette-1:9464": start("--workers", "1"),
            "vedette-2:9464": start(*spin, "12", "--workers", "1", *tls),
        }
        lab.prometheus.watch(servers)
        for number, server in enumerate(servers.values()):
            scenario = lab.env.work / f"dashboards{number}.toml"
            scenario.write_text(
                SCENARIO.format(
                    cameras=cameras, burst=SETTLE_SECONDS + seconds * 0.45, burst_fps=20 + 40 * number,
                    garbage=SETTLE_SECONDS + seconds * 0.75,
                ),
                encoding="utf-8",
            )  # fmt: skip
            addr = f"https://{server.addr}" if number else server.addr
            trust = ["--tls-ca", str(cert)] if number else []
            simulation = Simulation(lab.env, addr, "--scenario", str(scenario), *trust)
            stack.callback(simulation.kill)
        wait_until(lambda: all(s.metric("vedette_live_cameras") > 2 for s in servers.values()), 30)
        # What starting took is not what is shown.
        time.sleep(SETTLE_SECONDS)
        yield


def is_number(samples: list[tuple[float, float]]) -> bool:
    """Whether there is any value that can be drawn."""
    return any(math.isfinite(value) for _, value in samples)


def check(prometheus: Prometheus, name: str, query: queries.Query, seconds: float) -> Checked:
    """Asks one query."""
    unknown = queries.metrics_of(query.expression) - queries.known_metrics()
    if unknown:
        return Checked(name, query, 0, f"the server has no {', '.join(sorted(unknown))}")
    now = time.time()
    try:
        found = prometheus.query_range(
            queries.filled(query.expression, WINDOW), now - seconds, now, 1
        )
    except Refused as error:
        return Checked(name, query, 0, str(error))
    series = sum(is_number(samples) for _, samples in found)
    return Checked(name, query, series, "" if series else "no data")


def check_variables(
    prometheus: Prometheus, name: str, dashboard: queries.Dashboard
) -> list[Checked]:
    """Asks what each variable can be."""
    checked = []
    for variable, label, series in queries.variables(dashboard):
        values = prometheus.label_values(label, queries.filled(series, WINDOW))
        query = queries.Query(f"variable {variable}", series)
        checked.append(Checked(name, query, len(values), "" if values else "no values"))
    return checked


def check_all(prometheus: Prometheus, seconds: float) -> list[Checked]:
    """Every query of every dashboard."""
    checked = []
    for name, dashboard in queries.dashboards().items():
        checked += check_variables(prometheus, name, dashboard)
        for query in queries.all_queries(dashboard):
            checked.append(check(prometheus, name, query, seconds))
    return checked


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    release = ROOT / "target" / "release"
    parser.add_argument("--server", type=Path, default=release / "vedette-server")
    parser.add_argument("--client-sim", type=Path, default=release / "client-sim")
    parser.add_argument(
        "--cameras", type=int, default=2, help="at 10 FPS, of each server (two more send 5)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long there is load before it is asked"
    )
    parser.add_argument("--picture", type=Path, help="draw the fleet dashboard into this PNG file")
    return parser.parse_args()


def run(args: argparse.Namespace) -> list[Checked]:
    """Starts everything and asks."""
    for program in (args.server, args.client_sim):
        if not program.exists():
            raise CannotRun(f"{program} does not exist: cargo build --release --workspace")
    work = OUT / "work-dashboards"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = Env(
        server=args.server.absolute(), client_sim=args.client_sim.absolute(), out=OUT, work=work
    )
    try:
        with Prometheus(env) as prometheus, fleet(Lab(env, prometheus), args.cameras, args.seconds):
            time.sleep(args.seconds)
            checked = check_all(prometheus, args.seconds)
            if args.picture:
                dashboard = queries.dashboards()["vedette.json"]
                page = render.page(prometheus, dashboard, args.seconds, WINDOW)
                render.picture(page, args.picture, OUT)
    finally:
        env.cleanup()
    return checked


def main() -> int:
    """The whole program."""
    args = parse_arguments()
    try:
        checked = run(args)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    report = [
        {"dashboard": c.dashboard, "where": c.query.where, "series": c.series, "wrong": c.wrong}
        for c in checked
    ]
    (OUT / "dashboards.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    failed = [entry for entry in checked if entry.wrong]
    for entry in failed:
        print(
            f"FAIL {entry.dashboard}: {entry.query.where}: {entry.wrong}\n     {entry.query.expression}"
        )
    print(f"{len(checked) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
