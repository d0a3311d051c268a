"""A camera that speaks gRPC with the options of one's choice, in this process or in one of its own.

grpcio and the generated stubs are loaded when the first camera is made, so that the list of promises
can be read without them.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import queue
import struct
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from pathlib import Path
from types import ModuleType
from typing import Any

from cgroup import Cgroup
from env import ROOT
from netns import NetNs, setns

STUBS = ROOT / "target" / "promises" / "stubs"

Options = Sequence[tuple[str, Any]]

# Each camera has a connection of its own, as cameras in the field do; grpcio would share one between
# channels whose options are equal.
OWN_CONNECTION: Options = (("grpc.use_local_subchannel_pool", 1),)


class StreamEnded(Exception):
    """The stream is over. `code` is the gRPC status by name, `details` the server's words."""

    def __init__(self, code: str, details: str, trailers: dict[str, str] | None = None) -> None:
        super().__init__(code, details, trailers or {})
        self.code = code
        self.details = details
        self.trailers = trailers or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.details}"


@dataclass(frozen=True)
class Answer:
    """One answer, with its time of arrival by the monotonic clock, in seconds."""

    frame_id: int
    outcome: str
    detail: str
    at: float
    objects: tuple[tuple[str, float, tuple[int, int, int, int]], ...] = ()
    width: int = 0
    height: int = 0
    model: str = ""
    total_us: int = 0
    queue_us: int = 0
    inference_us: int = 0


@functools.cache
def stubs() -> tuple[ModuleType, ModuleType, ModuleType]:
    """grpc, the messages and the stubs of the contract."""
    sys.path.insert(0, str(STUBS))
    import camera_ai_pb2
    import camera_ai_pb2_grpc
    import grpc

    return grpc, camera_ai_pb2, camera_ai_pb2_grpc


def request(frame_id: int, data: bytes, **fields: Any) -> Any:
    """A DetectRequest. `fields` are those of the contract by name, such as `budget_ms`."""
    _, messages, _ = stubs()
    return messages.DetectRequest(frame_id=frame_id, image_data=data, **fields)


def prefixed(message: bytes, compressed: int = 0, length: int | None = None) -> bytes:
    """A gRPC message behind its prefix, whose parts may lie."""
    return struct.pack(">BI", compressed, len(message) if length is None else length) + message


def answer(message: Any) -> Answer:
    """The parts of a DetectResponse that rows judge, as plain values."""
    _, messages, _ = stubs()
    known = messages.Outcome.DESCRIPTOR.values_by_number
    number = message.outcome
    return Answer(
        frame_id=message.frame_id,
        outcome=known[number].name if number in known else str(number),
        detail=message.detail,
        at=time.monotonic(),
        objects=tuple(
            (o.label, o.confidence, (o.bbox.x, o.bbox.y, o.bbox.width, o.bbox.height))
            for o in message.objects
        ),
        width=message.image_width,
        height=message.image_height,
        model=message.model,
        total_us=message.times.total_us,
        queue_us=message.times.queue_us,
        inference_us=message.times.inference_us,
    )


class Camera:
    """One camera: a channel and a stream on it. A thread reads the answers as they come, or, with
    `reads=False`, only as many as are asked for."""

    def __init__(
        self,
        addr: str,
        camera_id: str = "",
        options: Options = (),
        *,
        metadata: Sequence[tuple[str, str]] = (),
        reads: bool = True,
        credentials: Any = None,
        root_pem: bytes | None = None,
    ) -> None:
        grpc, _, service = stubs()
        every = [*OWN_CONNECTION, *options]
        if root_pem is not None:
            credentials = grpc.ssl_channel_credentials(root_pem)
        if credentials is not None:
            self._channel = grpc.secure_channel(addr, credentials, every)
        else:
            self._channel = grpc.insecure_channel(addr, every)
        own = [("camera-id", camera_id)] if camera_id else []
        self._stub = service.ObjectDetectionStub(self._channel)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | StreamEnded] = queue.SimpleQueue()
        self._call = self._stub.DetectStream(
            iter(self._requests.get, None), metadata=[*own, *metadata]
        )
        self._reads = reads
        if reads:
            threading.Thread(target=self._read_all, daemon=True).start()

    def _read_one(self) -> Answer | StreamEnded:
        grpc, _, _ = stubs()
        try:
            return answer(next(self._call))
        except StopIteration:
            return StreamEnded("OK", "", pairs(self._call.trailing_metadata()))
        except grpc.RpcError as error:
            trailers = pairs(error.trailing_metadata() or ())
            return StreamEnded(error.code().name, error.details() or "", trailers)

    def _read_all(self) -> None:
        while True:
            found = self._read_one()
            self._answers.put(found)
            if isinstance(found, StreamEnded):
                return

    def send(self, frame_id: int, data: bytes, **fields: Any) -> None:
        """Hands a frame to the stream."""
        self._requests.put(request(frame_id, data, **fields))

    def next(self, timeout: float = 10.0) -> Answer:
        """The next answer. Raises StreamEnded when the stream is over, TimeoutError when none comes."""
        if not self._reads:
            found: Answer | StreamEnded = self._read_one()
        else:
            try:
                found = self._answers.get(timeout=timeout)
            except queue.Empty:
                raise TimeoutError(f"no answer in {timeout:g} s") from None
        if isinstance(found, StreamEnded):
            self._answers.put(found)
            raise found
        return found

    def pending(self) -> int:
        """Answers (and the end) that have arrived and were not taken."""
        return self._answers.qsize()

    def exchange(self, frame_id: int, data: bytes, timeout: float = 10.0, **fields: Any) -> Answer:
        """Sends one frame and takes the next answer."""
        self.send(frame_id, data, **fields)
        return self.next(timeout)

    def finish(self) -> None:
        """No more frames; the server answers what it has and ends the stream."""
        self._requests.put(None)

    def ended(self, timeout: float = 10.0) -> tuple[str, str, dict[str, str]]:
        """Passes over answers until the end: status by name, the server's words, trailers."""
        end = time.monotonic() + timeout
        while True:
            try:
                self.next(max(0.01, end - time.monotonic()))
            except StreamEnded as over:
                return over.code, over.details, over.trailers

    def detect(self, data: bytes, timeout: float = 10.0, **fields: Any) -> Answer:
        """One picture by the unary call, on the same connection. Raises StreamEnded for an error."""
        grpc, _, _ = stubs()
        try:
            return answer(self._stub.Detect(request(1, data, **fields), timeout=timeout))
        except grpc.RpcError as error:
            raise StreamEnded(error.code().name, error.details() or "") from None

    def info(self, timeout: float = 10.0) -> dict[str, Any]:
        """GetServerInfo as a dictionary."""
        _, messages, _ = stubs()
        from google.protobuf.json_format import MessageToDict

        found = self._stub.GetServerInfo(messages.ServerInfoRequest(), timeout=timeout)
        return MessageToDict(found, preserving_proto_field_name=True)

    def close(self) -> None:
        """Cancels the stream and closes the connection."""
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()

    def __enter__(self) -> Camera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pairs(metadata: Iterable[Any]) -> dict[str, str]:
    """Metadata as a dictionary of text."""
    return {str(key): str(value) for key, value in metadata}


class _Manager(BaseManager):
    """The other process."""


_Manager.register(
    "Camera",
    Camera,
    exposed=(
        "send", "next", "pending", "exchange", "finish", "ended", "detect", "info", "close",
    ),
)  # fmt: skip


def _enter(path: str | None, procs: str | None) -> None:
    """First thing in the other process, before grpcio starts its threads."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if procs is not None:
        Path(procs).write_text("0", encoding="ascii")
    if path is not None:
        setns(Path(path))


class CameraHost:
    """A process in which cameras live, in a namespace and a memory limit where asked. Each call of
    `camera` takes the arguments of Camera and returns what can be used as one from any thread."""

    def __init__(self, *, netns: NetNs | None = None, cgroup: Cgroup | None = None) -> None:
        self._manager = _Manager(ctx=multiprocessing.get_context("spawn"))
        self._where = (str(netns.path) if netns else None, str(cgroup.procs) if cgroup else None)
        self._ids = itertools.count(1)

    def __enter__(self) -> CameraHost:
        self._manager.start(_enter, self._where)
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.shutdown()

    def camera(self, addr: str, camera_id: str = "", options: Options = (), **named: Any) -> Any:
        """A camera in that process."""
        name = camera_id or f"camera-{next(self._ids)}"
        return self._manager.Camera(addr, name, list(options), **named)  # type: ignore[attr-defined]

    def kill(self) -> None:
        """Ends all its cameras at once, without a word to the server."""
        process = self._manager._process  # noqa: SLF001 - it has no name for it
        process.kill()
        process.join()
