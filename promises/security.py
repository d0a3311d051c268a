"""Promise 30: certificates, tokens, and secrets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs import Authority, Pair, same, served
from client import Answer, Camera, StreamEnded, stubs
from env import PLAIN_GROUP, PLAIN_USER, Env, picture, wait_until
from promise import Finding, promise
from server import SPIN, Server, http_get

# The client library reports every failed handshake, and here many must fail.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Time in which a file that has changed must be in use.
RELOAD_SECONDS = 5.0
TLS_RELOADED = 'vedette_tls_reloads_total{result="ok"}'
TLS_FAILED = 'vedette_tls_reloads_total{result="failed"}'
TOKENS_RELOADED = 'vedette_token_reloads_total{result="ok"}'
TOKENS_FAILED = 'vedette_token_reloads_total{result="failed"}'

# Everything below that must never be seen in logs, settings or metrics.
NORTH = "north-secret-7fe1c09a55"
NORTH_NEXT = "north-secret-next-3b8d2e61c4"
HASHED = "hashed-secret-90ac17d2be"
EXPIRED = "expired-secret-11b6f3e7aa"
BRIEF = "brief-secret-5d20c8f914"
WRONG = "wrong-secret-e2a4996b03"
SECRETS = (NORTH, NORTH_NEXT, HASHED, EXPIRED, BRIEF, WRONG)

# A token that expires while the row runs.
BRIEF_SECONDS = 12


def stamp(moment: datetime) -> str:
    """A time as the token file has it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def tokens(north: str, brief_until: datetime) -> str:
    """The token file: a plain secret, a hashed one, an expired one, one that expires soon."""
    tomorrow = stamp(datetime.now(UTC) + timedelta(days=1))
    hashed = hashlib.sha256(HASHED.encode()).hexdigest()
    return f"""
[[token]]
name = "north"
secret = "{north}"
cameras = ["north-*"]
max_cameras = 20
max_fps = 1000
expires = "{tomorrow}"

[[token]]
name = "hashed"
sha256 = "{hashed}"
cameras = ["south-1"]

[[token]]
name = "old"
secret = "{EXPIRED}"
cameras = ["*"]
expires = "2020-01-01T00:00:00Z"

[[token]]
name = "brief"
secret = "{BRIEF}"
cameras = ["*"]
expires = "{stamp(brief_until)}"
"""


def put(path: Path, content: bytes | str) -> None:
    """Replaces a file in one step; only the server's account may read it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    shutil.chown(new, PLAIN_USER, PLAIN_GROUP)
    new.chmod(0o600)
    new.rename(path)


@dataclass
class Site:
    """A server with its files, and the authority that its cameras trust."""

    env: Env
    authority: Authority
    cert: Path
    key: Path
    token_file: Path
    server: Server | None = None

    def camera(self, name: str, secret: str = "", pair: Pair | None = None) -> Camera:
        """A camera with a token, and a certificate of its own where given."""
        assert self.server is not None
        grpc, _, _ = stubs()
        own = (pair.key_pem, pair.pem) if pair else (None, None)
        credentials = grpc.ssl_channel_credentials(self.authority.own.pem, *own)
        header = [("authorization", f"Bearer {secret}")] if secret else []
        return Camera(self.server.addr, name, metadata=header, credentials=credentials)

    def status(self, name: str, secret: str = "", pair: Pair | None = None) -> str:
        """What a camera gets: OK, or the status with which its stream ends."""
        with self.camera(name, secret, pair) as camera:
            try:
                return camera.exchange(1, picture(), 5).outcome
            except StreamEnded as over:
                return over.code

    def install(self, pair: Pair) -> None:
        """Puts another certificate in place, its key first."""
        put(self.key, pair.key_pem)
        put(self.cert, pair.pem)


@dataclass
class Standing:
    """A camera whose stream must live through everything."""

    camera: Camera
    answers: list[Answer] = field(default_factory=list)
    ended: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Standing:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join(15)
        self.camera.close()

    def _run(self) -> None:
        number = 0
        while not self.stopping.wait(0.1):
            number += 1
            try:
                self.answers.append(self.camera.exchange(number, picture()))
            except (StreamEnded, TimeoutError) as error:
                self.ended = str(error)
                return


class Log:
    """What was expected and what came instead."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Notes a difference."""
        if found != wanted:
            self.wrong.append(f"{what}: {found}, not {wanted}")

    def within(self, what: str, seconds: float, condition: Callable[[], bool]) -> float:
        """Waits; notes when it does not come true."""
        try:
            return wait_until(condition, seconds)
        except (TimeoutError, OSError) as error:
            self.wrong.append(f"{what}: {error}")
            return seconds


def rotations(site: Site, log: Log) -> float:
    """Certificates that change under a server; the slowest change in seconds."""
    server = site.server
    assert server is not None
    first, second = site.authority.issue("first"), site.authority.issue("second")
    failed = server.metric(TLS_FAILED)

    def now_served(pair: Pair) -> bool:
        return same(served(server.addr), pair)

    slowest = 0.0
    for pair in (first, second):
        before = server.metric(TLS_RELOADED)
        site.install(pair)
        slowest = max(slowest, log.within("new", RELOAD_SECONDS, lambda p=pair: now_served(p)))
        log.expect("reloads counted", server.metric(TLS_RELOADED) > before, True)
        log.expect("a new stream", site.status("north-1", NORTH), "OK")
    failed = server.metric(TLS_FAILED)
    for what, content in (
        ("garbage", b"no certificate\n"),
        ("another key's", first.pem),
        ("empty", b""),
    ):
        put(site.cert, content)
        log.within(
            f"{what} noticed", RELOAD_SECONDS, lambda f=failed: server.metric(TLS_FAILED) > f
        )
        failed = server.metric(TLS_FAILED)
        log.expect(f"{what}: the old one is served", now_served(second), True)
        log.expect(f"{what}: a new stream", site.status("north-1", NORTH), "OK")
    site.install(second)
    return slowest


def token_checks(site: Site, log: Log, brief_until: datetime) -> float:
    """Who is let in, before and after the file changes; the seconds that a change took."""
    server = site.server
    assert server is not None
    for what, name, secret, wanted in (
        ("right", "north-1", NORTH, "OK"),
        ("hashed", "south-1", HASHED, "OK"),
        ("brief, in time", "anyone", BRIEF, "OK"),
        ("missing", "north-1", "", "UNAUTHENTICATED"),
        ("wrong", "north-1", WRONG, "UNAUTHENTICATED"),
        ("expired", "north-1", EXPIRED, "UNAUTHENTICATED"),
        ("its sha256", "south-1", hashlib.sha256(HASHED.encode()).hexdigest(), "UNAUTHENTICATED"),
        ("another's camera", "south-1", NORTH, "PERMISSION_DENIED"),
        ("another's camera", "south-2", HASHED, "PERMISSION_DENIED"),
    ):
        log.expect(f"token {what}", site.status(name, secret), wanted)

    failed = server.metric(TOKENS_FAILED)
    put(site.token_file, "[[token]\nname = ")
    log.within(
        "broken tokens noticed", RELOAD_SECONDS, lambda: server.metric(TOKENS_FAILED) > failed
    )
    log.expect("broken tokens: the old ones hold", site.status("north-1", NORTH), "OK")

    before = server.metric(TOKENS_RELOADED)
    put(site.token_file, tokens(NORTH_NEXT, brief_until))
    took = log.within("tokens", RELOAD_SECONDS, lambda: server.metric(TOKENS_RELOADED) > before)
    log.expect("rotated token", site.status("north-1", NORTH_NEXT), "OK")
    log.expect("token before the rotation", site.status("north-1", NORTH), "UNAUTHENTICATED")

    time.sleep(max(0.0, (brief_until - datetime.now(UTC)).total_seconds() + 1))
    log.expect("brief token, too late", site.status("anyone", BRIEF), "UNAUTHENTICATED")
    return took


def leaks(env: Env, flags: tuple[str, ...], server: Server, keys: list[Path]) -> list[str]:
    """Secrets found in the log, in the printed settings, or in the metrics."""
    shown = env.run([env.server, *flags, "--print-config"], cwd=env.root)
    places = {
        "the log": server.stderr_text() + server.stdout_text(),
        "--print-config": shown.stdout + shown.stderr,
        "/metrics": http_get(server.admin, "/metrics")[1],
    }
    lines = [line for key in keys for line in key.read_text(encoding="ascii").splitlines()]
    wanted = [*SECRETS, *(line for line in lines if not line.startswith("---"))]
    # What is looked for must be able to be found: a key that was not read would prove nothing.
    assert len(wanted) > len(SECRETS)
    empty = [f"{place} is empty" for place, text in places.items() if not text]
    return empty + [
        f"{place} shows {secret[:12]}..."
        for place, text in places.items()
        for secret in wanted
        if secret in text
    ]


def mutual_tls(site: Site, log: Log) -> None:
    """Clients that must show a certificate."""
    stranger = Authority(site.env, "stranger")
    good, late = site.authority.issue("camera"), site.authority.issue("late", expired=True)
    foreign = stranger.issue("foreign")
    flags = (*SPIN, "--tls-cert", str(site.cert), "--tls-key", str(site.key))
    ca = ("--tls-client-ca", str(site.authority.own.cert))
    with Server(site.env, *flags, *ca) as server:
        site.server = server
        log.expect("client certificate", site.status("camera", pair=good), "OK")
        for what, pair in (("no", None), ("an expired", late), ("a stranger's", foreign)):
            # The handshake fails, so that no call is there to have a status of its own.
            found = site.status("camera", pair=pair)
            log.expect(
                f"{what} client certificate", found in ("UNAVAILABLE", "UNAUTHENTICATED"), True
            )
        log.expect("streams opened", server.metric("vedette_streams_opened_total"), 1)


@promise(
    30,
    "certificates and tokens change without a restart, and stay secret",
    mark="new ones in use <= 5 s, streams live; bad ones: the old serve on; else UNAUTHENTICATED",
)
def trust(env: Env) -> Finding:
    """A server with TLS and tokens under a standing stream. Its certificate is replaced twice: new
    connections get the new one within 5 s. It is replaced by garbage, by one that does not fit the
    key, by nothing: each is counted and the last good one is served. Tokens: right, hashed,
    missing, wrong, expired, expiring meanwhile, for another's camera; then the file is broken (the
    old one holds) and rotated (only the new secret is taken). The standing stream lives through all
    of it with every frame answered. Then a server that asks for client certificates takes one of
    its authority's and no expired one, no stranger's, and none without. Neither a secret nor a key
    is in the log at level trace, in --print-config, or in the metrics.
    """
    log, authority = Log(), Authority(env)
    brief_until = datetime.now(UTC) + timedelta(seconds=BRIEF_SECONDS + 60)
    work = env.work
    site = Site(env, authority, work / "server.pem", work / "server.key", work / "tokens.toml")
    start = authority.issue("start")
    site.install(start)
    put(site.token_file, tokens(NORTH, brief_until))
    flags = (
        *SPIN, "--tls-cert", str(site.cert), "--tls-key", str(site.key),
        "--token-file", str(site.token_file), "--log-level", "trace",
    )  # fmt: skip
    with Server(env, *flags) as server:
        site.server = server
        with Standing(site.camera("north-standing", NORTH)) as standing:
            certificate_s = rotations(site, log)
            brief_until = datetime.now(UTC) + timedelta(seconds=BRIEF_SECONDS)
            put(site.token_file, tokens(NORTH, brief_until))
            time.sleep(RELOAD_SECONDS)
            tokens_s = token_checks(site, log, brief_until)
        log.expect("the standing stream", standing.ended, "")
        bad = [a for a in standing.answers if a.outcome != "OK"]
        found = leaks(env, flags, server, [site.key, start.key])
    mutual_tls(site, log)
    with contextlib.suppress(OSError):
        os.unlink(site.token_file)
    figure = (
        f"new certificate after {certificate_s:.1f} s, tokens after {tokens_s:.1f} s; standing stream: "
        f"{len(standing.answers)} frames, {len(bad)} not OK; {len(log.wrong)} of the checks wrong; "
        f"{len(found)} leaks of {len(SECRETS)} secrets and the keys"
    )
    held = not log.wrong and not bad and not found and len(standing.answers) > 0
    return Finding(figure, held, "\n".join([*log.wrong, *found]))
