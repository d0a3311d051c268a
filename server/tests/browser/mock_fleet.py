"""A fleet that exists on paper: what the live page's events would say of it, and pictures to the pixel.

Deterministic: a camera's figures follow from its number and the second. Nothing here measures anything.
"""

from __future__ import annotations

import json
import math
import struct
import threading
import time
import zlib
from typing import Any

LIMIT_MS = 100
HISTORY = 300
SPARK = 60
# As in server/src/limits.rs.
STALE_SECONDS = 1.75
PICTURE_SIZE = (640, 480)
GROUND = (96, 104, 112)
# Text that would run, if anything on the page read it as markup.
HOSTILE = "TRUNCATED: <img src=x onerror=alert(1)> & <script>alert(2)</script>"
OUTCOMES = (
    "ok", "superseded", "expired", "overloaded", "bad_image", "unsupported", "internal", "heartbeat", "client_gone",
)
LABELS = {0: "person", 2: "car", 9: "traffic light", 16: "dog"}

Second = dict[str, Any]
Colour = tuple[int, int, int]


def scattered(one: int, other: int) -> float:
    """A number of 0 to 1 that follows from two others without showing it."""
    value = (one * 0x9E3779B1 + other * 0x85EBCA77) & 0xFFFFFFFF
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        value = ((value ^ (value >> shift)) * factor) & 0xFFFFFFFF
    return (value ^ (value >> 15)) / 2**32


class MockCamera:
    """One camera, with its own speed and habits."""

    def __init__(self, number: int, base_ms: float) -> None:
        self.number = number
        self.name = f"cam-{number:03}"
        self.base_ms = base_ms
        self.state = "live"
        self.silent_since: float | None = None
        self.refused = 0
        self.seq = 0

    def slowest(self, second: int) -> float:
        """Slowest answer of a second in ms; a rare one is late."""
        chance = scattered(self.number, second)
        return round(self.base_ms * (0.85 + 0.45 * chance) + (90.0 if chance * 997 % 1 > 0.9985 else 0.0), 2)

    def silence(self, now: float) -> float:
        """Seconds since its last message."""
        return 0.05 if self.silent_since is None else now - self.silent_since

    def shown_state(self, now: float) -> str:
        """As the server would say it."""
        if self.state == "gone":
            return "gone"
        return "stale" if self.silence(now) > STALE_SECONDS else "live"

    def sends(self, second: float) -> bool:
        """Whether it sent in that second."""
        return self.silent_since is None or second < self.silent_since


class MockFleet:
    """Cameras, and what the server says about them."""

    def __init__(self, cameras: int, preview: bool = True) -> None:
        self.lock = threading.Lock()
        self.started = time.time() - 812.0
        self.preview = preview
        self.ready = True
        self.known_headroom = True
        self.broken_pictures = False
        self.more_dropped = 0.0
        self.cameras = [MockCamera(n, 14.0 + 26.0 * ((n * 7) % 10) / 10) for n in range(1, cameras + 1)]

    def stop(self, name: str) -> None:
        """A camera goes silent now, its connection stays."""
        self._camera(name).silent_since = time.time()

    def leave(self, name: str) -> None:
        """A camera disconnects now."""
        camera = self._camera(name)
        camera.state, camera.silent_since = "gone", time.time()

    def resume(self, name: str) -> None:
        """It is there again, and sends."""
        camera = self._camera(name)
        camera.state, camera.silent_since = "live", None

    def refuse(self, name: str, frames: int) -> None:
        """So many of a camera's frames were no pictures."""
        self._camera(name).refused = frames

    def slow(self, name: str, base_ms: float) -> None:
        """A camera's answers take longer from now on, and did before."""
        self._camera(name).base_ms = base_ms

    def _camera(self, name: str) -> MockCamera:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def find(self, name: str) -> MockCamera | None:
        """A camera by its name."""
        return next((camera for camera in self.cameras if camera.name == name), None)

    def fleet_event(self, now: float, first: bool) -> dict[str, Any]:
        """As `GET /live/fleet` tells it."""
        second = int(now)
        last = self._second(self.cameras, second - 1)
        slow10 = self._slowest(second, 10)
        dropped = sum(self._second(self.cameras, second - back)["dropped"] for back in range(1, 11)) / 10 + self.more_dropped
        failed = sum(self._second(self.cameras, second - back)["failed"] for back in range(1, 11)) / 10
        here = [camera for camera in self.cameras if camera.state != "gone"]
        stale = sum(camera.shown_state(now) == "stale" for camera in here)
        sending = len(here) - stale
        busy = min(1.0, 0.0275 * sending + 0.01 * math.sin(now))
        up = now - self.started
        received = int(sending * 10 * up)
        event: dict[str, Any] = {
            "now_ms": int(now * 1000), "uptime_seconds": int(up), "version": "0.1.0",
            "model": {"name": "yolox_nano", "backend": "onnx", "input": [416, 416]},
            "ready": self.ready, "not_ready_reason": None if self.ready else "shutting down",
            "workers": 2, "max_cameras": 256, "preview": self.preview, "limit_ms": LIMIT_MS,
            "cameras": {"connected": len(here), "live": sending, "stale": stale},
            "frames": {"received": received, "outcomes": self._outcomes(received, sum(c.refused for c in self.cameras))},
            "rates": {"received": round(last["answered"] + dropped + failed, 2), "answered": last["answered"],
                      "dropped": dropped, "failed": failed},
            "slowest_ms": {"10s": slow10, "60s": self._slowest(second, 60)},
            "busy": round(busy, 2),
            "headroom": max(-8, int(0.85 / 0.0275) - sending) if self.known_headroom else None,
            "stage_cores": {"decode": round(busy * 0.26, 2), "preprocess": round(busy * 0.05, 2),
                            "inference": round(busy * 1.65, 2), "postprocess": round(busy * 0.03, 2)},
            "memory_bytes": 142_000_000,
            "list": [self._line(camera, now) for camera in self.cameras],
        }
        if first:
            event["history"] = [self._second(self.cameras, second - back) for back in range(HISTORY, 0, -1)]
        else:
            event["last"] = last
        return event

    def camera_event(self, camera: MockCamera, now: float, first: bool) -> dict[str, Any]:
        """As `GET /live/cameras/NAME` tells it."""
        second = int(now)
        line = self._line(camera, now)
        up = 810 - (camera.silence(now) if camera.silent_since else 0)
        received = int(10 * up)
        answered = line["slowest_ms"] is not None
        mean = line["mean_ms"] or 0.0
        line |= {
            "streams": 0 if camera.state == "gone" else 1, "connected_seconds": 810, "size": list(PICTURE_SIZE),
            "received": received, "outcomes": self._outcomes(received, camera.refused),
            "detail": HOSTILE if camera.refused else "", "detail_outcome": "bad_image" if camera.refused else None,
            "stages_ms": {"queue": round(mean * 0.22, 2), "decode": round(mean * 0.12, 2),
                          "preprocess": round(mean * 0.04, 2), "inference": round(mean * 0.6, 2),
                          "postprocess": round(mean * 0.02, 2)} if answered else None,
        }
        event = {"now_ms": int(now * 1000), "preview": self.preview, "limit_ms": LIMIT_MS, "camera": line}
        if first:
            event["history"] = [self._of_camera(camera, second - back) for back in range(HISTORY, 0, -1)]
        else:
            event["last"] = self._of_camera(camera, second - 1)
        return event

    def picture(self, camera: MockCamera, after: int) -> bytes | None:
        """The answer of `GET .../picture`: caption's length, caption, PNG."""
        if camera.silent_since is not None:
            return None
        with self.lock:
            camera.seq = max(camera.seq, after) + 1
            seq = camera.seq
        objects = moved_objects(seq)
        caption = {
            "seq": seq, "frame_id": str(18_446_744_073_709_551_000 + seq), "width": PICTURE_SIZE[0],
            "height": PICTURE_SIZE[1], "total_ms": camera.base_ms, "outcome": "ok",
            "content_type": "image/x-unheard-of" if self.broken_pictures else "image/png",
            "objects": objects,
        }
        head = json.dumps(caption).encode()
        file = b"no picture that any browser knows" if self.broken_pictures else png(PICTURE_SIZE, painted(objects))
        return struct.pack(">I", len(head)) + head + file

    def _outcomes(self, received: int, refused: int) -> dict[str, int]:
        counts = dict.fromkeys(OUTCOMES, 0)
        counts |= {"superseded": received // 160, "bad_image": refused}
        counts["ok"] = received - counts["superseded"] - refused
        return counts

    def _slowest(self, second: int, window: int) -> float | None:
        values = [self._second(self.cameras, second - back)["slowest_ms"] for back in range(1, window + 1)]
        return max((value for value in values if value is not None), default=None)

    def _second(self, cameras: list[MockCamera], second: int) -> Second:
        sending = [camera for camera in cameras if camera.sends(second)]
        dropped = 12 if second % 97 in (3, 4, 5) else 0
        values = [camera.slowest(second) for camera in sending]
        return {
            "t": second, "answered": max(0, len(sending) * 10 - dropped), "dropped": dropped if sending else 0,
            "failed": 1 if second % 61 == 0 and sending else 0, "slowest_ms": max(values, default=None), "busy": 0.8,
        }

    def _of_camera(self, camera: MockCamera, second: int) -> Second:
        sent = camera.sends(second)
        dropped = int(sent and (second + camera.number) % 83 == 0)
        slowest = camera.slowest(second) if sent else None
        return {
            "t": second, "answered": (10 - dropped) if sent else 0, "dropped": dropped,
            "failed": int(bool(camera.refused) and second % 20 == 0), "slowest_ms": slowest,
            "mean_ms": round(slowest * 0.7, 2) if slowest else None,
        }

    def _line(self, camera: MockCamera, now: float) -> dict[str, Any]:
        second = int(now)
        spark = [camera.slowest(second - back) if camera.sends(second - back) else None for back in range(SPARK, 0, -1)]
        recent = [value for value in spark[-10:] if value is not None]
        return {
            "name": camera.name, "state": camera.shown_state(now), "fps": round(len(recent), 1),
            "slowest_ms": max(recent, default=None),
            "mean_ms": round(0.7 * sum(recent) / len(recent), 2) if recent else None,
            "outcome": "bad_image" if camera.refused else "ok", "silent_seconds": round(camera.silence(now), 2),
            "spark": spark,
        }


def moved_objects(seq: int) -> list[dict[str, Any]]:
    """Four objects in places that change with each picture; one touches the picture's corner, one is small."""
    shift = seq * 7 % 120
    boxes = [(0, 60 + shift, 150, 90, 120), (2, 300, 250 + shift // 2, 210, 120), (9, 0, 0, 60, 90), (16, 560 - shift, 420, 40, 30)]
    return [
        {"label": LABELS[kind], "class_id": kind, "confidence": round(0.93 - 0.09 * at, 2), "x": x, "y": y,
         "width": width, "height": height}
        for at, (kind, x, y, width, height) in enumerate(boxes)
    ]


def painted(objects: list[dict[str, Any]]) -> list[bytes]:
    """Rows of RGB: an even ground, and each object as an even darker place of its box's size."""
    width, height = PICTURE_SIZE
    rows = [bytearray(bytes(GROUND) * width) for _ in range(height)]
    for at, item in enumerate(objects):
        fill = bytes((40 + 20 * at, 60, 90 - 10 * at)) * item["width"]
        for y in range(item["y"], min(height, item["y"] + item["height"])):
            rows[y][3 * item["x"]: 3 * (item["x"] + item["width"])] = fill
    return [bytes(row) for row in rows]


def png(size: tuple[int, int], rows: list[bytes]) -> bytes:
    """A PNG of 8-bit RGB (PNG specification, sections 5 and 11)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
