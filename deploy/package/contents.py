"""What a package of Vedette holds: one list for the tarball, for the check of the .deb's table in
server/Cargo.toml, and for the check of the container's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOC = "usr/share/doc/vedette"
# Written by licences.py before anything is packed.
CRATES = "target/dist/THIRD-PARTY-LICENCES.txt"


@dataclass(frozen=True)
class Item:
    """A file: where it comes from, relative to the repository, and where it goes, relative to /."""

    source: str
    target: str
    mode: int = 0o644
    # Network and runtime may be left out of a tarball, where they come from elsewhere.
    model: bool = False

    @property
    def path(self) -> Path:
        """The file itself."""
        return ROOT / self.source


CONFIG = Item("deploy/systemd/vedette.toml", "etc/vedette/vedette.toml")
UNIT = Item("deploy/systemd/vedette.service", "usr/lib/systemd/system/vedette.service")
SYSUSERS = Item("deploy/systemd/vedette.sysusers", "usr/lib/sysusers.d/vedette.conf")

PROGRAMS = (
    Item("target/release/vedette-server", "usr/bin/vedette-server", 0o755),
    Item("target/release/client-sim", "usr/bin/client-sim", 0o755),
)
MODEL = (
    Item(
        "models/cache/onnxruntime/libonnxruntime.so",
        "usr/lib/vedette/libonnxruntime.so",
        model=True,
    ),
    Item("models/cache/yolox_nano.onnx", "usr/share/vedette/yolox_nano.onnx", model=True),
    Item("models/cache/yolox_nano.LICENSE.txt", f"{DOC}/yolox_nano.LICENSE.txt", model=True),
    Item("models/cache/onnxruntime/LICENSE", f"{DOC}/onnxruntime/LICENSE", model=True),
    Item(
        "models/cache/onnxruntime/ThirdPartyNotices.txt",
        f"{DOC}/onnxruntime/ThirdPartyNotices.txt",
        model=True,
    ),
)
DOCS = (
    Item("LICENSE", f"{DOC}/LICENSE"),
    Item(CRATES, f"{DOC}/THIRD-PARTY-LICENCES.txt"),
    Item("CHANGELOG.md", f"{DOC}/CHANGELOG.md"),
    Item("SECURITY.md", f"{DOC}/SECURITY.md"),
    Item("docs/operations.md", f"{DOC}/operations.md"),
    Item("docs/connections.md", f"{DOC}/connections.md"),
    Item("docs/client-sim.md", f"{DOC}/client-sim.md"),
    Item("docs/deployment.md", f"{DOC}/deployment.md"),
    Item("proto/camera_ai.proto", f"{DOC}/camera_ai.proto"),
    *(
        Item(f"deploy/systemd/drop-ins/{name}", f"{DOC}/examples/{name}")
        for name in ("cores.conf", "credentials.conf", "memory.conf")
    ),
)
# The .deb takes the unit, the user and the settings by its own means: the first two by `systemd-units`,
# the last as a file that upgrades leave alone.
EVERYWHERE = (*PROGRAMS, *MODEL, *DOCS)
