"""Promises against clients that break the rules: what they cost their neighbours, and the server."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from env import FIXTURES, Env
from promise import Finding, promise
from server import SPIN, STREAMS, STREAMS_OPENED, Server
from sim import Report, run_sim, start_sim

HERE = Path(__file__).resolve().parent
MIB = 1 << 20

# Slowest answer of a well-behaved camera, in milliseconds: before its next frame at 10 FPS.
NEIGHBOUR_MS = 100.0

# Times that each flood comes, from a new connection.
FLOODS = 5

# The neighbours of a slow reader; how long they play follows.
FIVE_CAMERAS = ("--cameras", "5", "--warmup", "2", "--seconds")


def flood(env: Env, kind: str, addr: str, *options: str, seconds: float = 90.0) -> dict[str, Any]:
    """Runs flood.py in a process of its own and returns how the server took it."""
    done = env.run([sys.executable, HERE / "flood.py", kind, addr, *options], seconds)
    if done.returncode != 0:
        raise RuntimeError(f"flood.py {kind}: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def beside(env: Env, server: Server, work: Callable[[], None]) -> Report:
    """Plays a camera of 10 FPS while the work is done, and returns its report."""
    sim = start_sim(env, server.addr, "--cameras", "1", "--seconds", "120", "--warmup", "0")
    try:
        time.sleep(1)
        work()
        time.sleep(1)
        sim.interrupt()
        return sim.report(20)
    except BaseException:
        sim.kill()
        raise


def undisturbed(report: Report) -> bool:
    """Whether every frame of the neighbours was answered, and each within their limit."""
    return (
        0 < report["sent"] == report["ok"]
        and report["max_ms"] < NEIGHBOUR_MS
        and report["reconnects"]["count"] == 0
    )


def neighbour(report: Report) -> str:
    """The neighbours' part of a figure."""
    return f"neighbour {report['ok']} of {report['sent']}, max {report['max_ms']:.1f} ms"


@promise(
    2,
    "a slow reader costs its neighbours nothing",
    mark="RSS < +8 MiB; neighbours' p99 within 1 ms of that on a server without it; CPU < +5 % of a core",
    quiet=True,
)
def slow_reader(env: Env) -> Finding:
    """A client announces a window of 0, so that no byte of an answer can be sent to it, and sends
    frames of 178 KB at 10 FPS for 60 s, as far as the server takes them. Five cameras at 10 FPS play
    beside it, and five others at a second server that has no such client: a stall of the machine
    hits both. Three times, for the median of what their p99 differ by and of how much more of a core
    the first server takes. Resident memory is sampled every half second and compared with that of
    five cameras alone."""
    with Server(env, *SPIN) as server, Server(env, *SPIN) as witness:
        run_sim(env, server.addr, *FIVE_CAMERAS, "20")
        memory = server.rss_bytes()
        rounds = [slow_reading(env, server, witness) for _ in range(3)]
    grown = (max(each["peak"] for each in rounds) - memory) / MIB
    later = statistics.median(each["p99_ms"] - each["witness_p99_ms"] for each in rounds)
    busier = statistics.median(each["cores"] - each["witness_cores"] for each in rounds)
    held = (
        grown < 8
        and later <= 1
        and busier <= 0.05
        and all(each["lost"] == 0 for each in rounds)
        and all(each["frames"] > 0 for each in rounds)
        and not any(each["answer_bytes"] or each["closed"] for each in rounds)
    )
    p99s = ", ".join(f"{each['p99_ms']:.1f} and {each['witness_p99_ms']:.1f}" for each in rounds)
    figure = (
        f"RSS {grown:+.1f} MiB; p99 {p99s} ms: {later:+.1f} ms; CPU {100 * busier:+.1f} % of a core; it "
        f"got rid of {', '.join(str(each['frames']) for each in rounds)} of 600 frames"
    )
    return Finding(figure, held)


def slow_reading(env: Env, server: Server, witness: Server) -> dict[str, Any]:
    """A slow reader's stay of 60 s at one of two servers that have five cameras each."""
    servers = (server, witness)
    used = [each.cpu_seconds() for each in servers]
    sims = [start_sim(env, each.addr, *FIVE_CAMERAS, "58") for each in servers]
    options = ["--seconds", "60", "--file", FIXTURES / "scene_1080p.jpg"]
    slow = env.spawn(
        [sys.executable, HERE / "flood.py", "slow-reader", server.addr, *options],
        stdout=-1,
        text=True,
    )
    began, peak = time.monotonic(), 0
    while slow.poll() is None:
        peak = max(peak, server.rss_bytes())
        time.sleep(0.5)
    reports = [sim.report() for sim in sims]
    took = time.monotonic() - began
    cores = [(each.cpu_seconds() - before) / took for each, before in zip(servers, used, strict=True)]
    found: dict[str, Any] = json.loads(slow.communicate()[0])
    return found | {
        "peak": peak,
        "p99_ms": reports[0]["p99_ms"],
        "witness_p99_ms": reports[1]["p99_ms"],
        "cores": cores[0],
        "witness_cores": cores[1],
        "lost": sum(report["sent"] - report["ok"] for report in reports),
    }


@promise(
    5,
    "rapid reset and CONTINUATION floods",
    mark="GOAWAY or close; neighbour at 10 FPS max < 100 ms",
    quiet=True,
)
def http2_floods(env: Env) -> Finding:
    """On one connection 20,000 times HEADERS and RST_STREAM (CVE-2023-44487, RUSTSEC-2024-0003); on
    others HEADERS without END_HEADERS and 10,000 CONTINUATION frames of 0, 1 and 16,384 bytes
    (RUSTSEC-2024-0332), all of it five times. Each must be ended with GOAWAY or a closed connection.
    The last attack resets ten streams every 5 ms, slowly enough to stay below such limits; it must
    cost nobody anything. A camera at 10 FPS plays through all of it."""
    found: dict[str, dict[str, Any]] = {}

    def work(addr: str) -> None:
        for again in range(1, FLOODS + 1):
            found[f"reset {again}"] = flood(env, "reset", addr, "--count", "20000")
            for size in ("0", "1", "16384"):
                options = ("--count", "10000", "--size", size)
                found[f"continuation {size} {again}"] = flood(env, "continuation", addr, *options)
        slowly = ("--count", "20000", "--per-write", "10", "--pause-ms", "5")
        found["slow reset"] = flood(env, "reset", addr, *slowly)

    with Server(env, *SPIN) as server:
        report = beside(env, server, lambda: work(server.addr))
        server.wait_metric(STREAMS, 0, 5)
    ended = {kind: took["closed"] or took["goaway"] is not None for kind, took in found.items()}
    required = [kind for kind in found if kind != "slow reset"]
    held = undisturbed(report) and all(ended[kind] for kind in required)
    count = sum(ended[kind] for kind in required)
    detail = "\n".join(f"{kind}: {json.dumps(took)}" for kind, took in found.items())
    return Finding(f"{count} of {len(required)} ended; {neighbour(report)}", held, detail)


@promise(10, "metadata floods", mark="rejected; RSS < +1 MiB; other streams fine", quiet=True)
def metadata_flood(env: Env) -> Finding:
    """Calls with 1 MiB of metadata under one key, and with 1,000 small keys (48 KB as HTTP/2 counts),
    50 of each, one connection each. None may become a stream; each is refused by status 431, RST_STREAM,
    GOAWAY or a closed connection. Memory after the first of each kind and after the last; a camera at
    10 FPS plays beside them. A call with ten keys in the same way is served, so the refusals are not
    the tool's fault."""
    refused: list[bool] = []
    memory: list[int] = []
    counts: list[float] = []
    kinds = (("1", str(MIB)), ("1000", "8"))

    def send(keys: str, size: str) -> dict[str, Any]:
        return flood(env, "metadata", server.addr, "--count", keys, "--size", size)

    def work() -> None:
        served = send("10", "8")
        counts.append(server.metric(STREAMS_OPENED))
        assert served["statuses"] == ["200"], served
        for number in range(50):
            for keys, size in kinds:
                took = send(keys, size)
                ended = took["closed"] or took["goaway"] is not None or took["resets"]
                refused.append(
                    bool("431" in took["statuses"] or ended) and "200" not in took["statuses"]
                )
            if number in (0, 49):
                memory.append(server.rss_bytes())
        counts.append(server.metric(STREAMS_OPENED))

    with Server(env, *SPIN) as server:
        report = beside(env, server, work)
    grown = (memory[1] - memory[0]) / MIB
    became = counts[1] - counts[0]
    held = (
        all(refused) and len(refused) == 100 and became == 0 and grown < 1 and undisturbed(report)
    )
    figure = (
        f"{sum(refused)} of {len(refused)} rejected, {became:.0f} became streams; RSS {grown:+.2f} MiB; "
        f"{neighbour(report)}"
    )
    return Finding(figure, held)
