"""What stands between the cameras and a fleet's servers: the proxies of deploy/proxies, or nothing."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from env import LOOPBACK, ROOT, Env, wait_until
from promise import CannotRun
from proxies import tool

PROXIES = ROOT / "deploy" / "proxies"

# The servers that the example files name, and their ports.
EXAMPLES = ("192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14")
CAMERA_PORT = 50051
ADMIN_PORT = 9464

# A proxy reads its file and looks at the servers once, on a machine that is busy, in seconds.
START_SECONDS = 30.0

# One text of an example file, what stands there in the test, and how often it has to be found.
Change = tuple[str, str, int]


@dataclass(frozen=True)
class Slot:
    """A server's place in the lists of proxies and cameras, whether it runs or not."""

    name: str
    port: int
    admin_port: int

    @property
    def addr(self) -> str:
        """Where cameras connect."""
        return f"{LOOPBACK}:{self.port}"


def rendered(text: str, changes: Sequence[Change]) -> str:
    """An example file with other addresses. One that has changed its shape is an error: what would be
    tested is then not what people copy."""
    for old, new, times in changes:
        if text.count(old) != times:
            raise CannotRun(f"deploy/proxies: '{old}' is found {text.count(old)} times, not {times}")
        text = text.replace(old, new)
    if left := re.search(r"192\.0\.2\.\d+", "\n".join(line.partition("#")[0] for line in text.splitlines())):
        raise CannotRun(f"deploy/proxies: {left[0]} is not an address of a slot")
    return text


def envoy_changes(slots: Sequence[Slot], port: int, work: Path, admin: int) -> list[Change]:
    """envoy.yaml: its listener, its admin port, the servers."""
    changes = [
        ("{address: 0.0.0.0, port_value: 50051}", f"{{address: {LOOPBACK}, port_value: {port}}}", 1),
        ("{address: 127.0.0.1, port_value: 9901}", f"{{address: {LOOPBACK}, port_value: {admin}}}", 1),
    ]
    return changes + [
        (f"{{address: {example}, port_value: {CAMERA_PORT}}}", f"{{address: {LOOPBACK}, port_value: {slot.port}}}", 1)
        for example, slot in zip(EXAMPLES, slots, strict=True)
    ]


def haproxy_changes(slots: Sequence[Slot], port: int, work: Path, admin: int) -> list[Change]:
    """haproxy.cfg: its bind, the servers and their operators' ports."""
    changes = [("    bind 0.0.0.0:50051", f"    bind {LOOPBACK}:{port}", 1)]
    return changes + [
        (f"{example}:{CAMERA_PORT} port {ADMIN_PORT}", f"{slot.addr} port {slot.admin_port}", 1)
        for example, slot in zip(EXAMPLES, slots, strict=True)
    ]


def nginx_changes(slots: Sequence[Slot], port: int, work: Path, admin: int) -> list[Change]:
    """nginx.conf: its listen, the servers, and folders that need no rights."""
    changes = [
        ("        listen 0.0.0.0:50051", f"        listen {LOOPBACK}:{port}", 1),
        ("/run/nginx.pid", f"{work}/nginx.pid", 1),
        ("/var/log/nginx/", f"{work}/", 1),
        ("/var/lib/nginx/", f"{work}/nginx-", 5),
    ]
    return changes + [
        (f"server {example}:{CAMERA_PORT} ", f"server {slot.addr} ", 1)
        for example, slot in zip(EXAMPLES, slots, strict=True)
    ]


@dataclass(frozen=True)
class Front:
    """One way for cameras to find a server."""

    name: str
    # The example file; empty = cameras choose themselves.
    file: str = ""
    changes: Callable[[Sequence[Slot], int, Path, int], list[Change]] | None = None
    command: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    # Flags of client-sim.
    flags: tuple[str, ...] = ()


FRONTS = (
    Front(
        "Envoy",
        "envoy.yaml",
        envoy_changes,
        # Without the shared memory of hot restarts: two runs on one machine would meet there.
        ("envoy", "--log-level", "warning", "--disable-hot-restart", "--concurrency", "2", "-c"),
        ("envoy", "--version"),
    ),
    Front("HAProxy", "haproxy.cfg", haproxy_changes, ("haproxy", "-db", "-f"), ("haproxy", "-v")),
    Front("nginx", "nginx.conf", nginx_changes, ("nginx", "-g", "daemon off;", "-c"), ("nginx", "-v")),
    Front("client-sim", flags=("--balance", "least-cameras")),
)


def two_choices(slots: Sequence[Slot], port: int, work: Path, admin: int) -> list[Change]:
    """envoy.yaml with Envoy's own default: two servers drawn by lot, the better one taken."""
    full, two = "selection_method: FULL_SCAN", "choice_count: 2"
    return [*envoy_changes(slots, port, work, admin), (f"            {full}\n", f"            {two}\n", 1)]


# Played only when named: shows what the choice in envoy.yaml is for, and that unevenness is found.
CONTROLS = (replace(FRONTS[0], name="Envoy, two choices", changes=two_choices),)


def version(front: Front) -> str:
    """What a proxy says of itself, shortened to its number."""
    if not front.version:
        return ""
    command = [tool(front.version[0]), *front.version[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
    return f"{front.name} {found[0]}" if found else f"{front.name} of unknown version"


@contextlib.contextmanager
def started(env: Env, front: Front, slots: Sequence[Slot]) -> Iterator[str]:
    """Starts what stands before the servers and gives the address for cameras."""
    if front.changes is None:
        yield ",".join(slot.addr for slot in slots)
        return
    port, admin = env.port(), env.port()
    text = (PROXIES / front.file).read_text(encoding="utf-8")
    config = env.work / front.file
    config.write_text(rendered(text, front.changes(slots, port, env.work, admin)), encoding="utf-8")
    log = config.with_suffix(".log")
    name, *rest = front.command
    with log.open("wb") as out:
        child = env.spawn([tool(name), *rest, config], stdout=out, stderr=out)

    def listens() -> bool:
        if child.poll() is not None:
            words = log.read_text(encoding="utf-8", errors="replace").strip()
            raise CannotRun(f"{front.name} ended with {child.returncode}: {words[-300:]}")
        with contextlib.suppress(OSError):
            socket.create_connection((LOOPBACK, port), timeout=1).close()
            return True
        return False

    try:
        wait_until(listens, START_SECONDS)
        yield f"{LOOPBACK}:{port}"
    finally:
        env.end(child)
