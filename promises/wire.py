"""An HTTP/2 client that sends what it is told, also where a gRPC library would refuse.

Needs the Python of the suite's environment (h2); rows import it when they run.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings
from h2.exceptions import ProtocolError

DETECT_STREAM = "/camera_ai.ObjectDetection/DetectStream"
READ_BYTES = 65536
Headers = Iterable[tuple[str, str]]


@dataclass
class Received:
    """What has come back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    ended: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.ended or self.reset is not None

    @property
    def grpc_status(self) -> str:
        """The number, or empty while there is none."""
        return self.trailers.get("grpc-status", self.headers.get("grpc-status", ""))

    def take_message(self) -> bytes | None:
        """The next whole gRPC message, without its prefix of five bytes."""
        if len(self.data) < 5:
            return None
        (length,) = struct.unpack(">I", self.data[1:5])
        if len(self.data) < 5 + length:
            return None
        message = bytes(self.data[5 : 5 + length])
        del self.data[: 5 + length]
        return message


class Wire:
    """One connection. `window` is what the server may send on each stream before it is read."""

    def __init__(self, addr: str, window: int = 1 << 20, seconds: float = 5.0) -> None:
        self.authority = addr
        host, _, port = addr.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=seconds)
        # Names and values as given: a row may want to send what the library would correct.
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config=config)
        settings = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=settings)
        self.streams: dict[int, Received] = {}
        self.goaway: int | None = None
        self.closed = False
        self.pongs = 0
        self.h2.initiate_connection()
        self.flush()
        # The server's settings, without which nothing may be opened beyond a few streams.
        self.pump(0.2, lambda: self.h2.remote_settings.max_concurrent_streams < 2**31)

    def flush(self) -> None:
        """Writes what the library has prepared."""
        try:
            self.socket.sendall(self.h2.data_to_send())
        except OSError:
            self.closed = True

    def open(self, metadata: Headers = (), path: str = DETECT_STREAM) -> int:
        """Opens a stream and returns its number."""
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", self.authority),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *metadata,
        ]
        self.streams[stream] = Received()
        self.h2.send_headers(stream, headers)
        self.flush()
        return stream

    def send(self, stream: int, data: bytes, seconds: float = 5.0) -> int:
        """Sends bytes as flow control allows and returns how many went out in that time."""
        end = time.monotonic() + seconds
        sent = 0
        while sent < len(data) and not self.closed and time.monotonic() < end:
            room = self._room(stream)
            if room == 0:
                self.pump(0.05, lambda: self._room(stream) > 0)
                continue
            self.h2.send_data(stream, data[sent : sent + room])
            self.flush()
            sent += min(room, len(data) - sent)
        return sent

    def _room(self, stream: int) -> int:
        """Bytes that may be sent on a stream now."""
        if self.streams[stream].over:
            return 0
        try:
            window = self.h2.local_flow_control_window(stream)
        except ProtocolError:
            return 0
        return max(0, min(window, self.h2.max_outbound_frame_size))

    def finish(self, stream: int) -> None:
        """Half-closes a stream."""
        with contextlib.suppress(ProtocolError):
            self.h2.end_stream(stream)
        self.flush()

    def ping(self) -> None:
        """Sends a PING."""
        self.h2.ping(b"vedette!")
        self.flush()

    def pump(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Reads for so long, or until the condition holds; returns whether it does."""
        end = time.monotonic() + seconds
        while not until():
            left = end - time.monotonic()
            if left <= 0 or self.closed:
                return until()
            self.socket.settimeout(min(left, 0.5))
            try:
                data = self.socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                self.closed = True
                return until()
            self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            self.closed = True
            return
        for event in events:
            self._handle(event)
        self.flush()

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = int(event.error_code or 0)
            return
        if isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1
            return
        stream = self.streams.get(getattr(event, "stream_id", None) or 0)
        if stream is None:
            return
        match event:
            case h2.events.ResponseReceived():
                stream.headers = dict(event.headers or ())
            case h2.events.TrailersReceived():
                stream.trailers = dict(event.headers or ())
            case h2.events.DataReceived():
                stream.data += event.data or b""
                taken = event.flow_controlled_length
                self.h2.acknowledge_received_data(taken, event.stream_id)
            case h2.events.StreamReset():
                stream.reset = int(event.error_code or 0)
            case h2.events.StreamEnded():
                stream.ended = True

    def over(self, stream: int, seconds: float = 5.0) -> Received:
        """Waits for a stream's end, or for as long, and returns what came."""
        self.pump(seconds, lambda: self.streams[stream].over or self.goaway is not None)
        return self.streams[stream]

    def message(self, stream: int, seconds: float = 5.0) -> bytes | None:
        """The next message on a stream; None when it ends or none comes."""
        received = self.streams[stream]
        found: list[bytes] = []

        def whole() -> bool:
            if (message := received.take_message()) is not None:
                found.append(message)
            return bool(found) or received.over

        self.pump(seconds, whole)
        return found[0] if found else None

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
