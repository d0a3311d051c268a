"""What is broken to make each alert fire, on a running server.

A fault is a context: what is broken is broken once it has been entered, and ends with it. `expects` are the
alerts that must fire then, `may` those that follow from the fault on some machines; any other alert
for that server is a failure of the rules.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from lab import LOAD_SECONDS, Lab, certificate
from prometheus import ROOT

sys.path.append(str(ROOT / "promises"))

from env import FIXTURES, wait_until

# An alert by name, and labels that it must have.
Wanted = tuple[str, dict[str, str]]


Play = Callable[[Lab, str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """Something to break, what must fire, and what else may."""

    name: str
    what: str
    play: Play
    expects: tuple[Wanted, ...]
    may: tuple[str, ...] = ()
    seconds: float = 60.0
    # Alerts about all servers together, such as that there is none, have no instance.
    everywhere: bool = False


FAULTS: list[Fault] = []


def fault(
    name: str,
    what: str,
    *expects: str | Wanted,
    may: tuple[str, ...] = (),
    seconds: float = 60.0,
    everywhere: bool = False,
) -> Callable[[Callable[[Lab, str], Iterator[None]]], Play]:
    """Enters a fault in the list."""

    def enter(play: Callable[[Lab, str], Iterator[None]]) -> Play:
        context = contextlib.contextmanager(play)
        wanted = tuple((w, {}) if isinstance(w, str) else w for w in expects)
        FAULTS.append(Fault(name, what, context, wanted, may, seconds, everywhere))
        return context

    return enter


SECRET = "a-secret-of-this-test-only"
TOKENS = f'[[token]]\nname = "north"\nsecret = "{SECRET}"\n'

LATE = ("VedetteAnswersLate", "VedetteLateBudgetFast", "VedetteLateBudgetSlow")


@fault("frozen", "the server is stopped (SIGSTOP)", "VedetteDown")
def frozen(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name) as server:
        server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            server.signal(signal.SIGCONT)


@fault("no-targets", "Prometheus loses its targets", "VedetteAbsent", everywhere=True)
def no_targets(lab: Lab, name: str) -> Iterator[None]:
    lab.prometheus.watch({})
    yield


@fault(
    "stuck",
    "an inference hangs, the process may not end itself (`--fault hang-inference:600 --stuck-exit-seconds 0`)",
    "VedetteNotReady",
    "VedetteWorkerStuck",
    may=("VedetteBeyondCapacity",),
)
def stuck(lab: Lab, name: str) -> Iterator[None]:
    hang = ("--fault", "hang-inference:600", "--stuck-exit-seconds", "0", "--workers", "1")
    with lab.server(name, *hang, "--stuck-seconds", "3") as server, lab.cameras(server.addr, 1, 10):
        yield


@fault("crash-loop", "the server is killed three times", "VedetteRestarts", may=("VedetteDown",))
def crash_loop(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name) as server:
        for _ in range(3):
            # Starts are known in whole seconds, and each has to be scraped.
            time.sleep(2.2)
            server.process.kill()
            server.process.wait()
            server.__enter__()
        yield


@fault("slow", "every inference takes 150 ms, one camera at 2 FPS", *LATE, seconds=90)
def slow(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name, spin_ms=150) as server, lab.cameras(server.addr, 1, 2):
        yield


@fault("old-pictures", "cameras whose clock is 3 s behind (faketime)", "VedetteFramesOld")
def old_pictures(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name) as server:
        camera: list[str | Path] = [
            "faketime",
            "-f",
            "-3s",
            lab.env.client_sim,
            "run",
            "--addr",
            server.addr,
        ]
        load = ["--cameras", "2", "--fps", "5", "--seconds", LOAD_SECONDS, "--quiet"]
        # Only what day it is, not how time passes.
        environment = {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        process = lab.env.spawn([*camera, *load, "--self-test", "never"], environment=environment)
        try:
            yield
        finally:
            lab.env.end(process)


@fault(
    "overload",
    "12 cameras at 10 FPS, 30 ms each, one worker",
    "VedetteBeyondCapacity",
    "VedetteWorkersBusy",
    "VedetteHeadroomLow",
    may=LATE,
)
def overload(lab: Lab, name: str) -> Iterator[None]:
    with (
        lab.server(name, "--workers", "1", spin_ms=30) as server,
        lab.cameras(server.addr, 12, 10),
    ):
        yield


@fault(
    "nearly-full",
    "5 cameras at 10 FPS, 17.6 ms each, one worker: busy, though nothing is dropped",
    "VedetteWorkersBusy",
    "VedetteHeadroomLow",
    # Where somebody else keeps the machine busy as well.
    may=(*LATE, "VedetteBeyondCapacity"),
)
def nearly_full(lab: Lab, name: str) -> Iterator[None]:
    with (
        lab.server(name, "--workers", "1", spin_ms=17.6) as server,
        lab.cameras(server.addr, 5, 10),
    ):
        yield


@fault("too-fast", "cameras at 10 FPS against `--max-fps 5`", "VedetteFramesOverloaded")
def too_fast(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name, "--max-fps", "5") as server, lab.cameras(server.addr, 2, 10):
        yield


@fault("few-descriptors", "connections take 90 % of 64 file descriptors", "VedetteDescriptorsLow")
def few_descriptors(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name) as server:
        most = 64
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (most, most))
        room = int(0.9 * most) - int(server.metric("process_open_fds"))
        with lab.cameras(server.addr, room, 1):
            yield


@fault(
    "memory",
    "150 frames of 15 MB wait for one slow worker",
    "VedetteMemoryHigh",
    may=(*LATE, "VedetteBeyondCapacity", "VedetteWorkersBusy", "VedetteHeadroomLow",
         "VedetteCamerasStale", "VedetteFramesOld", "VedetteDown"),
    seconds=120,
)  # fmt: skip
def memory(lab: Lab, name: str) -> Iterator[None]:
    folder = lab.env.work / "large"
    folder.mkdir(exist_ok=True)
    width, height = 2240, 2240
    size = 54 + width * height * 3
    header = b"BM" + size.to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    header += (
        (40).to_bytes(4, "little") + width.to_bytes(4, "little") + height.to_bytes(4, "little")
    )
    header += (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24)
    (folder / "large.bmp").write_bytes(header + bytes(width * height * 3))
    flags = ("--workers", "1", "--frame-memory-bytes", str(8 << 30), "--budget-ms", "60000")
    with (
        lab.server(name, *flags, spin_ms=800) as server,
        lab.cameras(server.addr, 150, 0.1, "--images", str(folder), "--phase", "aligned"),
    ):
        yield


@fault("silent-cameras", "the cameras' process is stopped (SIGSTOP)", "VedetteCamerasStale")
def silent_cameras(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name, "--keepalive-seconds", "60") as server:
        with lab.cameras(server.addr, 3, 10) as cameras:
            wait_until(lambda: server.metric("vedette_live_cameras") == 3, 10)
            time.sleep(2)
            cameras.process.send_signal(signal.SIGSTOP)
            yield


@fault(
    "no-places",
    "4 cameras for 2 places (`--max-cameras 2`)",
    "VedetteCamerasRefused",
    may=("VedetteHeadroomLow",),
)
def no_places(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name, "--max-cameras", "2") as server, lab.cameras(server.addr, 4, 5):
        yield


@fault(
    "old-token",
    "the token of 8 clients that connect again and again is taken out of the token file",
    ("VedetteStreamsDenied", {"reason": "unauthenticated"}),
)
def old_token(lab: Lab, name: str) -> Iterator[None]:
    tokens, own = (lab.env.work / f"{name}.{kind}" for kind in ("toml", "token"))
    tokens.write_text(TOKENS, encoding="utf-8")
    own.write_text(SECRET, encoding="utf-8")
    for file in (tokens, own):
        file.chmod(0o600)
    with (
        lab.server(name, "--token-file", str(tokens)) as server,
        lab.rogues(server.addr, "flapping", 8, "--token-file", str(own)),
    ):
        wait_until(lambda: server.metric("vedette_streams_opened_total") > 8, 15)
        tokens.write_text(TOKENS.replace(SECRET, SECRET[::-1]), encoding="utf-8")
        server.signal(signal.SIGHUP)
        yield


@fault(
    "one-address",
    "12 cameras from one address that may have 2 (`--max-connections-per-ip 2`)",
    ("VedetteConnectionsRefused", {"reason": "max_connections_per_ip"}),
)
def one_address(lab: Lab, name: str) -> Iterator[None]:
    with (
        lab.server(name, "--max-connections-per-ip", "2") as server,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(12):
            stack.enter_context(lab.cameras(server.addr, 1, 5, "--connect-seconds", "60"))
        yield


@fault(
    "never-leave",
    "8 cameras are stopped (SIGSTOP) and do not leave when their connections are 6 s old",
    "VedetteConnectionsCut",
    may=("VedetteCamerasStale",),
)
def never_leave(lab: Lab, name: str) -> Iterator[None]:
    age = ("--max-connection-age-seconds", "6", "--connection-grace-seconds", "1")
    with (
        lab.server(name, *age, "--keepalive-seconds", "60") as server,
        lab.cameras(server.addr, 8, 5) as cameras,
    ):
        wait_until(lambda: server.metric("vedette_live_cameras") == 8, 10)
        cameras.process.send_signal(signal.SIGSTOP)
        yield


@fault(
    "panics",
    "every fifth inference panics (`--fault panic-inference:5`)",
    "VedettePanics",
    "VedetteInternalErrors",
)
def panics(lab: Lab, name: str) -> Iterator[None]:
    with (
        lab.server(name, "--fault", "panic-inference:5") as server,
        lab.cameras(server.addr, 1, 10),
    ):
        yield


@fault(
    "garbage", "a client that sends bytes which are no picture", "VedetteBadImages",
)  # fmt: skip
def garbage(lab: Lab, name: str) -> Iterator[None]:
    with lab.server(name) as server, lab.rogues(server.addr, "garbage", 1):
        yield


BROKEN = b"<html>404 Not Found</html>\n"


@fault(
    "bad-files",
    "model, certificate and tokens are overwritten with an error page, then SIGHUP",
    *(("VedetteReloadFailed", {"what": what}) for what in ("model", "certificate", "tokens")),
    may=("VedetteCertificateExpires",),
)
def bad_files(lab: Lab, name: str) -> Iterator[None]:
    files = {key: lab.env.work / f"changed.{key}" for key in ("onnx", "pem", "key", "toml")}
    shutil.copyfile(FIXTURES / "models" / "cells_v8.onnx", files["onnx"])
    certificate(lab, files["pem"], files["key"], days=60)
    files["toml"].write_text(TOKENS, encoding="utf-8")
    files["toml"].chmod(0o600)
    flags = [f"--model={files['onnx']}", f"--token-file={files['toml']}", "--workers=1"]
    flags += [f"--tls-cert={files['pem']}", f"--tls-key={files['key']}"]
    with lab.server(name, *flags, spin_ms=None) as server:
        for key in ("onnx", "pem", "toml"):
            files[key].write_bytes(BROKEN)
        server.signal(signal.SIGHUP)
        yield


@contextlib.contextmanager
def with_certificate(lab: Lab, name: str, days: int) -> Iterator[None]:
    """A server whose certificate is valid for so long."""
    cert, key = (lab.env.work / f"{name}.{kind}" for kind in ("pem", "key"))
    certificate(lab, cert, key, days)
    with lab.server(name, "--tls-cert", str(cert), "--tls-key", str(key)):
        yield


@fault("ten-days", "a certificate with ten days left", "VedetteCertificateExpires")
def ten_days(lab: Lab, name: str) -> Iterator[None]:
    with with_certificate(lab, name, 10):
        yield


@fault(
    "one-day",
    "a certificate with one day left",
    "VedetteCertificateExpires",
    "VedetteCertificateExpiresSoon",
)
def one_day(lab: Lab, name: str) -> Iterator[None]:
    with with_certificate(lab, name, 1):
        yield
