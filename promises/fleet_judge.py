"""The arithmetic of a fleet's test: who was where, when a camera was back, how even, whether nothing is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A camera that lost its server has to have its first OK answer from another one within this, in seconds.
BACK_SECONDS = 3.0

# No server may be further from the mean of a phase than this, as a share of the mean.
EVEN_SHARE = 0.20

# Frames that a camera may lose with a server that is killed: the one in hand, and one that left before the end
# of its stream was seen.
LOST_WITH_THE_KILLED = 2

# How a camera's last stream may have ended: with the play, or just before, for its age, in order.
ENDS = ("complete", "UNAVAILABLE: server shut down")

# A stream that was opened: when, in seconds since the Unix epoch, on which server, by which camera.
Opened = tuple[float, str, str]


def cameras_on(server: str, opened: Sequence[Opened], at: float) -> list[str]:
    """Cameras whose latest stream before an instant was opened on a server."""
    latest: dict[str, tuple[float, str]] = {}
    for when, where, camera in opened:
        if when <= at and when >= latest.get(camera, (0.0, ""))[0]:
            latest[camera] = (when, where)
    return sorted(camera for camera, (_, where) in latest.items() if where == server)


@dataclass(frozen=True)
class Beat:
    """When a camera's frames are due: the first one, in seconds since the Unix epoch, and how many a second."""

    first: float
    fps: float

    @classmethod
    def of(cls, report: Mapping[str, Any], index: int) -> Beat:
        """Of camera `index` of a run with the phase `even`: camera i of n begins at i / n of a period."""
        phase = index / report["cameras"] / report["fps"]
        return cls(report["started_unix_ms"] / 1000 + phase, report["fps"])


def back_after(camera: Mapping[str, Any], beat: Beat, started: float, at: float) -> float | None:
    """Seconds from an instant to a camera's first OK answer to a frame that was due later; never less than it
    really took. `None`: not back until the end.

    A report tells, for each second, how many of the camera's frames were not answered OK and how late the
    slowest OK answer was. If m were missed in a second, one of the first m + 1 frames was answered OK, no
    later than the slowest.
    """
    bins = list(zip(camera["bins_missed"], camera["bins_max_ms"], strict=True))
    for number in range(max(0, int(at - started)), len(bins)):
        missed, slowest_ms = bins[number]
        low, high = started + number, started + number + 1
        first = max(0, int((low - beat.first) * beat.fps) - 1)
        dues = [beat.first + k / beat.fps for k in range(first, first + int(beat.fps) + 4)]
        after = [due for due in dues if low <= due < high and due >= at]
        if len(after) > missed and slowest_ms is not None:
            return after[missed] + slowest_ms / 1000 - at
    return None


def farthest(counts: Mapping[str, float]) -> float:
    """How far the server that is furthest from the mean is from it, as a share of the mean."""
    mean = sum(counts.values()) / len(counts) if counts else 0.0
    return max(abs(count - mean) for count in counts.values()) / mean if mean else float("inf")


@dataclass(frozen=True)
class Book:
    """What a server counted: frames received, what became of frames, and those whose client had left."""

    received: int
    outcomes: int
    client_gone: int = 0


@dataclass(frozen=True)
class Accounts:
    """Cameras' frames against servers' frames, at the end of a play."""

    sent: int
    answered: int
    lost: int
    unaccepted: int
    # Frames received by servers that live or drained, and answered by them.
    received: int
    outcomes: int
    # Answered by servers that were killed: at least so many, counted just before, and at most so many.
    killed_low: int
    killed_high: int
    wrong: tuple[str, ...]

    @property
    def killed(self) -> int:
        """Answers that only a killed server can have given."""
        return self.answered - self.outcomes


def total(report: Mapping[str, Any], key: str) -> int:
    """A count of a report, its warm-up included."""
    return int(report[key]) + int(report["warmup"][key])


def settle(
    report: Mapping[str, Any],
    books: Mapping[str, Book],
    killed: Book,
    struck: Sequence[str],
) -> Accounts:
    """Holds cameras' and servers' books against each other. `killed` is the last that a killed server said,
    `struck` the cameras that were on it."""
    wrong = []
    for name, book in books.items():
        if book.received != book.outcomes:
            wrong.append(f"{name} received {book.received} frames and accounts for {book.outcomes}")
        if book.client_gone:
            wrong.append(f"{name} had {book.client_gone} answers for cameras that had left")
    accounts = Accounts(
        sent=total(report, "sent"),
        answered=total(report, "answered"),
        lost=total(report, "lost"),
        unaccepted=total(report, "unaccepted"),
        received=sum(book.received for book in books.values()),
        outcomes=sum(book.outcomes for book in books.values()),
        killed_low=killed.outcomes,
        # Between that look and the signal each of its cameras may have had one more.
        killed_high=killed.outcomes + len(struck),
        wrong=(),
    )
    if not accounts.killed_low <= accounts.killed <= accounts.killed_high:
        wrong.append(
            f"cameras have {accounts.answered} answers, servers that live or drained gave "
            f"{accounts.outcomes}, and the killed one {killed.outcomes}"
        )
    for camera in report["per_camera"]:
        lost = total(camera, "lost")
        if lost > (LOST_WITH_THE_KILLED if camera["camera_id"] in struck else 0):
            wrong.append(f"{camera['camera_id']} lost {lost} frames; on the killed server were {', '.join(struck)}")
        if camera["protocol_errors"]:
            wrong.append(f"{camera['camera_id']}: {camera['first_protocol_error']}")
        if camera["end"] not in ENDS:
            wrong.append(f"{camera['camera_id']} ended: {camera['end']}")
    return Accounts(**{**vars(accounts), "wrong": tuple(wrong)})
