#!/usr/bin/env python3
"""A client of the long run that sends what cameras should not: soak_client.py ADDR --seconds N.

It goes round all of the tests' pictures, whole and broken, raw frames of odd sizes and false ones,
heartbeats, single calls and frames faster than they can be taken. At its end, or at SIGTERM, it prints what
it was answered as one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from client import Answer, Camera, StreamEnded, stubs
from env import FIXTURES

# Requests per second on the stream, every so many of them a single call as well, and every so many a
# burst of frames at once.
PER_SECOND = 6.0
UNARY_EVERY = 5
BURST_EVERY = 20
BURST = 4

# Time in which answers must come once nothing is sent any more, in seconds.
PATIENCE_SECONDS = 60.0

# What may become of any frame on a machine that is busy; the other outcomes depend on the bytes alone.
OF_TIME = {"SUPERSEDED", "EXPIRED", "OVERLOADED"}


@dataclass(frozen=True)
class Case:
    """Something to send."""

    name: str
    data: bytes
    fields: dict[str, Any] = field(default_factory=dict)


def pattern(size: int) -> bytes:
    """Bytes that are no plain colour."""
    return (bytes(i * 37 % 251 for i in range(251)) * (size // 251 + 1))[:size]


def raw(layout: str, width: int, height: int, size: int, stride: int = 0) -> Case:
    """A raw frame of `size` bytes that calls itself `width` by `height`."""
    _, messages, _ = stubs()
    fields = {"width": width, "height": height, "stride": stride}
    fields["format"] = messages.PixelFormat.Value(layout)
    name = f"{layout} {width}x{height} stride {stride}, {size} bytes"
    return Case(name, pattern(size), fields)


def all_cases() -> list[Case]:
    """Everything, in a fixed order."""
    _, messages, _ = stubs()
    layout = messages.PixelFormat.Value
    files = {path.name: path.read_bytes() for path in sorted(FIXTURES.iterdir()) if path.is_file()}
    cases = [Case(name, data) for name, data in files.items()]
    for name, format_name, width, height in (
        ("nv12_640x360.raw", "NV12", 640, 360),
        ("nv12_639x359_evenpad.raw", "NV12", 639, 359),
        ("yuyv_640x360.raw", "YUYV", 640, 360),
    ):
        fields = {"format": layout(format_name), "width": width, "height": height}
        cases.append(Case(f"{name} as {format_name}", files[name], fields))
        cases.append(Case(f"half of {name} as {format_name}", files[name][::2], fields))
    cases += [
        raw("RGB24", 1, 1, 3),
        raw("RGB24", 17, 13, 17 * 13 * 3),
        raw("BGR24", 639, 359, 2048 * 359, 2048),
        raw("GRAY8", 33, 2000, 33 * 2000),
        raw("I420", 641, 361, 641 * 361 + 2 * 321 * 181),
        raw("GRAY8", 640, 480, 640 * 480, 100),
        raw("RGB24", 0, 480, 1000),
        raw("RGB24", 2**31, 2**31, 1000),
        raw("NV12", 1920, 1080, 1920 * 1080),
    ]
    whole = files["scene_1080p.jpg"]
    cases += [
        Case(f"{part}/8 of scene_1080p.jpg", whole[: len(whole) * part // 8])
        for part in range(1, 8)
    ]
    cases.append(Case("heartbeat", b"", {"heartbeat": True}))
    return cases


def meaning(found: Answer) -> str:
    """Outcome and stable reason."""
    reason = found.detail.partition(":")[0] if ":" in found.detail else ""
    named = found.outcome in ("BAD_IMAGE", "UNSUPPORTED")
    return f"{found.outcome} {reason}".strip() if named else found.outcome


@dataclass
class Books:
    """What was sent, and what became of it."""

    open: dict[int, str] = field(default_factory=dict)
    sent: int = 0
    answered: int = 0
    unary: int = 0
    cases: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def count(self, name: str, found: Answer) -> None:
        """Enters an answer to a case."""
        self.cases.setdefault(name, Counter())[meaning(found)] += 1

    def take(self, found: Answer) -> None:
        """Enters an answer on the stream."""
        name = self.open.pop(found.frame_id, None)
        if name is None:
            self.problems.append(f"answer to frame {found.frame_id}, which awaits none")
            return
        self.answered += 1
        self.count(name, found)

    def as_json(self) -> dict[str, Any]:
        """For whoever started this client."""
        return {
            "sent": self.sent,
            "answered": self.answered,
            "unary": self.unary,
            "unanswered": len(self.open),
            "cases": self.cases,
            "problems": self.problems,
        }


class Misuser:
    """One life: a connection and a stream."""

    def __init__(self, addr: str, first: int) -> None:
        self.camera = Camera(addr, "misuser")
        most = int(self.camera.info()["max_frame_bytes"])
        # The server keeps as much room for a stream as its largest message took, until the stream ends.
        # Sent last, this one does not lie over the memory that is watched.
        self.last = Case("more than max-frame-bytes", bytes(most + 1))
        cases = all_cases()
        self.cases: Iterator[Case] = itertools.cycle(cases[first % len(cases) :] + cases)
        self.books = Books()

    def send(self, case: Case) -> None:
        """Hands a case to the stream."""
        self.books.open[self.books.sent] = case.name
        self.camera.send(self.books.sent, case.data, **case.fields)
        self.books.sent += 1

    def call(self, case: Case) -> None:
        """Sends a case by the unary call."""
        try:
            found = self.camera.detect(case.data, timeout=PATIENCE_SECONDS, **case.fields)
        except StreamEnded as error:
            self.books.problems.append(f"Detect of {case.name}: {error}")
            return
        self.books.unary += 1
        self.books.count(case.name, found)

    def take_pending(self) -> None:
        """Enters the answers that have come."""
        for _ in range(self.camera.pending()):
            self.books.take(self.camera.next())

    def live(self, seconds: float, stopped: Callable[[], bool]) -> Books:
        """Sends for so long or until told to stop, then waits for what is open."""
        begin = time.monotonic()
        try:
            for turn in itertools.count(1):
                due = begin + turn / PER_SECOND
                while (wait := due - time.monotonic()) > 0 and not stopped():
                    time.sleep(min(wait, 0.2))
                if stopped() or due > begin + seconds:
                    break
                for _ in range(BURST if turn % BURST_EVERY == 0 else 1):
                    self.send(next(self.cases))
                if turn % UNARY_EVERY == 0:
                    self.call(next(self.cases))
                self.take_pending()
            self.call(self.last)
            self.send(self.last)
            self.camera.finish()
            self.take_rest()
        except StreamEnded as over:
            self.books.problems.append(f"the stream ended early: {over}")
        finally:
            self.camera.close()
        return self.books

    def take_rest(self) -> None:
        """Takes answers until the server ends the stream."""
        try:
            while True:
                self.books.take(self.camera.next(PATIENCE_SECONDS))
        except TimeoutError:
            self.books.problems.append("the server did not end the stream")
        except StreamEnded as over:
            if over.code != "OK":
                raise


def main() -> None:
    """The whole program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("addr")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--first", type=int, default=0, help="case to begin with")
    args = parser.parse_args()
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    books = Misuser(args.addr, args.first).live(args.seconds, lambda: bool(told))
    print(json.dumps(books.as_json()))


if __name__ == "__main__":
    main()
