"""Plays the operators' port for the live page: its files from disk, events and pictures of a fleet on paper.

    python3 server/tests/browser/mock_live.py --cameras 30 --port 9464

Only for looking at the page and for its checks. The token is `mock-operators-token`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from mock_fleet import MockCamera, MockFleet

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "server" / "src" / "admin" / "page"
TOKEN = "mock-operators-token"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# The server's own policy is in its source, so that the page is checked under the one that it will meet.
POLICY_SOURCE = ROOT / "server" / "src" / "admin" / "page.rs"


def policy() -> str:
    """The Content Security Policy that the server sends."""
    source = POLICY_SOURCE.read_text(encoding="utf-8")
    found = re.search(r'const POLICY: &str = "((?:[^"\\]|\\.)*)"', source, re.DOTALL)
    if not found:
        raise SystemExit(f"mock_live: no POLICY in {POLICY_SOURCE}")
    return re.sub(r"\\\n\s*", "", found[1])


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: MockServer

    def do_GET(self) -> None:
        """Answers as the server would."""
        url = urlsplit(self.path)
        path = unquote(url.path)
        if camera := re.fullmatch(r"/live/cameras/([^/]+)(/picture)?", path):
            found = self.server.fleet.find(camera[1])
            if camera[2]:
                self.picture(found, int(parse_qs(url.query).get("after", ["0"])[0]))
            elif found is None:
                self.say(404, b"no camera of this name is connected, or was in the last five minutes\n")
            else:
                self.events("camera", found)
        elif path == "/live/fleet":
            self.events("fleet", None)
        else:
            self.file(path)

    do_HEAD = do_GET

    def say(self, status: int, body: bytes, kind: str = "text/plain", headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def file(self, path: str) -> None:
        """A file of the page."""
        name = "index.html" if path == "/" else path.removeprefix("/ui/")
        file = self.server.page / name
        if "/" in name or file.suffix not in KINDS or not file.is_file():
            self.say(404, b"not here\n")
            return
        headers = {"Content-Security-Policy": self.server.policy, "Cache-Control": "no-cache"}
        self.say(200, file.read_bytes(), KINDS[file.suffix], headers)

    def events(self, name: str, camera: MockCamera | None) -> None:
        """An event at once and one after each second, until somebody ends it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        first = True
        fleet = self.server.fleet
        while self.command == "GET" and not self.server.closing.is_set():
            now = time.time()
            data = fleet.camera_event(camera, now, first) if camera else fleet.fleet_event(now, first)
            try:
                self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
            except OSError:
                return
            first = False
            self.server.closing.wait(1.02 - time.time() % 1)

    def picture(self, camera: MockCamera | None, after: int) -> None:
        """The newest picture with its boxes."""
        self.server.asked.append(time.monotonic())
        if not self.server.fleet.preview:
            self.say(403, b"pictures are off; start the server with --preview and --admin-token-file\n")
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.say(401, b"the operators' token is needed\n", headers={"WWW-Authenticate": "Bearer"})
        elif camera is None:
            self.say(404, b"no camera of this name\n")
        else:
            until = time.monotonic() + 10.0
            while (answer := self.server.fleet.picture(camera, after)) is None and time.monotonic() < until:
                if self.server.closing.wait(0.1):
                    return
            if answer is None:
                self.say(204, b"")
            else:
                self.say(200, answer, "application/octet-stream", {"Cache-Control": "no-store"})

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: its requests are the page's."""


class MockServer(ThreadingHTTPServer):
    """The operators' port; `kill` ends it with all its connections, as the end of a process does."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, fleet: MockFleet, port: int = 0, page: Path = PAGE) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.fleet, self.page, self.policy = fleet, page, policy()
        self.asked: list[float] = []
        self.closing = threading.Event()
        self.sockets: set[socket.socket] = set()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remembers the connection."""
        self.sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgets the connection."""
        self.sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that went away while it was answered is nothing to tell; anything else is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def kill(self) -> None:
        """Ends everything now."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        for connection in list(self.sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Serves until interrupted."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cameras", type=int, default=30)
    arguments.add_argument("--port", type=int, default=9464)
    arguments.add_argument("--page", type=Path, default=PAGE, help="folder of the page's files")
    options = arguments.parse_args()
    fleet = MockFleet(options.cameras)
    if options.cameras > 3:
        fleet.stop("cam-002")
        fleet.leave("cam-003")
        fleet.refuse("cam-004", 45)
    server = MockServer(fleet, options.port, options.page)
    print(f"{options.cameras} cameras at {server.url}, token {TOKEN}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.thread.join()


if __name__ == "__main__":
    main()
