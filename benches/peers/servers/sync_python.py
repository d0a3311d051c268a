"""Synchronous Python: a thread per stream, and the work is done in that thread."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import peer


class Detection(peer.Servicer):
    """Answers each frame of a stream before it takes the next."""

    def __init__(self, work: peer.Work) -> None:
        self.work = work

    def DetectStream(self, requests: Iterator[Any], _context: Any) -> Iterator[Any]:  # noqa: N802
        """One camera."""
        for request in requests:
            yield peer.response(request.frame_id, self.work(request.image_data))


def serve(args: argparse.Namespace, ready: Callable[[], object], *, shared_port: bool) -> None:
    """Serves until SIGTERM; `ready` is called once cameras can connect."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = grpc.server(
        futures.ThreadPoolExecutor(peer.STREAM_THREADS),
        options=[("grpc.so_reuseport", int(shared_port))],
    )
    peer.add_to_server(Detection(peer.make_work(args)), server)
    server.add_insecure_port(f"127.0.0.1:{args.port}")
    server.start()
    ready()
    stop.wait()
    server.stop(peer.GRACE_SECONDS).wait()


if __name__ == "__main__":
    settings = peer.arguments(__doc__)
    serve(settings, lambda: peer.announce(settings.port), shared_port=False)
