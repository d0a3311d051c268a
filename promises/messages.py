"""Promises of messages: too large, not protobuf, not a picture."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client import Camera, answer, prefixed, request, stubs
from env import FIXTURES, Env, picture
from install import FUZZER
from promise import Finding, promise
from server import SPIN, Server

if TYPE_CHECKING:
    from wire import Wire

MIB = 1 << 20

# Damaged pictures sent, and cameras that send them.
DAMAGED_FRAMES = 3000
DAMAGED_CAMERAS = 8

# The fuzz targets that decode, and CPU time for each, in seconds.
FUZZ_TARGETS = ("decode", "raw", "request")
FUZZ_SECONDS = 30

# Number and name of the gRPC status codes that a broken message may end with.
REFUSALS = {
    "3": "INVALID_ARGUMENT",
    "8": "RESOURCE_EXHAUSTED",
    "11": "OUT_OF_RANGE",
    "13": "INTERNAL",
}


@promise(
    11,
    "oversize frames",
    mark="above the limit BAD_IMAGE, above twice refused unread; only that stream ends; RSS < +4 MiB",
)
def oversize(env: Env) -> Finding:
    """With --max-frame-bytes 1000000: a frame of 1,000,001 bytes is answered BAD_IMAGE with TOO_LARGE,
    and its stream goes on. One of 2,200,000 bytes, and prefixes that announce 100 MB and 4 GiB - 1, end
    their stream with RESOURCE_EXHAUSTED or OUT_OF_RANGE before they are read: memory grows by the
    streams' windows of 1 MiB at most, not by what is announced. Another stream on the same connection
    is served before and after each."""
    from wire import Wire

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
        and grown < 4
        and alive
    )
    figure = f"{outcomes[1]}; {', '.join(codes)}; RSS {grown:+.2f} MiB; neighbour {outcomes[3:]}"
    return Finding(figure, held)


def ask(wire: Wire, stream: int, data: bytes) -> str:
    """Sends a frame and returns its outcome, with the stable reason where there is one."""

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


@dataclass(frozen=True)
class Fuzzed:
    """Inputs that the fuzz targets were run with, and what went wrong; empty if nothing did."""

    runs: int
    failure: str


def fuzz(env: Env) -> Fuzzed:
    """Runs the fuzz targets of the decoder, as built before."""
    if not FUZZER.exists():
        return Fuzzed(0, "fuzz/run.py does not exist")
    table = env.work / "fuzz.json"
    options = ["--no-build", "--seconds", str(FUZZ_SECONDS), "--json", table]
    # On a busy machine the seconds of CPU time that it is given take longer.
    limit = 6 * FUZZ_SECONDS * len(FUZZ_TARGETS) + 60
    done = env.run([sys.executable, FUZZER, *options, *FUZZ_TARGETS], limit)
    results = json.loads(table.read_text(encoding="utf-8")) if table.exists() else []
    failure = "" if done.returncode == 0 else f"{done.stdout[-1500:]}{done.stderr[-500:]}"
    return Fuzzed(sum(result["executions"] for result in results), failure)


@promise(
    12,
    "malformed messages",
    mark="only that stream ends, INTERNAL or INVALID_ARGUMENT; decoder fuzzed without a crash",
    seconds=900,
)
def malformed(env: Env) -> Finding:
    """Ten kinds of broken message (garbage behind the five-byte prefix, protobuf that is none, a
    compressed flag that nothing announced, streams that end within a message), each on a stream of its
    own: it ends with INTERNAL or INVALID_ARGUMENT, and another stream of the same connection goes on.
    Then a server with a model gets 3,000 frames, every fixture picture with seeded damage: each has
    exactly one answer, and no worker panics. Last, the cargo-fuzz targets of the decoder (fuzz/) get 30 s
    of CPU time each: any bytes as a picture, as raw pixels and as a request are decoded or refused."""
    codes, served, alive = broken_messages(env)
    refused = sum(code in ("INTERNAL", "INVALID_ARGUMENT") for code in codes.values())
    sent, answered, panics = damaged_pictures(env)
    fuzzed = fuzz(env)
    held = (
        refused == len(codes) == 10
        and served == ["OK"] * (len(codes) + 1)
        and alive
        and sent == answered
        and panics == 0
        and not fuzzed.failure
        and fuzzed.runs > 0
    )
    figure = (
        f"{refused} of {len(codes)} refused in order, neighbour {served.count('OK')} of {len(served)}; "
        f"{answered} of {sent} damaged pictures answered, {panics:.0f} panics; "
        f"{fuzzed.runs:,} fuzz runs{', FAILED' if fuzzed.failure else ''}"
    )
    lines = [*(f"{kind}: {code}" for kind, code in codes.items()), fuzzed.failure]
    return Finding(figure, held, "\n".join(lines).rstrip())


def broken_messages(env: Env) -> tuple[dict[str, str], list[str], bool]:
    """Sends each broken message on a stream of its own: the status of each, the outcomes of another
    stream of the same connection between them, and whether the connection lives on."""
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
        return codes, served, wire.goaway is None and not wire.closed
