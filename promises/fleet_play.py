"""One play: a fleet with cameras on it, of which a server is killed, one added, one drained, one added again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from env import Env
from fleet_front import Front, Slot, started
from fleet_judge import (
    BACK_SECONDS, EVEN_SHARE, Accounts, Beat, Book, Opened, back_after, cameras_on, farthest, settle, total,
)  # fmt: skip
from server import STREAM_LOGS, STREAMS, AccountsDiffer, Server, accounts, http_get, parse_metrics
from sim import Simulation, start_sim

CAMERAS = 12
FPS = 4

# Streams end, one after the other, between these two ages: short, so that a test sees them. Cameras go where the
# fewest are when they come back, so after the greater one the fleet is even again.
AGE_SECONDS = 6
AGE_JITTER = 0.5
SETTLE_SECONDS = AGE_SECONDS * (1 + AGE_JITTER) + 3

# A phase's steady part, in which each server's answers are counted.
WINDOW_SECONDS = 8.0

# A drained server has to be gone within this.
GRACE_SECONDS = 5

SERVER_FLAGS = (
    "--backend", "spin", "--spin-ms", "5", "--workers", "1",
    "--max-connection-age-seconds", f"{AGE_SECONDS}", "--connection-age-jitter", f"{AGE_JITTER}",
    "--connection-grace-seconds", "2", "--grace-seconds", f"{GRACE_SECONDS}",
    *STREAM_LOGS,
)  # fmt: skip

CAMERA_FLAGS = (
    "--cameras", f"{CAMERAS}", "--fps", f"{FPS}", "--phase", "even", "--size", "320x240",
    "--warmup", "2", "--seconds", "300", "--slo-max-ms", "1000", "--max-gap-ms", f"{BACK_SECONDS * 1000:g}",
)  # fmt: skip

OK = 'vedette_frames_total{outcome="ok"}'
GONE = 'vedette_frames_total{outcome="client_gone"}'


class FleetServer(Server):
    """A server on the ports of its slot."""

    def __init__(self, env: Env, slot: Slot) -> None:
        # Its books are held against the cameras' instead, at the end of the play.
        super().__init__(env, *SERVER_FLAGS, port=slot.port, root=os.geteuid() != 0, settles=False)
        self.slot = slot
        self.admin = f"{slot.addr.rpartition(':')[0]}:{slot.admin_port}"

    def entries(self) -> Iterator[dict[str, Any]]:
        """Its log."""
        for line in self.stderr_text().splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    def book(self) -> Book:
        """What it counts now."""
        metrics = parse_metrics(http_get(self.admin, "/metrics")[1])
        return Book(*accounts(metrics), int(metrics.get(GONE, 0)))

    def last_book(self) -> Book:
        """What it said when it had drained."""
        last = next(entry for entry in self.entries() if entry["message"] == "stopped")
        return Book(int(last["received"]), int(last["accounted"]))


@dataclass
class Phase:
    """What was done, when (seconds since the Unix epoch), to whom, and how the fleet stood afterwards."""

    event: str
    at: float
    server: str = ""
    struck: list[str] = field(default_factory=list)
    back_seconds: list[float | None] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)

    @property
    def farthest(self) -> float:
        """Of the server that is furthest from the mean, as a share of the mean."""
        return farthest(self.answered)

    @property
    def back_max(self) -> float | None:
        """The last of the struck cameras; `None` when one never came back."""
        times = [seconds for seconds in self.back_seconds if seconds is not None]
        return max(times) if times and len(times) == len(self.back_seconds) else None

    def wrong(self) -> list[str]:
        """What does not hold."""
        found = []
        if self.farthest > EVEN_SHARE:
            found.append(f"{self.event}: a server is {self.farthest:.0%} off the mean: {self.answered}")
        if self.event in ("kill", "drain"):
            if not self.struck:
                found.append(f"{self.event}: no camera was on {self.server}, so nothing was tested")
            elif self.back_max is None or self.back_max > BACK_SECONDS:
                found.append(f"{self.event}: cameras were back after {self.back_seconds} s")
        return found


@dataclass
class Played:
    """What one play found."""

    front: str
    load_average: float
    phases: list[Phase]
    accounts: Accounts
    drained_exit: int
    # Of all frames that were due, those answered OK.
    due: int
    ok: int
    reconnects: int
    wrong: list[str]

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        phases = [{**asdict(phase), "farthest_share": phase.farthest} for phase in self.phases]
        accounts_ = {**asdict(self.accounts), "killed": self.accounts.killed}
        return {**vars(self), "phases": phases, "accounts": accounts_, "held": not self.wrong}


class Fleet:
    """Servers in their slots, and what was seen of them."""

    def __init__(self, env: Env, stack: contextlib.ExitStack) -> None:
        self.env = env
        self.stack = stack
        self.slots = [Slot(f"s{number}", env.port(), env.port()) for number in range(1, 5)]
        self.live: dict[str, FleetServer] = {}
        self.every: list[FleetServer] = []
        # What the killed one had counted just before.
        self.killed: dict[str, Book] = {}
        self.drained: list[FleetServer] = []

    def add(self, name: str) -> None:
        """Starts the server of a slot."""
        slot = next(slot for slot in self.slots if slot.name == name)
        server = self.stack.enter_context(FleetServer(self.env, slot))
        self.live[name] = server
        self.every.append(server)

    def opened(self) -> list[Opened]:
        """All streams of all servers so far."""
        return [
            (datetime.fromisoformat(entry["timestamp"]).timestamp(), server.slot.name, entry["camera"])
            for server in self.every
            for entry in server.entries()
            if entry["message"] == "stream opened"
        ]

    def series(self, name: str) -> dict[str, int]:
        """A series of every live server."""
        return {slot: int(server.metric(name, 0)) for slot, server in self.live.items()}

    def watch(self, phase: Phase) -> Phase:
        """Waits until the fleet has settled, then counts answers for a while."""
        time.sleep(SETTLE_SECONDS)
        before = self.series(OK)
        time.sleep(WINDOW_SECONDS)
        phase.answered = {name: after - before[name] for name, after in self.series(OK).items()}
        phase.streams = self.series(STREAMS)
        self.env.say(
            f"{phase.event} {phase.server}: streams {phase.streams}, answers {phase.answered}, "
            f"{phase.farthest:.0%} off the mean at most"
        )
        return phase

    def kill(self, name: str) -> Phase:
        """A server is gone from one instant to the next."""
        server = self.live.pop(name)
        self.killed[name] = server.book()
        at = time.time()
        server.signal(signal.SIGKILL)
        server.wait(5)
        return Phase("kill", at, name, cameras_on(name, self.opened(), at))

    def drain(self, name: str) -> tuple[Phase, int]:
        """A server is asked to go. Returns its exit code too."""
        server = self.live.pop(name)
        at = time.time()
        server.signal(signal.SIGTERM)
        code = server.wait(GRACE_SECONDS + 2)
        self.drained.append(server)
        return Phase("drain", at, name, cameras_on(name, self.opened(), at)), code


def times_back(phases: list[Phase], report: dict[str, Any]) -> None:
    """Enters when struck cameras were back, from the cameras' own report."""
    index = {camera["camera_id"]: place for place, camera in enumerate(report["per_camera"])}
    for phase in phases:
        phase.back_seconds = [
            back_after(
                report["per_camera"][index[name]],
                Beat.of(report, index[name]),
                report["started_unix_ms"] / 1000,
                phase.at,
            )
            for name in phase.struck
        ]


def act(fleet: Fleet, sim: Simulation) -> tuple[list[Phase], int]:
    """All phases. Returns them and the drained server's exit code."""
    phases = [fleet.watch(Phase("start", time.time()))]
    phases.append(fleet.watch(fleet.kill("s1")))
    fleet.add("s4")
    phases.append(fleet.watch(Phase("add", time.time(), "s4")))
    drained, code = fleet.drain("s2")
    phases.append(fleet.watch(drained))
    fleet.add("s1")
    phases.append(fleet.watch(Phase("add", time.time(), "s1")))
    if not sim.running():
        raise RuntimeError("client-sim ended before the play did")
    return phases, code


def books_of(fleet: Fleet) -> dict[str, Book]:
    """What every server but the killed one has counted in the end."""
    found = {f"{server.slot.name} (drained)": server.last_book() for server in fleet.drained}
    for name, server in fleet.live.items():
        with contextlib.suppress(AccountsDiffer):
            # Waits for frames in hand; what then differs is found by comparing.
            server.check_accounts()
        found[name] = server.book()
    return found


def play(env: Env, front: Front) -> Played:
    """Plays it once."""
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        fleet = Fleet(env, stack)
        for name in ("s1", "s2", "s3"):
            fleet.add(name)
        addr = stack.enter_context(started(env, front, fleet.slots))
        # The proxy has looked at every slot, so that the empty one is known to be.
        time.sleep(2)
        sim = start_sim(env, addr, *CAMERA_FLAGS, *front.flags)
        phases, code = act(fleet, sim)
        sim.interrupt()
        report = sim.report(30)
        times_back(phases, report)
        found = settle(report, books_of(fleet), fleet.killed["s1"], phases[1].struck)
    wrong = [line for phase in phases for line in phase.wrong()] + list(found.wrong)
    if code != 0:
        wrong.append(f"the drained server exited with {code}")
    return Played(
        front=front.name,
        load_average=load,
        phases=phases,
        accounts=found,
        drained_exit=code,
        due=total(report, "sent") + total(report, "not_sent"),
        ok=total(report, "ok"),
        reconnects=report["reconnects"]["count"],
        wrong=wrong,
    )
