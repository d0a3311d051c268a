"""Stand-ins for the programs under test: a server that listens and ends in order, and a simulator."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

SERVER = """#!{python}
import os, signal, sys, time, tomllib
arguments = sys.argv[1:]
KNOWN = {{"max_cameras": 256, "max_pixels": 16777216, "addr": "0.0.0.0:50051"}}
if "--print-config" in arguments:
    with open(arguments[arguments.index("--config") + 1], "rb") as file:
        wanted = tomllib.load(file)
    if unknown := set(wanted) - set(KNOWN):
        sys.exit(f"vedette-server: {{unknown.pop()}}: unknown key")
    if any(name.startswith("VEDETTE_") for name in os.environ):
        sys.exit("vedette-server: variables win over the file")
    if wanted.get("max_pixels") == "1920x1080":
        wanted["max_pixels"] = 2073600
    if wanted.get("max_cameras") == 13:
        wanted["max_cameras"] = 12
    for key, value in (KNOWN | wanted).items():
        print(key, "=", repr(value).replace("'", '"'))
    sys.exit(0)
if "--token-file" in arguments:
    if "secret" not in open(arguments[arguments.index("--token-file") + 1]).read():
        sys.exit("vedette-server: token_file: no secret")
if "--broken" in arguments:
    sys.exit("vedette-server: broken")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3 if "--bad-end" in arguments else 0))
print("listening on", os.environ["VEDETTE_ADDR"], flush=True)
while True:
    time.sleep(0.05)
"""

SIMULATOR = """#!{python}
import sys, tomllib
arguments = sys.argv[1:]
for flag in ("--scenario", "--instances"):
    if flag in arguments:
        with open(arguments[arguments.index(flag) + 1], "rb") as file:
            if "bad" in tomllib.load(file):
                sys.exit("client-sim: bad: unknown key")
        sys.exit("client-sim: cannot reach 127.0.0.1:1: refused")
print("PASS: slowest answer 3 ms" if "--silent" not in arguments else "nothing")
sys.exit(1 if "--fail" in arguments else 0)
"""


class Bench:
    """A repository and programs in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.home = Path(self._folder.name)
        self.root = self.home / "repository"
        (self.root / "models").mkdir(parents=True)
        (self.root / "README.md").write_text("# x\n", encoding="utf-8")
        self.binaries = self.home / "bin"
        self.binaries.mkdir()
        for name, text in (("vedette-server", SERVER), ("client-sim", SIMULATOR)):
            path = self.binaries / name
            path.write_text(text.format(python=sys.executable), encoding="utf-8")
            path.chmod(0o755)
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("VEDETTE_")},
            "PATH": f"{self.binaries}{os.pathsep}{os.environ['PATH']}",
            "VEDETTE_ADDR": "127.0.0.1:7001",
        }

    def close(self) -> None:
        """Removes all of it."""
        self._folder.cleanup()
