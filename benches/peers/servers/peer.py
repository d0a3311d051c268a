"""What the Python servers share: command line, the work per frame, and messages.

The gRPC code is generated into target/bench/peers/python by build.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "target" / "bench" / "peers" / "python"))

import camera_ai_pb2 as messages  # noqa: E402
import camera_ai_pb2_grpc as services  # noqa: E402

# Longest wait for calls in hand once the server is told to stop.
GRACE_SECONDS = 0.5
# One stream each holds a thread of a synchronous server as long as it is open.
STREAM_THREADS = 64

# Label, confidence, x, y, width, height; plain so that it passes between processes cheaply.
Found = tuple[str, float, int, int, int, int]
# From a frame's bytes to what is on it.
Work = Callable[[bytes], list[Found]]

Servicer = services.ObjectDetectionServicer
add_to_server = services.add_ObjectDetectionServicer_to_server

FAKE: list[Found] = [("object", 0.9, 10, 20, 30, 40)]


def arguments(description: str | None) -> argparse.Namespace:
    """The command line, the same for every server."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--work-ms", type=float, default=5.0, help="busy loop per frame")
    parser.add_argument(
        "--clock",
        choices=("cpu", "wall"),
        default="cpu",
        help="the busy loop's clock: CPU time of the thread, or time on the wall",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="threads or processes that work (default: one per core)",
    )
    parser.add_argument("--model", type=Path, help="run this network instead of the busy loop")
    return parser.parse_args()


def make_work(args: argparse.Namespace) -> Work:
    """The work per frame that the command line asks for."""
    if args.model is not None:
        from detector import Detector  # not needed, and slow to load, for the busy loop

        return Detector(args.model).detect
    seconds = args.work_ms / 1000
    now = time.thread_time if args.clock == "cpu" else time.monotonic

    def spin(_image: bytes) -> list[Found]:
        end = now() + seconds
        while now() < end:
            pass
        return FAKE

    return spin


def response(frame_id: int, found: Iterable[Found]) -> Any:
    """The answer to a frame."""
    return messages.DetectResponse(
        frame_id=frame_id,
        objects=[
            messages.Object(
                label=label,
                confidence=confidence,
                bbox=messages.BoundingBox(x=x, y=y, width=width, height=height),
            )
            for label, confidence, x, y, width, height in found
        ],
    )


def announce(port: int) -> None:
    """Tells who started the server that it is ready."""
    print(f"listening on 127.0.0.1:{port}", flush=True)
