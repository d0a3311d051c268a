"""What the long run plays: cameras that come, go and are killed, and clients that do as they should not."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import Report, Simulation, start_sim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from env import Env

HERE = Path(__file__).resolve().parent

# All together some 40 frames per second are computed, which takes a third of two cores with the network
# that the set-up brings: the other promises are tested at the same time.

# Pictures, drawn once: drawing them for each run would take more than sending them.
SIZES = {"320x240": 4, "640x480": 4, "704x576": 4, "480x640": 4, "1280x720": 4, "1920x1080": 2}

# Visits of cameras one after the other: size, cameras, frames per second of each, seconds. The lengths
# have no common measure, so that the two rows of visits always overlap in another way; each row goes
# round within the warm-up once.
LONG_VISITS = (
    ("640x480", 4, 2.0, 23.0),
    ("1280x720", 3, 2.0, 17.0),
    ("704x576", 6, 2.0, 29.0),
    ("1920x1080", 2, 2.0, 19.0),
)
SHORT_VISITS = (
    ("320x240", 3, 3.0, 7.0),
    ("1920x1080", 1, 3.0, 11.0),
    ("480x640", 2, 3.0, 5.0),
    ("640x480", 4, 2.0, 13.0),
)

# Seconds until a run is killed: long enough to have frames under way, at another point each time.
KILL_AFTER = (5.0, 8.3, 3.7, 11.1)

# Seconds of a client that sends what cameras should not, and cases between the beginnings of two lives.
MISUSE_SECONDS = 37.0
MISUSE_STRIDE = 31

# Cameras of a scenario send heartbeats after so many seconds without a frame.
HEARTBEAT_SECONDS = 2.0

SCENARIO = """\
name = "soak"
seconds = 41
warmup_seconds = 1
seed = {seed}
phase = "random"

[[group]]
name = "residents"
cameras = 2
fps = 2
images = "{folder}/640x480"
jitter_ms = 100

[[group]]
name = "guests"
cameras = 4
fps = 2
images = "{folder}/1280x720"
arrive_seconds = 6
arrive_over_seconds = 8
leave_seconds = 30
[[group.burst]]
at_seconds = 18
seconds = 3
fps = 6

[[group]]
name = "quiet"
cameras = 3
fps = 0.05
images = "{folder}/704x576"

[[rogue]]
behaviour = "garbage"

[[rogue]]
behaviour = "never-reads"
arrive_seconds = 4
leave_seconds = 37

[[rogue]]
behaviour = "flapping"
arrive_seconds = 20
leave_seconds = 30
"""

# Flags of each run: nothing is judged but that frames are answered, on a machine that others use too.
# A camera whose stream ends early stays away, so that no second stream can hide it.
FLAGS = (
    "--slo-max-ms", "60000", "--min-answered-ratio", "0", "--drain-seconds", "30",
    "--connect-seconds", "60", "--no-reconnect",
)  # fmt: skip

# How long a client may take to leave once it is told to, in seconds: its drain and some.
LEAVE_SECONDS = 90.0

# Pause after a client that broke: something is wrong, and a loop of failures helps nobody.
PAUSE_SECONDS = 2.0


def faults(report: Report) -> list[str]:
    """What a run of cameras that behave says against the server."""
    found = []
    for name in ("lost", "internal"):
        count = report[name] + report["warmup"][name]
        if count:
            found.append(f"{count} frames {name}")
    if report["protocol_errors"]:
        first = (camera["first_protocol_error"] for camera in report["per_camera"])
        found.append(f"protocol error: {next(filter(None, first), '')}")
    found += [
        f"{end['streams']} streams ended early: {end['reason']}" for end in report["stream_ends"]
    ]
    if (beats := report.get("heartbeats")) and beats["taken_for_frames"]:
        found.append(f"{beats['taken_for_frames']} heartbeats taken for frames")
    return found


def unstable(cases: dict[str, Counter[str]], of_time: set[str]) -> list[str]:
    """Cases that were answered in more than one way by what their bytes are."""
    found = []
    for name, answers in sorted(cases.items()):
        of_bytes = sorted(set(answers) - of_time)
        if len(of_bytes) > 1 or "INTERNAL" in of_bytes:
            found.append(f"{name}: {', '.join(of_bytes)}")
    return found


@dataclass
class Book:
    """What the clients said, added up; several threads write to it."""

    runs: int = 0
    killed: int = 0
    sent: int = 0
    answered: int = 0
    lost: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    heartbeats: Counter[str] = field(default_factory=Counter)
    rogues: Counter[str] = field(default_factory=Counter)
    misuse: Counter[str] = field(default_factory=Counter)
    cases: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def problem(self, what: str) -> None:
        """Something that should not be."""
        with self.lock:
            self.problems.append(what)

    def enter(self, name: str, report: Report) -> None:
        """A run of client-sim has ended."""
        found = [f"{name}: {fault}" for fault in faults(report)]
        with self.lock:
            self.runs += 1
            for part in (report, report["warmup"]):
                self.sent += part["sent"]
                self.answered += part["answered"]
                self.lost += part["lost"]
            self.outcomes.update({key: report[key] for key in OUTCOMES})
            beats = report.get("heartbeats") or {}
            self.heartbeats.update({key: beats.get(key, 0) for key in ("sent", "answered")})
            for rogue in report["rogues"]:
                self.rogues[rogue["behaviour"]] += rogue["sent"]
            self.problems += found

    def enter_misuse(self, told: dict[str, Any]) -> None:
        """A client of the other kind has ended."""
        with self.lock:
            self.misuse.update(
                {key: told[key] for key in ("sent", "answered", "unary", "unanswered")}
            )
            for name, answers in told["cases"].items():
                self.cases.setdefault(name, Counter()).update(answers)
            self.problems += [f"misuse: {problem}" for problem in told["problems"]]


OUTCOMES = ("ok", "superseded", "expired", "overloaded", "bad_image", "unsupported", "internal")


class Play:
    """All clients of a long run, each kind on a thread of its own."""

    def __init__(self, env: Env, addr: str) -> None:
        self.env = env
        self.addr = addr
        self.book = Book()
        self.pictures = env.work / "pictures"
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def prepare(self) -> None:
        """Draws the pictures."""
        for size, count in SIZES.items():
            folder = self.pictures / size
            flags = ["--size", size, "--count", str(count)]
            done = self.env.run([self.env.client_sim, "draw", str(folder), *flags], 120.0)
            if done.returncode != 0:
                raise RuntimeError(f"client-sim draw: {done.stderr.strip()[-300:]}")

    def start(self) -> None:
        """Lets all come."""
        parts: dict[str, Callable[[int], None]] = {
            "long visits": lambda n: self.visit("long visit", LONG_VISITS[n % len(LONG_VISITS)]),
            "short visits": lambda n: self.visit(
                "short visit", SHORT_VISITS[n % len(SHORT_VISITS)]
            ),
            "scenario": self.scenario,
            "killed": self.killed,
            "misuse": self.misuse,
        }
        for name, part in parts.items():
            thread = threading.Thread(
                target=self._repeat, args=(name, part), name=name, daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def leave(self) -> None:
        """Tells all to leave, and nobody to come."""
        self._stop.set()

    def stop(self) -> None:
        """Lets all leave in order, and waits for them."""
        self.leave()
        for thread in self._threads:
            thread.join(2 * LEAVE_SECONDS)
            if thread.is_alive():
                self.book.problem(f"{thread.name}: its client did not leave")

    def _repeat(self, name: str, part: Callable[[int], None]) -> None:
        for turn in itertools.count():
            if self._stop.is_set():
                return
            try:
                part(turn)
            except Exception as error:  # noqa: BLE001 - the others go on, and the run fails for it
                self.book.problem(f"{name}: {type(error).__name__}: {error}")
                self._stop.wait(PAUSE_SECONDS)

    def visit(self, name: str, of: tuple[str, int, float, float]) -> None:
        """Some cameras for some time."""
        size, cameras, fps, seconds = of
        flags = ["--cameras", str(cameras), "--fps", str(fps), "--seconds", str(seconds)]
        self._to_the_end(name, "--warmup", "0", "--images", str(self.pictures / size), *flags)

    def scenario(self, turn: int) -> None:
        """Cameras that come and leave on open streams, quiet ones, and clients that break the rules."""
        path = self.env.work / "scenario.toml"
        path.write_text(SCENARIO.format(seed=turn + 1, folder=self.pictures), encoding="utf-8")
        every = ("--heartbeat-seconds", str(HEARTBEAT_SECONDS))
        self._to_the_end("scenario", "--scenario", str(path), *every)

    def _to_the_end(self, name: str, *flags: str) -> None:
        sim = start_sim(self.env, self.addr, *FLAGS, *flags)
        while sim.running() and not self._stop.wait(0.2):
            pass
        if sim.running():
            sim.interrupt()
        report = self._report_of(sim)
        if report is not None:
            self.book.enter(name, report)

    def _report_of(self, sim: Simulation) -> Report | None:
        try:
            return sim.report(LEAVE_SECONDS)
        except RuntimeError:
            # One that is told to leave before it has begun leaves without a word.
            if self._stop.is_set():
                return None
            raise
        finally:
            sim.path.unlink(missing_ok=True)

    def killed(self, turn: int) -> None:
        """Cameras that vanish with frames under way, and are back a second later."""
        flags = ("--cameras", "3", "--fps", "3", "--seconds", "600", "--warmup", "0")
        images = ("--images", str(self.pictures / "640x480"))
        sim = start_sim(self.env, self.addr, *FLAGS, *flags, *images)
        self._stop.wait(KILL_AFTER[turn % len(KILL_AFTER)])
        if not sim.running():
            sim.report()
            raise RuntimeError("it was gone before it was killed")
        sim.kill()
        with self.book.lock:
            self.book.killed += 1
        self._stop.wait(1.0)

    def misuse(self, turn: int) -> None:
        """A client that sends what cameras should not."""
        with self._misuser(turn) as (child, said):
            while child.poll() is None and not self._stop.wait(0.2):
                pass
            if child.poll() is None:
                child.terminate()
            try:
                child.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                raise TimeoutError("it did not leave") from None
            if child.returncode != 0:
                if self._stop.is_set() and child.returncode < 0:
                    return
                raise RuntimeError(f"it ended with {child.returncode}: {said('err')[-300:]}")
            self.book.enter_misuse(json.loads(said("out")))

    @contextmanager
    def _misuser(self, turn: int) -> Iterator[tuple[subprocess.Popen[Any], Callable[[str], str]]]:
        out, err = (self.env.work / f"misuse.{kind}" for kind in ("out", "err"))
        first = ["--first", str(turn * MISUSE_STRIDE), "--seconds", str(MISUSE_SECONDS)]
        with out.open("wb") as to, err.open("wb") as to_err:
            child = self.env.spawn(
                [sys.executable, HERE / "soak_client.py", self.addr, *first],
                stdout=to,
                stderr=to_err,
            )
        try:
            yield child, lambda kind: {"out": out, "err": err}[kind].read_text("utf-8", "replace")
        finally:
            self.env.end(child)
