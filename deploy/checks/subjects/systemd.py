"""The unit: that systemd takes it, that it is shut tight, and that its times fit the server's."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from pathlib import Path

from registry import Skip, check, complaints, need, output, tool

UNIT = "deploy/systemd/vedette.service"
SETTINGS = "deploy/systemd/vedette.toml"
# Of ten; `systemd-analyze security` finds 1.1.
MOST_EXPOSURE = 15
APT = "apt-get install systemd"
MUST = {
    "Type": "notify",
    "Restart": "on-failure",
    "CapabilityBoundingSet": "",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "MemoryDenyWriteExecute": "yes",
    "LimitCORE": "0",
}


def values(text: str) -> dict[str, str]:
    """Keys of a unit; of one that is given several times the first."""
    found: dict[str, str] = {}
    for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, value.strip())
    return found


def exit_codes(source: str) -> set[str]:
    """The codes that a restart does not help against: all that the server names but 70."""
    body = source[source.index("fn exit_code") :]
    body = body[: body.index("\n    }\n")]
    return set(re.findall(r"=> (6\d)\b", body))


@check("the unit fits the server", fast=True)
def times(root: Path) -> list[str]:
    """Watchdog above stuck_seconds + 5, time to stop above grace_seconds, no restart where none helps."""
    unit, settings = values(need(root / UNIT)), tomllib.loads(need(root / SETTINGS))
    wrong = [f"{key}={unit.get(key)}, not {value!r}" for key, value in MUST.items() if unit.get(key) != value]
    for key, above in (
        ("WatchdogSec", settings["stuck_seconds"] + 5),
        ("TimeoutStopSec", settings["grace_seconds"]),
    ):
        if not unit.get(key, "").isdigit() or int(unit[key]) <= above:
            wrong.append(f"{key}={unit.get(key)} is not above {above} s")
    codes = exit_codes(need(root / "server/src/error.rs"))
    if set(unit.get("RestartPreventExitStatus", "").split()) != codes:
        wrong.append(f"RestartPreventExitStatus= is not {' '.join(sorted(codes))}")
    return wrong


@check("every setting exists", fast=True)
def settings_known(root: Path) -> list[str]:
    """Also those that are commented out: people take the hash away and expect it to work."""
    known = set(re.findall(r"^    pub (\w+): Option<", need(root / "server/src/settings.rs"), re.MULTILINE))
    named = re.findall(r"^(?:# )?([a-z][a-z0-9_]*) = ", need(root / SETTINGS), re.MULTILINE)
    texts = [need(path) for path in sorted((root / "deploy/systemd/drop-ins").glob("*.conf"))]
    texts += [need(root / "deploy/compose" / name) for name in ("compose.yaml", "compose.tls.yaml")]
    texts.append(need(root / "deploy/container/Containerfile"))
    names = re.findall(r"\bVEDETTE_([A-Z0-9_]+)[=:](?!-)", "\n".join(texts))
    # Names of compose's own variables stand behind `${`, and before `:-`.
    named += [name.lower() for name in names]
    return [f"{name}: the server has no such setting" for name in sorted(set(named) - known)]


@check("systemd-analyze verify")
def verify(root: Path) -> list[str]:
    """In a root folder of its own, where the program exists."""
    analyze = tool("systemd-analyze", APT)
    with tempfile.TemporaryDirectory() as folder:
        units = Path(folder, "etc/systemd/system")
        units.mkdir(parents=True)
        shutil.copy(root / UNIT, units)
        program = Path(folder, "usr/bin/vedette-server")
        program.parent.mkdir(parents=True)
        program.write_text("", encoding="ascii")
        program.chmod(0o755)
        # The parts of systemd that the unit is ordered after.
        for place in ("usr/lib/systemd/system", "lib/systemd/system"):
            if Path("/", place).is_dir():
                shutil.copytree(Path("/", place), Path(folder, place), symlinks=True, dirs_exist_ok=True)
        for name in ("kill", "true"):
            other = Path(folder, "bin", name)
            other.parent.mkdir(exist_ok=True)
            other.write_text("", encoding="ascii")
            other.chmod(0o755)
        command = [analyze, "verify", f"--root={folder}", "--man=no", "--recursive-errors=no"]
        code, text = output([*command, units / "vedette.service"], root)
    own = [line for line in text.splitlines() if "vedette" in line]
    return own or ([] if code == 0 else text.splitlines()[-5:])


@check("systemd-analyze security")
def security(root: Path) -> list[str]:
    """How much the service could still do."""
    analyze = tool("systemd-analyze", APT)
    command = [analyze, "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", "--no-pager"]
    code, text = output([*command, root / UNIT], root)
    if "nrecognized option" in text:
        raise Skip("systemd-analyze is older than 250")
    return [] if code == 0 else text.splitlines()[-1:]


@check("settings are taken by the server")
def taken(root: Path) -> list[str]:
    """`--print-config`, where the server has been built."""
    server = root / "target/release/vedette-server"
    if not server.exists():
        raise Skip("target/release/vedette-server is missing: cargo build --release")
    return complaints([server, "--config", root / SETTINGS, "--print-config"], root)
