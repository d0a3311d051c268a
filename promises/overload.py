"""Promises 19 to 21: more cameras than fit, one camera that sends too much, and pictures that fill
memory."""

from __future__ import annotations

import os
import statistics
import threading
import time
from dataclasses import dataclass, field

import pictures
from cgroup import Cgroup
from client import Answer, Camera, StreamEnded
from env import Env, picture
from process import MIB
from promise import CannotRun, Finding, promise
from server import Server
from sim import run_sim, start_sim

# Busy loop of the network, in ms; what a camera sends, in frames per second.
SPIN_MS = 5
FPS = 10

# Twice what fits, for a minute. The slope of the age of answers over the run that counts as none.
OVERLOAD = 2
OVERLOAD_SECONDS = 60
SLOPE_MS = 1.0

# The longest that an answer may take while others take more than their share, in ms.
SLOWEST_MS = 100.0


def capacity() -> int:
    """Cameras that the cores of this process compute frames of, by arithmetic."""
    return len(os.sched_getaffinity(0)) * 1000 // SPIN_MS // FPS


@dataclass
class Witness:
    """A camera of ours among the many, which knows which of its frames was the newest at each
    instant.

    A frame may only be replaced by a newer one: its answer SUPERSEDED comes after that was sent.
    And of what is computed nothing may be older than what was computed before.
    """

    addr: str
    seconds: float
    ages: list[float] = field(default_factory=list)
    replaced: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Sends at its rate, whatever comes back."""
        with Camera(self.addr, "witness") as camera:
            sent_at: dict[int, float] = {}
            reader = threading.Thread(target=self._read, args=(camera, sent_at), daemon=True)
            reader.start()
            start = time.monotonic()
            for number in range(int(self.seconds * FPS)):
                time.sleep(max(0.0, start + number / FPS - time.monotonic()))
                sent_at[number] = time.monotonic()
                camera.send(number, picture())
            camera.finish()
            reader.join(10)
            missing = len(sent_at) - len(self.ages) - self.replaced
            if reader.is_alive() or missing:
                self.wrong.append(f"{missing} frames without an answer")

    def _read(self, camera: Camera, sent_at: dict[int, float]) -> None:
        newest_computed = -1
        while True:
            try:
                answer = camera.next(10)
            except (StreamEnded, TimeoutError):
                return
            self._judge(answer, sent_at, newest_computed)
            if answer.outcome == "OK":
                newest_computed = answer.frame_id

    def _judge(self, answer: Answer, sent_at: dict[int, float], newest_computed: int) -> None:
        number = answer.frame_id
        newer = sent_at.get(number + 1)
        if answer.outcome == "OK":
            self.ages.append(answer.at - sent_at[number])
            if number < newest_computed:
                self.wrong.append(f"frame {number} was computed after {newest_computed}")
        elif answer.outcome == "SUPERSEDED":
            self.replaced += 1
            if newer is None or answer.at < newer:
                self.wrong.append(f"frame {number} was replaced while it was the newest")
        else:
            self.wrong.append(f"frame {number}: {answer.outcome} {answer.detail}")


def slope_per_10_s(values: list[float], seconds: float) -> float:
    """How much the values of a timeline rise in 10 s, by least squares."""
    times = [number * seconds for number in range(len(values))]
    return 10 * statistics.linear_regression(times, values).slope


@promise(
    19,
    "answers stay fresh at twice the load",
    mark="60 s at 2x: slope of the median age < 1 ms per 10 s, newest frame wins, none lost",
    quiet=True,
)
def freshness(env: Env) -> Finding:
    """Twice as many cameras at 10 FPS as the cores can compute frames of (5 ms of CPU each), for a
    minute. The age of the answers, from when their frame should have left, must not rise: neither
    its median nor its slowest second by second, by least squares. One camera more is a witness:
    none of its frames is replaced while it is its newest, none is computed after a newer one, and
    each has exactly one answer.
    """
    cameras = OVERLOAD * capacity()
    flags = ("--backend", "spin", "--spin-ms", str(SPIN_MS))
    with Server(env, *flags, "--max-cameras", str(2 * cameras + 8)) as server:
        load = start_sim(
            env, server.addr, "--cameras", str(cameras), "--fps", str(FPS),
            "--seconds", str(OVERLOAD_SECONDS), "--phase", "random",
        )  # fmt: skip
        witness = Witness(server.addr, OVERLOAD_SECONDS)
        witness.run()
        report = load.report()
    timeline = report["timeline"]
    slope = slope_per_10_s(timeline["p50_ms"], timeline["bin_seconds"])
    slope_max = slope_per_10_s(timeline["max_ms"], timeline["bin_seconds"])
    answered = report["ok"] / report["sent"]
    lost = report["lost"] + report["not_sent"]
    figure = (
        f"{cameras} cameras, {answered:.0%} computed, the others replaced: median "
        f"{report['p50_ms']:.0f} ms, slope {slope:+.2f} ms per 10 s (slowest "
        f"{report['max_ms']:.0f} ms, {slope_max:+.2f}); {lost} lost; "
        f"witness: {witness.replaced} replaced, {len(witness.wrong)} wrong"
    )
    held = (
        abs(slope) < SLOPE_MS
        and lost == 0
        and report["ok"] + report["superseded"] == report["sent"]
        and report["superseded"] > 0
        and not witness.wrong
        and bool(witness.ages)
    )
    return Finding(figure, held, "\n".join(witness.wrong[:20]))


FLOOD_SCENARIO = """
name = "one camera takes what it can"
seconds = 30
phase = "random"

[[group]]
name = "cameras"
cameras = 20
fps = 10

[[group]]
name = "greedy"
cameras = 1
fps = 200
"""


@promise(
    20,
    "one fast camera takes nothing from the others",
    mark="20 at 10 FPS beside one at 200: every frame OK, slowest < 100 ms",
    quiet=True,
)
def fairness(env: Env) -> Finding:
    """Twenty cameras at 10 FPS and one at 200, 5 ms of CPU per frame: on two cores exactly all
    there is. For 30 s every frame of the twenty must be computed within 100 ms of when it should
    have left; the fast one gets what is left, and an answer to each of its frames.
    """
    scenario = env.work / "greedy.toml"
    scenario.write_text(FLOOD_SCENARIO, encoding="utf-8")
    with Server(env, "--backend", "spin", "--spin-ms", str(SPIN_MS)) as server:
        report = run_sim(env, server.addr, "--scenario", str(scenario))
    groups = {group["name"]: group for group in report["groups"]}
    cameras, greedy = groups["cameras"], groups["greedy"]
    lost = sum(group["lost"] + group["not_sent"] for group in groups.values())
    figure = (
        f"the 20: {cameras['ok']} of {cameras['sent']} OK, slowest {cameras['max_ms']:.0f} ms; "
        f"the fast one: {greedy['ok']} of {greedy['sent']} OK, "
        f"{greedy['superseded']} replaced; {lost} lost"
    )
    held = cameras["ok"] == cameras["sent"] > 0 and cameras["max_ms"] < SLOWEST_MS and lost == 0
    return Finding(figure, held, "\n".join(report["reasons"]))


MEMORY_LIMIT = 2 << 30
MEMORY_STREAMS = 100
MEMORY_SECONDS = 30
LATE_SECONDS = 10
SHED = 'vedette_frames_total{outcome="overloaded"}'
COMPUTED = 'vedette_frames_total{outcome="ok"}'
IN_HAND = "vedette_frame_memory_bytes"


@dataclass(frozen=True)
class Sample:
    """What /metrics showed at an instant of the monotonic clock."""

    at: float
    in_hand: float
    computed: float


def sampled(server: Server) -> list[Sample]:
    """One sample; none when the server does not answer."""
    try:
        metrics = server.metrics()
    except OSError:
        return []
    return [Sample(time.monotonic(), metrics[IN_HAND], metrics[COMPUTED])]


def computed_lately(samples: list[Sample], seconds: float) -> float:
    """Frames computed in the last seconds."""
    last = samples[-1]
    before = [sample for sample in samples if sample.at <= last.at - seconds]
    return last.computed - before[-1].computed if before else 0.0


@promise(
    21,
    "memory has a ceiling",
    mark="100 streams x 5 MB frames, 30 s in 2 GiB: no OOM kill, sheds counted, answers go on",
)
def memory_ceiling(env: Env) -> Finding:
    """A hundred streams send a JPEG of noise at 3840x2160, about 5 MB each, ten times a second for
    30 s to a server with the real network that may use 2 GiB (a control group of its own). The
    kernel must kill nothing, the memory of frames in hand must stay within the quarter of that
    which is the default, frames beyond must be answered OVERLOADED and counted, frames must still
    be computed in the last ten seconds, and a camera with small pictures that comes afterwards must
    be served.
    """
    noise = pictures.noise_4k(env)
    size = (noise / "noise_4k.jpg").stat().st_size
    with Cgroup(env, MEMORY_LIMIT) as group, Server(env, cgroup=group) as server:
        if IN_HAND not in server.metrics():
            raise CannotRun(f"the server has no {IN_HAND}")
        load = start_sim(
            env, server.addr, "--images", str(noise), "--cameras", str(MEMORY_STREAMS),
            "--fps", str(FPS), "--seconds", str(MEMORY_SECONDS), "--connect-seconds", "30",
        )  # fmt: skip
        samples: list[Sample] = []
        while load.running():
            samples += sampled(server)
            time.sleep(0.2)
        report, alive = load.report(), server.alive()
        shed = server.metric(SHED) if alive else 0.0
        after = after_the_flood(server) if alive else "the server is gone"
        peak, kills = group.peak_bytes(), group.oom_kills()
    most = max(sample.in_hand for sample in samples)
    late = computed_lately(samples, LATE_SECONDS)
    figure = (
        f"{size / MIB:.1f} MiB frames: {kills} OOM kills, peak {peak / MIB:.0f} of "
        f"{MEMORY_LIMIT / MIB:.0f} MiB, frames in hand at most {most / MIB:.0f} MiB; {shed:.0f} shed, "
        f"{samples[-1].computed:.0f} computed ({late:.0f} in the last {LATE_SECONDS} s)"
    )
    held = alive and kills == 0 and shed > 0 and late > 0 and most <= MEMORY_LIMIT / 4 and not after
    return Finding(figure, held, after or "\n".join(report["reasons"]))


def after_the_flood(server: Server) -> str:
    """A camera with small pictures; what is wrong, if anything."""
    with Camera(server.addr, "after") as camera:
        answer = camera.exchange(1, picture(), 30)
    return "" if answer.outcome == "OK" else f"afterwards: {answer.outcome} {answer.detail}"
