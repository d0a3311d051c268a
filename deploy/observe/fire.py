"""Makes every alert fire once, on a running server that is broken on purpose: `make test-alerts`.

A Prometheus scrapes every second and has the shipped rules, with their times divided by 60 (shorten.py).
First nothing is broken: no alert may fire for 75 s. Then the cameras are lost, and then one fault after
another is played on a server of its own (faults.py): the alerts that belong to it must fire, and no others
for that server. Two cores, seven minutes. The table goes to target/observe/alerts.json, and with --docs
into docs/alerts.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults import FAULTS, Fault, Wanted
from lab import Lab
from prometheus import ROOT, RULES, Prometheus

from env import Env, wait_until
from promise import CannotRun

OUT = ROOT / "target" / "observe"
DOCS = ROOT / "docs" / "alerts.md"
BEGIN, END = "<!-- fire.py: begin -->", "<!-- fire.py: end -->"

# How long nothing may fire: what VedetteCamerasLost compares with, shortened, lies a minute back.
HEALTHY_SECONDS = 75.0
POLL_SECONDS = 0.25
# Alerts without an instance compare all servers of now with those of before, which faults change.
EVERYWHERE = ("VedetteAbsent", "VedetteCamerasLost")

EXIT_CANNOT_RUN = 2


@dataclass
class Result:
    """What came of one fault."""

    name: str
    what: str
    fired: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """All that had to fire, and nothing else."""
        return not self.missing and not self.unexpected


def words(wanted: Wanted) -> str:
    """An alert as the table names it."""
    name, labels = wanted
    inner = ", ".join(f"{key}={value}" for key, value in labels.items())
    return f"{name}{{{inner}}}" if inner else name


def matches(labels: dict[str, str], wanted: Wanted) -> bool:
    """Whether an alert is the one."""
    name, needed = wanted
    return labels["alertname"] == name and needed.items() <= labels.items()


def concerns(labels: dict[str, str], fault: Fault) -> bool:
    """Whether an alert is about this fault's server: others are still ending."""
    if labels["alertname"] in EVERYWHERE:
        return fault.everywhere
    return labels.get("instance") == fault.name


def play(lab: Lab, fault: Fault) -> Result:
    """Breaks something and waits for its alerts."""
    result = Result(fault.name, fault.what)
    waiting = list(fault.expects)
    with fault.play(lab, fault.name):
        struck = time.monotonic()
        while waiting and time.monotonic() < struck + fault.seconds:
            note(lab, fault, result, waiting, struck)
            time.sleep(POLL_SECONDS)
        # What else would fire in this time is seen as well.
        note(lab, fault, result, waiting, struck)
    result.missing = [words(wanted) for wanted in waiting]
    return result


def note(lab: Lab, fault: Fault, result: Result, waiting: list[Wanted], struck: float) -> None:
    """Looks once at what fires."""
    allowed = {name for name, _ in fault.expects} | set(fault.may)
    for labels in lab.prometheus.firing():
        if not concerns(labels, fault):
            continue
        if labels["alertname"] not in allowed and labels["alertname"] not in result.unexpected:
            result.unexpected.append(labels["alertname"])
        for wanted in [w for w in waiting if matches(labels, w)]:
            waiting.remove(wanted)
            result.fired[words(wanted)] = round(time.monotonic() - struck, 1)


def healthy_then_lost(lab: Lab) -> tuple[Result, Result]:
    """Five cameras for a while, and nothing fires; then they are gone."""
    healthy = Result("healthy", f"nothing: 5 cameras at 10 FPS for {HEALTHY_SECONDS:g} s")
    with lab.server("healthy") as server, lab.cameras(server.addr, 5, 10) as cameras:
        wait_until(lambda: server.metric("vedette_live_cameras") == 5, 10)
        # A Prometheus that has just started had no targets.
        wait_until(lambda: "VedetteAbsent" not in fired_names(lab), 15)
        end = time.monotonic() + HEALTHY_SECONDS
        while time.monotonic() < end:
            names = {labels["alertname"] for labels in lab.prometheus.firing()}
            healthy.unexpected += sorted(names - set(healthy.unexpected))
            time.sleep(POLL_SECONDS)
        lost = Result("lost", "all 5 cameras lose their power (SIGKILL)")
        cameras.process.kill()
        struck = time.monotonic()
        try:
            wait_until(lambda: "VedetteCamerasLost" in fired_names(lab), 60)
            lost.fired["VedetteCamerasLost"] = round(time.monotonic() - struck, 1)
        except TimeoutError:
            lost.missing = ["VedetteCamerasLost"]
        lost.unexpected = sorted(fired_names(lab) - {"VedetteCamerasLost"})
    return healthy, lost


def fired_names(lab: Lab) -> set[str]:
    """Names of the alerts that fire now."""
    return {labels["alertname"] for labels in lab.prometheus.firing()}


def alert_names() -> list[str]:
    """Every alert of the rules, in their order."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.rules.yml")))
    return re.findall(r"^ *- alert: (\w+)$", text, re.MULTILINE)


def never_fired(results: list[Result]) -> list[str]:
    """Alerts that no fault has made fire."""
    fired = {alert.partition("{")[0] for result in results for alert in result.fired}
    return [name for name in alert_names() if name not in fired]


def markdown(results: list[Result]) -> str:
    """The table of docs/alerts.md."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    models = (
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if "model name" in line
    )
    cores = cpuinfo.count("processor\t")
    lines = [
        f"{cores} cores, {next(models, 'unknown CPU')}; `make test-alerts`, "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}.",
        "",
        "| fault | alert | seconds until it fired |",
        "|---|---|---|",
    ]
    for result in results:
        if not result.fired:
            lines.append(f"| {result.what} | none | |")
        for alert, seconds in result.fired.items():
            lines.append(f"| {result.what} | `{alert}` | {seconds:g} |")
    return "\n".join(lines)


def write_docs(table: str) -> None:
    """Puts the table into docs/alerts.md."""
    page = DOCS.read_text(encoding="utf-8")
    head, found, rest = page.partition(BEGIN)
    if not found or END not in rest:
        raise CannotRun(f"{DOCS.name} has lost its marks {BEGIN} and {END}")
    DOCS.write_text(f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def build() -> Path:
    """The server that can be made to fail on purpose, as cargo's default profile builds it."""
    made = OUT / "vedette-server-faults"
    cargo = ["cargo", "build", "--locked", "-p", "vedette-server", "--features", "faults"]
    if subprocess.run(cargo, cwd=ROOT, check=False).returncode != 0:
        raise CannotRun("the server with --features faults was not built")
    OUT.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "target" / "debug" / "vedette-server", made)
    return made


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--server", type=Path, help="built with --features faults; built now if absent"
    )
    default = ROOT / "target" / "release" / "client-sim"
    parser.add_argument("--client-sim", type=Path, default=default)
    parser.add_argument(
        "--only", nargs="+", metavar="FAULT", help="these faults, without the healthy phase"
    )
    parser.add_argument("--docs", action="store_true", help="put the table into docs/alerts.md")
    return parser.parse_args()


def check_tools(args: argparse.Namespace) -> None:
    """Says in one line what is not there."""
    if not args.client_sim.exists():
        raise CannotRun(f"{args.client_sim} does not exist: cargo build --release -p client-sim")
    for tool in ("faketime", "openssl"):
        if shutil.which(tool) is None:
            raise CannotRun(f"no {tool}: sudo apt-get install -y {tool}")
    names = {fault.name for fault in FAULTS}
    if unknown := sorted(set(args.only or ()) - names):
        raise CannotRun(f"--only {unknown[0]}: no such fault; there are {', '.join(sorted(names))}")


def say(result: Result) -> None:
    """One fault's line."""
    fired = ", ".join(f"{alert} after {seconds:g} s" for alert, seconds in result.fired.items())
    wrong = "".join(f"; MISSING {alert}" for alert in result.missing)
    wrong += "".join(f"; UNEXPECTED {alert}" for alert in result.unexpected)
    print(
        f"{'ok  ' if result.right else 'FAIL'} {result.name}: {fired or 'nothing fired'}{wrong}",
        flush=True,
    )


def run(args: argparse.Namespace) -> list[Result]:
    """Plays everything."""
    check_tools(args)
    work = OUT / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    server = (args.server or build()).absolute()
    env = Env(
        server=server, client_sim=args.client_sim.absolute(), faults=server, out=OUT, work=work
    )
    results: list[Result] = []
    try:
        with Prometheus(env) as prometheus:
            lab = Lab(env, prometheus)
            if not args.only:
                results += healthy_then_lost(lab)
                for result in results:
                    say(result)
            for fault in FAULTS:
                if not args.only or fault.name in args.only:
                    results.append(play(lab, fault))
                    say(results[-1])
    finally:
        env.cleanup()
    return results


def main() -> int:
    """The whole program."""
    args = parse_arguments()
    try:
        results = run(args)
        report: dict[str, Any] = {"results": [asdict(result) for result in results]}
        (OUT / "alerts.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if args.docs:
            write_docs(markdown(results))
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    silent = [] if args.only else never_fired(results)
    for name in silent:
        print(f"FAIL {name}: no fault has made it fire")
    failed = sum(not result.right for result in results) + len(silent)
    print(f"{len(results) - sum(not result.right for result in results)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
