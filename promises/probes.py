"""Small calls that only look: health checks, calls by name, HTTP methods."""

from __future__ import annotations

import http.client
import threading
import time
from typing import Any

from client import OWN_CONNECTION, StreamEnded, stubs

HEALTH = "/grpc.health.v1.Health"
CAMERAS = "camera_ai.ObjectDetection"

# ServingStatus of grpc.health.v1, by number.
STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def _service_request(service: str) -> bytes:
    """HealthCheckRequest: field 1, the service's name."""
    name = service.encode()
    return bytes([0x0A, len(name)]) + name if name else b""


def _state(message: bytes) -> str:
    """HealthCheckResponse: field 1, the state. Zero is not written."""
    return STATES[message[1]] if len(message) > 1 else STATES[0]


def unary(addr: str, method: str, request: bytes, timeout: float = 5.0) -> bytes:
    """Calls a method by its full name, with bytes in and out. Raises StreamEnded for an error."""
    grpc, _, _ = stubs()
    with grpc.insecure_channel(addr, list(OWN_CONNECTION)) as channel:
        try:
            found: bytes = channel.unary_unary(method)(request, timeout=timeout)
        except grpc.RpcError as error:
            raise StreamEnded(error.code().name, error.details() or "") from None
        return found


def first_of_stream(addr: str, method: str, request: bytes, timeout: float = 5.0) -> bytes:
    """The first answer of a stream of one request, with bytes in and out."""
    grpc, _, _ = stubs()
    with grpc.insecure_channel(addr, list(OWN_CONNECTION)) as channel:
        call = channel.stream_stream(method)(iter([request]), timeout=timeout)
        try:
            found: bytes = next(call)
        except grpc.RpcError as error:
            raise StreamEnded(error.code().name, error.details() or "") from None
        return found


def health(addr: str, service: str = CAMERAS) -> str:
    """What the health service says of a service."""
    return _state(unary(addr, f"{HEALTH}/Check", _service_request(service)))


class HealthWatch:
    """Watches a service's health, and notes each state with its time by the monotonic clock."""

    def __init__(self, addr: str, service: str = CAMERAS) -> None:
        grpc, _, _ = stubs()
        self.states: list[tuple[float, str]] = []
        self._channel = grpc.insecure_channel(addr, list(OWN_CONNECTION))
        watch: Any = self._channel.unary_stream(f"{HEALTH}/Watch")
        self._call = watch(_service_request(service))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        grpc, _, _ = stubs()
        try:
            for message in self._call:
                self.states.append((time.monotonic(), _state(message)))
        except grpc.RpcError:
            return

    def __enter__(self) -> HealthWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel()
        self._channel.close()

    def when(self, state: str, since: float, seconds: float) -> float:
        """Seconds from `since` until a state was told. Raises TimeoutError when it is not."""
        end = time.monotonic() + seconds
        while True:
            for at, told in list(self.states):
                if told == state and at >= since:
                    return at - since
            if time.monotonic() > end:
                raise TimeoutError(f"health was not {state} in {seconds:g} s: {self.states}")
            time.sleep(0.01)


def http_status(addr: str, method: str, path: str, timeout: float = 5.0) -> int:
    """Status of a request with a small body; 0 when the peer does not speak HTTP/1."""
    host, _, port = addr.rpartition(":")
    client = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        client.request(method, path, body=b"x" if method in ("POST", "PUT", "PATCH") else None)
        return client.getresponse().status
    except (http.client.HTTPException, OSError):
        return 0
    finally:
        client.close()
