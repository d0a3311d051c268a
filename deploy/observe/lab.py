"""Where things are broken: servers that Prometheus watches, cameras that send, clients that misbehave."""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus import ROOT, Prometheus

sys.path.append(str(ROOT / "promises"))

from env import Env
from server import Server
from sim import Simulation

# Longer than any fault is watched, in seconds.
LOAD_SECONDS = "600"

_COUNTER = itertools.count(1)


@dataclass(frozen=True)
class Lab:
    """Where faults are played."""

    env: Env
    prometheus: Prometheus

    @contextlib.contextmanager
    def server(self, name: str, *flags: str, spin_ms: float | None = 1) -> Iterator[Server]:
        """A server that Prometheus watches as `name`. It computes nothing, unless told not to spin."""
        spin = () if spin_ms is None else ("--backend", "spin", "--spin-ms", f"{spin_ms:g}")
        server = Server(
            self.env, *spin, *flags, binary=self.env.faults_server(), root=True, settles=False
        )
        with server:
            self.prometheus.watch({name: server})
            self.prometheus.wait_for_scrape(name)
            try:
                yield server
            finally:
                self.prometheus.watch({})

    @contextlib.contextmanager
    def cameras(self, addr: str, count: int, fps: float, *flags: str) -> Iterator[Simulation]:
        """Cameras that send until the end."""
        load = ["--cameras", str(count), "--fps", f"{fps:g}", "--seconds", LOAD_SECONDS]
        simulation = Simulation(self.env, addr, *load, "--warmup", "0", *flags)
        try:
            yield simulation
        finally:
            simulation.process.send_signal(signal.SIGCONT)
            simulation.kill()

    @contextlib.contextmanager
    def rogues(self, addr: str, behaviour: str, clients: int, *flags: str) -> Iterator[Simulation]:
        """One quiet camera, and clients that break the rules."""
        scenario = self.env.work / f"scenario{next(_COUNTER)}.toml"
        scenario.write_text(
            f'name = "{behaviour}"\nseconds = {LOAD_SECONDS}\nwarmup_seconds = 0\n'
            '[[group]]\nname = "camera"\ncameras = 1\nfps = 5\n'
            f'[[rogue]]\nbehaviour = "{behaviour}"\nclients = {clients}\n',
            encoding="utf-8",
        )
        simulation = Simulation(self.env, addr, "--scenario", str(scenario), *flags)
        try:
            yield simulation
        finally:
            simulation.kill()


def certificate(lab: Lab, cert: Path, key: Path, days: int) -> None:
    """A certificate for this machine that is valid from now for so long."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    # Clients trust it itself, so it must not be one of an authority.
    names += ["-addext", "basicConstraints=critical,CA:FALSE"]
    out = ["-days", str(days), "-keyout", str(key), "-out", str(cert)]
    done = lab.env.run(["openssl", "req", "-x509", *curve, *names, *out])
    if done.returncode != 0:
        raise RuntimeError(f"openssl: {done.stderr.strip()[-300:]}")
