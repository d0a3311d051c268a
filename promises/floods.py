"""Promises against clients that break the rules: what they cost their neighbours, and the server."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from client import Camera
from env import FIXTURES, Env, picture
from promise import Finding, promise
from server import SPIN, STREAMS, STREAMS_OPENED, Server
from sim import Report, run_sim, start_sim

HERE = Path(__file__).resolve().parent
MIB = 1 << 20

# Slowest answer of a well-behaved camera, in milliseconds: before its next frame at 10 FPS.
NEIGHBOUR_MS = 100.0

# Damaged pictures sent, and cameras that send them.
DAMAGED_FRAMES = 3000
DAMAGED_CAMERAS = 8

# Number and name of the gRPC status codes that a broken message may end with.
REFUSALS = {
    "3": "INVALID_ARGUMENT",
    "8": "RESOURCE_EXHAUSTED",
    "11": "OUT_OF_RANGE",
    "13": "INTERNAL",
}


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
    mark="RSS < +8 MiB; neighbours' p99 within 1 ms of alone",
    quiet=True,
)
def slow_reader(env: Env) -> Finding:
    """A client announces a window of 0, so that no byte of an answer can be sent to it, and sends
    frames of 178 KB at 10 FPS for 60 s, as far as the server takes them. Five cameras at 10 FPS play
    before, beside it and after it. Resident memory is sampled every half second while it is there and
    compared with that of the five alone; their p99 with the larger one of their two runs alone."""
    fleet = ("--cameras", "5", "--warmup", "2", "--seconds")
    file = FIXTURES / "scene_1080p.jpg"
    with Server(env, *SPIN) as server:
        before = run_sim(env, server.addr, *fleet, "20")
        memory = server.rss_bytes()
        sim = start_sim(env, server.addr, *fleet, "60")
        options = ["--seconds", "60", "--file", file]
        slow = env.spawn(
            [sys.executable, HERE / "flood.py", "slow-reader", server.addr, *options],
            stdout=-1,
            text=True,
        )
        peak = memory
        while slow.poll() is None:
            peak = max(peak, server.rss_bytes())
            time.sleep(0.5)
        found = json.loads(slow.communicate()[0])
        report = sim.report()
        after = run_sim(env, server.addr, *fleet, "20")
    grown = (peak - memory) / MIB
    alone = max(before["p99_ms"], after["p99_ms"])
    lost = [run["sent"] - run["ok"] for run in (before, report, after)]
    held = (
        grown < 8
        and report["p99_ms"] <= alone + 1
        and lost == [0, 0, 0]
        and found["frames"] > 0
        and found["answer_bytes"] == 0
        and not found["closed"]
    )
    figure = (
        f"RSS {grown:+.1f} MiB; p99 {report['p99_ms']:.1f} ms, alone {before['p99_ms']:.1f} and "
        f"{after['p99_ms']:.1f} ms; it got rid of {found['frames']} of 600 frames"
    )
    return Finding(figure, held)


@promise(
    5,
    "rapid reset and CONTINUATION floods",
    mark="GOAWAY or close; neighbour at 10 FPS max < 100 ms",
    quiet=True,
)
def http2_floods(env: Env) -> Finding:
    """On one connection 20,000 times HEADERS and RST_STREAM (CVE-2023-44487, RUSTSEC-2024-0003); on
    others HEADERS without END_HEADERS and 10,000 CONTINUATION frames of 0, 1 and 16,384 bytes
    (RUSTSEC-2024-0332). Each must be ended with GOAWAY or a closed connection. A fifth attack resets
    ten streams at a time, slowly enough to stay below such limits; it must cost nobody anything. A
    camera at 10 FPS plays through all of it."""
    found: dict[str, dict[str, Any]] = {}

    def work(addr: str) -> None:
        found["reset"] = flood(env, "reset", addr, "--count", "20000")
        for size in ("0", "1", "16384"):
            options = ("--count", "10000", "--size", size)
            found[f"continuation {size}"] = flood(env, "continuation", addr, *options)
        slowly = ("--count", "20000", "--per-write", "10")
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


@promise(
    11,
    "oversize frames",
    mark="above the limit BAD_IMAGE, above twice refused unread; only that stream ends; RSS < +1 MiB",
)
def oversize(env: Env) -> Finding:
    """With --max-frame-bytes 1000000: a frame of 1,000,001 bytes is answered BAD_IMAGE with TOO_LARGE,
    and its stream goes on. One of 2,200,000 bytes, and prefixes that announce 100 MB and 4 GiB - 1, end
    their stream with RESOURCE_EXHAUSTED or OUT_OF_RANGE before they are read: memory does not grow by
    what they announce. Another stream on the same connection is served before and after each."""
    from wire import Wire, prefixed

    outcomes: list[str] = []
    codes: list[str] = []
    with Server(env, *SPIN, "--max-frame-bytes", "1000000") as server, Wire(server.addr) as wire:
        good = wire.open()
        outcomes.append(ask(wire, good, picture()))
        big = wire.open()
        outcomes.append(ask(wire, big, picture() + bytes(1_000_001 - len(picture()))))
        outcomes.append(ask(wire, big, picture()))
        memory = server.rss_bytes()
        huge = prefixed(bytes(2_200_000))
        announced = (prefixed(bytes(100_000), length=n) for n in (100_000_000, 2**32 - 1))
        for data in (huge, *announced):
            stream = wire.open()
            wire.send(stream, data, 2)
            codes.append(
                REFUSALS.get(wire.over(stream).grpc_status, wire.over(stream, 0).grpc_status)
            )
            outcomes.append(ask(wire, good, picture()))
        grown = (server.peak_rss_bytes() - memory) / MIB
        counted = server.metric('vedette_bad_frames_total{reason="too_large"}')
        alive = wire.goaway is None and not wire.closed
    held = (
        outcomes == ["OK", "BAD_IMAGE TOO_LARGE", "OK", "OK", "OK", "OK"]
        and all(code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") for code in codes)
        and len(codes) == 3
        and counted == 1
        and grown < 1
        and alive
    )
    figure = f"{outcomes[1]}; {', '.join(codes)}; RSS {grown:+.2f} MiB; neighbour {outcomes[3:]}"
    return Finding(figure, held)


def ask(wire: Any, stream: int, data: bytes) -> str:
    """Sends a frame and returns its outcome, with the stable reason where there is one."""
    from client import answer, request, stubs
    from wire import prefixed

    wire.send(stream, prefixed(request(7, data).SerializeToString()))
    message = wire.message(stream)
    if message is None:
        return f"no answer, status {wire.streams[stream].grpc_status or 'none'}"
    found = answer(stubs()[1].DetectResponse.FromString(message))
    reason = found.detail.partition(":")[0]
    return (
        f"{found.outcome} {reason}"
        if found.outcome in ("BAD_IMAGE", "UNSUPPORTED")
        else found.outcome
    )


def broken(picture_bytes: bytes) -> Iterator[tuple[str, bytes]]:
    """Messages that are none, each with the bytes of a stream."""
    from client import request
    from wire import prefixed

    good = request(1, picture_bytes).SerializeToString()
    yield "garbage behind the prefix", prefixed(random.Random(12).randbytes(500))
    yield "wire type 7", prefixed(b"\x0f\x01")
    yield "field 0", prefixed(b"\x00\x01")
    yield "length beyond the message", prefixed(b"\x12\xff\xff\xff\x7f" + bytes(20))
    yield "varint of eleven bytes", prefixed(b"\x08" + b"\xff" * 10 + b"\x01")
    yield "cut in the middle of a field", prefixed(good[: len(good) // 2])
    yield "compressed flag without an encoding", prefixed(good, compressed=1)
    yield "compressed flag 0xff", prefixed(good, compressed=0xFF)
    yield "prefix cut short", prefixed(good)[:3]
    yield "message cut short", prefixed(good)[:-10]


def damaged(seed: int, whole: bytes) -> bytes:
    """A picture with a few bytes changed, a piece cut out, doubled, or its end lost."""
    chance = random.Random(seed)
    data = bytearray(whole)
    for _ in range(chance.randint(1, 8)):
        at, length = chance.randrange(len(data)), chance.randint(1, 64)
        match chance.randrange(5):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2 if len(data) > 2 * length:
                del data[at : at + length]
            case 3:
                data[at:at] = data[at : at + length]
            case _:
                data = data[: max(1, at)] if chance.randrange(4) == 0 else data
    return bytes(data)


def damaged_pictures(env: Env) -> tuple[int, int, float]:
    """Sends damaged pictures to a server that decodes them: sent, answered, and panics of workers."""
    whole = [path.read_bytes() for path in sorted(FIXTURES.glob("*.*")) if path.stat().st_size > 0]
    model = FIXTURES / "models" / "cells_dynbatch.onnx"
    answered: Counter[str] = Counter()

    def one(camera: Camera, first: int) -> None:
        for seed in range(first, DAMAGED_FRAMES, DAMAGED_CAMERAS):
            answer = camera.exchange(
                seed, damaged(seed, whole[seed % len(whole)]), budget_ms=60_000
            )
            answered[answer.outcome if answer.frame_id == seed else "wrong id"] += 1

    with Server(env, "--model", str(model)) as server:
        cameras = [Camera(server.addr, f"damaged-{n}") for n in range(DAMAGED_CAMERAS)]
        with ThreadPoolExecutor(DAMAGED_CAMERAS) as pool:
            list(pool.map(one, cameras, range(DAMAGED_CAMERAS)))
        for camera in cameras:
            camera.close()
        panics = server.metric("vedette_worker_panics_total")
    env.say(f"damaged pictures: {dict(answered)}")
    return DAMAGED_FRAMES, answered.total() - answered["wrong id"], panics


@promise(
    12,
    "malformed messages",
    mark="only that stream ends, INTERNAL or INVALID_ARGUMENT; decoder fuzzed without a crash",
)
def malformed(env: Env) -> Finding:
    """Ten kinds of broken message (garbage behind the five-byte prefix, protobuf that is none, a
    compressed flag that nothing announced, streams that end within a message), each on a stream of its
    own: it ends with INTERNAL or INVALID_ARGUMENT, and another stream of the same connection goes on.
    Then the server with its model gets 3,000 frames, every fixture picture with seeded damage: each
    has exactly one answer, no worker panics. The fuzz target of the decoder, fuzz/, runs in
    `make fuzz`; without one this row fails."""
    from wire import Wire

    codes: dict[str, str] = {}
    with Server(env, *SPIN) as server, Wire(server.addr) as wire:
        good = wire.open()
        served = [ask(wire, good, picture())]
        for kind, data in broken(picture()):
            stream = wire.open()
            wire.send(stream, data)
            wire.finish(stream)
            ended = wire.over(stream)
            codes[kind] = REFUSALS.get(ended.grpc_status, f"status {ended.grpc_status or ended}")
            served.append(ask(wire, good, picture()))
        alive = wire.goaway is None and not wire.closed
    refused = sum(code in ("INTERNAL", "INVALID_ARGUMENT") for code in codes.values())
    sent, answered, panics = damaged_pictures(env)
    target = (env.root / "fuzz" / "Cargo.toml").exists()
    held = (
        refused == len(codes)
        and served == ["OK"] * (len(codes) + 1)
        and alive
        and sent == answered
        and panics == 0
        and target
    )
    figure = (
        f"{refused} of {len(codes)} refused in order, neighbour {served.count('OK')} of {len(served)}; "
        f"{answered} of {sent} damaged pictures answered, {panics:.0f} panics"
        f"{'' if target else '; no fuzz target'}"
    )
    return Finding(figure, held, "\n".join(f"{kind}: {code}" for kind, code in codes.items()))
