"""Promise 31: what a server does not offer, and what it does not need."""

from __future__ import annotations

import os
import socket
import struct
import tomllib
from pathlib import Path

from client import Camera, StreamEnded
from env import LOOPBACK, Env, picture
from probes import first_of_stream, http_status
from promise import CannotRun, Finding, promise
from server import SPIN, Server

REFLECTION = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"
# ServerReflectionRequest: field 7, list_services, empty.
LIST_SERVICES = bytes([0x3A, 0x00])

PAGES = ("/", "/metrics", "/healthz", "/readyz")
# What other servers have let strangers do.
GUESSES = (
    "/quit", "/quitquitquit", "/shutdown", "/stop", "/restart", "/reload", "/-/reload", "/-/quit",
    "/config", "/model", "/models", "/v2/repository/index", "/loglevel", "/debug", "/debug/pprof",
    "/admin", "/drain", "/healthcheck/fail",
)  # fmt: skip
VERBS = ("POST", "PUT", "DELETE", "PATCH")
REFUSALS = (404, 405)

NOBODY = 65534
LISTENING = "0A"  # a state in /proc/net/tcp

# Makes every mount of a mount namespace of its own read-only, gives up all rights, and becomes the
# server.
CONFINED = """#!/bin/sh
exec unshare --mount --propagation private sh -c '
cut -d" " -f2 /proc/self/mounts | while read -r place; do
    mount -o remount,bind,ro "$place" 2>/dev/null
done
exec setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs --bounding-set=-all \\
    --inh-caps=-all "$0" "$@"' '{binary}' "$@"
"""


def reflection(addr: str, version: str) -> str:
    """What a server says when it is asked for its services: a status, or LISTED."""
    try:
        found = first_of_stream(addr, REFLECTION.format(version), LIST_SERVICES)
    except StreamEnded as over:
        return over.code
    return "LISTED" if b"camera_ai.ObjectDetection" in found else found.hex()


def verbs_taken(server: Server) -> list[str]:
    """Requests on the operators' port that were not refused."""
    asked = [(verb, page) for verb in VERBS for page in (*PAGES, *GUESSES)]
    asked += [("GET", page) for page in GUESSES]
    answers = {(verb, page): http_status(server.admin, verb, page) for verb, page in asked}
    return [
        f"{verb} {page}: {code}" for (verb, page), code in answers.items() if code not in REFUSALS
    ]


def listening(pid: int) -> list[tuple[str, int]]:
    """Address and port of every TCP socket on which a process listens."""
    mine = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        target = os.readlink(entry.path)
        if target.startswith("socket:["):
            mine.add(target.removeprefix("socket:[").rstrip("]"))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == LISTENING and fields[9] in mine:
                found.append((readable(address), int(port, 16)))
    return found


def readable(address: str) -> str:
    """An address of /proc/net/tcp: 32-bit words of the machine, in hexadecimal."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    raw = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def default_admin_host(env: Env) -> str:
    """Where operators connect unless it is set."""
    shown = env.run([env.server, "--print-config"], cwd=env.root)
    host, _, _port = str(tomllib.loads(shown.stdout)["admin_addr"]).rpartition(":")
    return host


def ports(env: Env, server: Server) -> list[str]:
    """What is wrong with who listens where."""
    camera_port, admin_port = server.port, int(server.admin.rpartition(":")[2])
    open_ports = {port for _, port in listening(server.pid)}
    checks = {
        f"listens on {open_ports}": open_ports == {camera_port, admin_port},
        "the operators' port is not loopback's by default": default_admin_host(env) == LOOPBACK,
        "/metrics on the camera port": http_status(server.addr, "GET", "/metrics") != 200,
        "no /metrics on the operators' port": http_status(server.admin, "GET", "/metrics") == 200,
    }
    return [what for what, right in checks.items() if not right]


def status_fields(pid: int) -> dict[str, str]:
    """/proc/PID/status by key."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return {
        key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }


def writable_mounts(pid: int) -> list[str]:
    """Places of a process's mount namespace that are not read-only, as it sees them: where several
    mounts lie on each other, the uppermost counts."""
    text = Path(f"/proc/{pid}/mounts").read_text(encoding="utf-8", errors="replace")
    places = sorted({line.split()[1] for line in text.splitlines()})
    if "/" not in places:
        raise CannotRun("the namespace has no root")
    root = Path(f"/proc/{pid}/root")
    return [p for p in places if not os.statvfs(root / p.lstrip("/")).f_flag & os.ST_RDONLY]


def files_open_for_writing(pid: int, own: tuple[Path, ...]) -> list[str]:
    """Regular files that a process could write to, but for those that the suite gave it."""
    found = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        target = Path(os.readlink(entry.path))
        info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text(encoding="ascii")
        flags = next(
            int(line.split()[1], 8) for line in info.splitlines() if line.startswith("flags")
        )
        if flags & os.O_ACCMODE != os.O_RDONLY and target.is_file() and target not in own:
            found.append(str(target))
    return found


def confined(env: Env) -> list[str]:
    """A server as an account without rights, with nothing to write to: what was wrong."""
    script = env.work / "confined"
    script.write_text(CONFINED.format(user=NOBODY, binary=env.server), encoding="utf-8")
    script.chmod(0o755)
    with Server(env, "--budget-ms", "60000", binary=script, root=True) as server:
        with Camera(server.addr, "camera") as camera:
            outcomes = {camera.exchange(at, picture()).outcome for at in range(20)}
        status = status_fields(server.pid)
        own = (env.work / f"{server.name}.out", env.work / f"{server.name}.err")
        checks = {
            f"runs as {status['Uid']}": set(status["Uid"].split()) == {str(NOBODY)},
            f"has rights {status['CapEff']}, {status['CapBnd']}": int(status["CapEff"], 16) == 0
            and int(status["CapBnd"], 16) == 0,
            f"writable: {writable_mounts(server.pid)}": not writable_mounts(server.pid),
            f"writes to {files_open_for_writing(server.pid, own)}": not files_open_for_writing(
                server.pid, own
            ),
            f"frames {outcomes}": outcomes == {"OK"},
            "complains about the file system": "ead-only" not in server.stderr_text(),
        }
    return [what for what, right in checks.items() if not right]


@promise(
    31,
    "what is not needed is off",
    mark="no reflection, no admin verbs, /metrics apart on loopback; uid 65534, read-only root",
)
def off_by_default(env: Env) -> Finding:
    """A server with default settings is asked for its services by both versions of gRPC reflection
    (one that was started with --reflection lists them, so the question is right). POST, PUT, DELETE
    and PATCH on every page and on paths by which other servers can be stopped or changed are
    refused, and nothing has changed afterwards. It listens on two ports and no more; /metrics is on
    the operators' one, loopback by default, and not on the cameras'. Then it runs with the real
    network as uid 65534 without any capability, every mount read-only, and answers frames; it has
    no file open for writing.
    """
    with Server(env, *SPIN, "--reflection") as server:
        asked = reflection(server.addr, "v1")
    with Server(env, *SPIN) as server:
        told = [reflection(server.addr, version) for version in ("v1", "v1alpha")]
        taken = verbs_taken(server)
        wrong_ports = ports(env, server)
        unchanged = http_status(server.admin, "GET", "/readyz") == 200 and server.alive()
    wrong_confined = confined(env)
    wrong = [*taken, *wrong_ports, *wrong_confined]
    verbs = len(VERBS) * len(PAGES + GUESSES)
    figure = (
        f"reflection {told[0]} (asked for: {asked}); {verbs - len(taken)} of {verbs} verbs refused; "
        f"ports {'as they should be' if not wrong_ports else 'wrong'}; "
        f"as {NOBODY} on read-only mounts {'serves' if not wrong_confined else 'fails'}"
    )
    held = not wrong and unchanged and asked == "LISTED" and set(told) == {"UNIMPLEMENTED"}
    return Finding(figure, held, "\n".join(wrong))
