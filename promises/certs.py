"""Certificates made with openssl: an authority, servers and clients, good and expired."""

from __future__ import annotations

import itertools
import ssl
from dataclasses import dataclass
from pathlib import Path

from env import LOOPBACK, Env
from promise import CannotRun

_COUNTER = itertools.count(1)

# When a certificate was made that has long expired.
LONG_AGO = "2020-01-01"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.cert.read_bytes()

    @property
    def key_pem(self) -> bytes:
        """The key."""
        return self.key.read_bytes()


class Authority:
    """A certificate authority of this run's own."""

    def __init__(self, env: Env, name: str = "ca") -> None:
        self.env = env
        self.folder = env.work / "certificates"
        self.folder.mkdir(exist_ok=True)
        self.own = self._pair(name)
        self._openssl(
            "req", "-x509", *self._new_key(self.own), "-days", "2", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE", "-out", str(self.own.cert),
        )  # fmt: skip

    def _pair(self, name: str) -> Pair:
        stem = f"{name}-{next(_COUNTER)}"
        return Pair(self.folder / f"{stem}.pem", self.folder / f"{stem}.key")

    @staticmethod
    def _new_key(pair: Pair) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        return [*curve, "-keyout", str(pair.key)]

    def _openssl(self, *arguments: str, at: str = "") -> None:
        prefix = ["faketime", at] if at else []
        done = self.env.run([*prefix, "openssl", *arguments])
        if done.returncode != 0:
            raise CannotRun(f"openssl {arguments[0]}: {done.stderr.strip()[-300:]}")

    def issue(self, name: str, *, expired: bool = False) -> Pair:
        """A certificate for this machine's loopback, for servers and clients, valid for two days."""
        pair = self._pair(name)
        request, extensions = pair.cert.with_suffix(".csr"), pair.cert.with_suffix(".ext")
        extensions.write_text(
            f"subjectAltName=IP:{LOOPBACK},DNS:localhost\nbasicConstraints=CA:FALSE\n"
            "extendedKeyUsage=serverAuth,clientAuth\n",
            encoding="ascii",
        )
        subject = ["-subj", f"/CN={name}", "-out", str(request)]
        self._openssl("req", "-new", *self._new_key(pair), *subject)
        self._openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.own.cert),
            "-CAkey", str(self.own.key), "-CAcreateserial", "-days", "2",
            "-extfile", str(extensions), "-out", str(pair.cert),
            at=LONG_AGO if expired else "",
        )  # fmt: skip
        return pair


def served(addr: str) -> str:
    """The certificate that a server shows to a new connection, as PEM."""
    host, _, port = addr.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=5)


def same(pem: str, pair: Pair) -> bool:
    """Whether PEM is a pair's certificate."""
    own = ssl.PEM_cert_to_DER_cert(pair.pem.decode())
    return ssl.PEM_cert_to_DER_cert(pem) == own
