"""Tests of the bench's gRPC side against servers that misbehave.

Run with `models/cache/pyenv/bin/python -m unittest discover -s benches/accuracy` after
`python3 models/setup.py --python-env accuracy`.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import run

sys.path.insert(0, str(run.ROOT / "proto"))
messages, services = grpc.protos_and_services("camera_ai.proto")

# Answers to the requests; the event is set once the stream is over.
Script = Callable[[Iterator[Any], threading.Event], Iterator[Any]]


class Fake(services.ObjectDetectionServicer):
    """A server whose stream follows a script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def GetServerInfo(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Nothing in particular."""
        return messages.ServerInfo()

    def DetectStream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        """As told."""
        over = threading.Event()
        context.add_callback(over.set)
        return self.script(requests, over)


class Stream(unittest.TestCase):
    """What comes of a server's way to answer."""

    def answers(self, script: Script) -> dict[int, list[run.Detection]]:
        """The bench's view of two pictures sent to a server that follows `script`."""
        with (
            tempfile.NamedTemporaryFile() as picture,
            futures.ThreadPoolExecutor() as threads,
            mock.patch.object(run, "check_server", lambda _info, _size: None),
        ):
            server = grpc.server(threads)
            services.add_ObjectDetectionServicer_to_server(Fake(script), server)
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            try:
                files = {7: Path(picture.name), 8: Path(picture.name)}
                return run.server_answers(files, f"127.0.0.1:{port}", 416)
            finally:
                server.stop(None).wait()

    def test_each_picture_is_answered(self) -> None:
        """No boxes, for both."""

        def script(requests: Iterator[Any], _over: threading.Event) -> Iterator[Any]:
            for request in requests:
                yield messages.DetectResponse(frame_id=request.frame_id)

        self.assertEqual(self.answers(script), {7: [], 8: []})

    def test_an_ended_stream_is_one_line(self) -> None:
        """After the first answer."""

        def script(requests: Iterator[Any], _over: threading.Event) -> Iterator[Any]:
            yield messages.DetectResponse(frame_id=next(requests).frame_id)

        with self.assertRaisesRegex(run.CannotRun, "the server ended the stream instead of"):
            self.answers(script)

    def test_a_silent_server_is_not_waited_for_for_ever(self) -> None:
        """The deadline is one for each answer."""

        def script(requests: Iterator[Any], over: threading.Event) -> Iterator[Any]:
            yield messages.DetectResponse(frame_id=next(requests).frame_id)
            over.wait()

        with (
            mock.patch.object(run, "ANSWER_SECONDS", 0.5),
            self.assertRaisesRegex(run.CannotRun, "nothing from the server within 0.5 s"),
        ):
            self.answers(script)


if __name__ == "__main__":
    unittest.main()
