"""Promises behind load balancers that end streams on which nothing moves."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from client import Camera, StreamEnded
from env import LOOPBACK, Env, picture, wait_until
from promise import CannotRun, Finding, promise
from server import SPIN, STREAM_LOGS, STREAMS, Server
from sim import run_sim

TEMPLATES = Path(__file__).resolve().parent / "lb"

# Seconds without a byte on a stream after which the proxies end it.
IDLE_SECONDS = 4

# Seconds between a quiet camera's signs of life: two of them fit in the proxies' patience.
HEARTBEAT_SECONDS = 2

# Seconds within which the server must have let go of a stream that its proxy has cut.
RELEASE_SECONDS = 1.0

# Least spread of the instants at which cameras that were cut together come back, as a standard
# deviation in seconds. The first pause of client-sim is up to 0.1 s; without jitter they come within
# a millisecond.
LEAST_SPREAD_SECONDS = 0.01

_COUNTER = itertools.count(1)


@contextlib.contextmanager
def proxy(env: Env, kind: str, server: Server) -> Iterator[str]:
    """Starts a proxy in front of a server and gives its address."""
    template, command = PROXIES[kind]
    port = env.port()
    host, _, server_port = server.addr.rpartition(":")
    values = {
        "WORK": str(env.work),
        "PORT": str(port),
        "IDLE": str(IDLE_SECONDS),
        "SERVER": server.addr,
        "SERVER_HOST": host,
        "SERVER_PORT": server_port,
    }
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    config = env.work / f"{next(_COUNTER)}-{template}"
    config.write_text(text, encoding="utf-8")
    log = config.with_suffix(".log")
    with log.open("wb") as out:
        child = env.spawn(command(config), stdout=out, stderr=out)

    def listens() -> bool:
        if child.poll() is not None:
            words = log.read_text(encoding="utf-8", errors="replace").strip()
            raise CannotRun(f"{kind} ended with {child.returncode}: {words[-300:]}")
        with contextlib.suppress(OSError):
            socket.create_connection((LOOPBACK, port), timeout=1).close()
            return True
        return False

    try:
        wait_until(listens, 20)
        yield f"{LOOPBACK}:{port}"
    finally:
        env.end(child)


def tool(name: str) -> str:
    """A program by its full name: administrators' folders may be missing in PATH."""
    folders = [str(Path(sys.prefix) / "bin"), "/usr/sbin", "/usr/bin", "/sbin"]
    found = shutil.which(name, path=":".join(folders))
    if found is None:
        raise CannotRun(f"{name} is not installed")
    return found


def nginx(config: Path) -> list[str]:
    """The command line of nginx."""
    return [tool("nginx"), "-c", str(config), "-p", str(config.parent)]


def haproxy(config: Path) -> list[str]:
    """The command line of HAProxy, in the foreground."""
    return [tool("haproxy"), "-db", "-f", str(config)]


def envoy(config: Path) -> list[str]:
    """The command line of Envoy, without the shared memory of hot restarts."""
    quiet = ["--log-level", "warning", "--disable-hot-restart", "--concurrency", "1"]
    return [tool("envoy"), "-c", str(config), *quiet]


PROXIES: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "nginx": ("nginx.conf", nginx),
    "HAProxy": ("haproxy.cfg", haproxy),
    "Envoy": ("envoy.yaml", envoy),
}


@dataclass(frozen=True)
class Cut:
    """What became of a camera that was silent behind a proxy, and of ten that came back."""

    code: str
    after: float
    released: float
    back: int
    reconnects: int
    spread: float
    kept: bool

    @property
    def held(self) -> bool:
        """Whether all parts of the promise hold for this proxy."""
        return (
            IDLE_SECONDS - 1 <= self.after <= 2 * IDLE_SECONDS
            and self.released < RELEASE_SECONDS
            and self.back == 10
            and self.spread >= LEAST_SPREAD_SECONDS
            and self.kept
        )


def silent(env: Env, server: Server, addr: str) -> tuple[str, float, float]:
    """A camera that sends one frame and is silent: its stream's status, when it was cut, and how long
    the server then kept the stream, in seconds."""
    ping = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0)]
    with Camera(addr, "silent", ping) as camera:
        camera.exchange(1, picture())
        start = time.monotonic()
        try:
            camera.next(3 * IDLE_SECONDS)
            code = "an answer to nothing"
        except StreamEnded as over:
            code = over.code
        cut = time.monotonic()
        server.wait_metric(STREAMS, 0, 10)
        return code, cut - start, time.monotonic() - cut


def cameras(env: Env, addr: str, seconds: int, *flags: str) -> dict[str, int]:
    """Ten cameras that send a frame every ten seconds, all at the same instant: how many the report
    says came back, how often in all, frames sent, and frames answered OK."""
    slow = ("--cameras", "10", "--fps", "0.1", "--phase", "aligned", "--warmup", "0")
    report = run_sim(env, addr, *slow, "--seconds", str(seconds), *flags)
    return {
        "reconnects": report["reconnects"]["count"],
        "back": sum(camera["reconnects"] > 0 for camera in report["per_camera"]),
        "sent": report["sent"],
        "ok": report["ok"],
    }


def behind(env: Env, kind: str) -> Cut:
    """Plays a proxy's cut, the way back, and a heartbeat against it."""
    with Server(env, *SPIN) as server, proxy(env, kind, server) as addr:
        code, after, released = silent(env, server, addr)
    with Server(env, *SPIN, *STREAM_LOGS) as server, proxy(env, kind, server) as addr:
        back = cameras(env, addr, 11)
        opened = sorted(server.opened_at())
    second = [at for at in opened if at > opened[0] + IDLE_SECONDS - 1][:10]
    spread = statistics.stdev(second) if len(second) == 10 else 0.0
    with Server(env, *SPIN) as server, proxy(env, kind, server) as addr:
        alive = cameras(env, addr, 21, "--heartbeat-seconds", str(HEARTBEAT_SECONDS))
        streams = server.metric("vedette_streams_opened_total")
    kept = alive["reconnects"] == 0 and alive["sent"] == alive["ok"] >= 20 and streams == 10
    return Cut(code, after, released, back["back"], back["reconnects"], spread, kept)


@promise(
    8,
    "an idle cut by a balancer is survived, and avoided by heartbeats",
    mark="server releases in < 1 s; reconnect with jitter, reported; no cut with heartbeat",
)
def idle_cut(env: Env) -> Finding:
    """nginx, HAProxy and Envoy stand before the server with an idle limit of 4 s, for a cloud
    balancer's 60 s. A camera that sends one frame and then only HTTP/2 PINGs is cut by each; from the
    cut as the camera sees it until the server has let go of the stream. Ten cameras of client-sim that
    send a frame every 10 s, all at the same instant, are cut together: the report
    says that each came back, and the instants at which the second streams open have a standard
    deviation of at least 10 ms. The same ten with `--heartbeat-seconds 2` keep their first stream for
    20 s: no reconnect, and every frame answered."""
    found = {}
    for kind in PROXIES:
        found[kind] = behind(env, kind)
        env.say(f"{kind}: {found[kind]}")
    figure = "; ".join(
        f"{kind}: cut after {cut.after:.1f} s ({cut.code}), released in {cut.released:.2f} s, "
        f"{cut.reconnects} reconnects, stddev {cut.spread * 1000:.0f} ms, "
        f"{'kept' if cut.kept else 'NOT kept'} with heartbeat"
        for kind, cut in found.items()
    )
    return Finding(figure, all(cut.held for cut in found.values()))
