#!/usr/bin/env python3
"""Fills in user-data.yaml.tftpl without Terraform, for an instance that is started by hand:

    python3 deploy/ec2/render.py --package-url https://... --package-sha256 ... > user-data.yaml
    aws ec2 run-instances --user-data file://user-data.yaml ...
"""

from __future__ import annotations

import argparse
import base64
import gzip
import re
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "user-data.yaml.tftpl"
SETTINGS = HERE.parent / "systemd" / "vedette.toml"
# EC2's limit for user data, in bytes before base64.
MOST_BYTES = 16384
# What a value may hold that ends up between single quotes of a shell.
SAFE = re.compile(r"[A-Za-z0-9._~:/?#@!$&()*+,;=%{}-]+")
LOOP = re.compile(r"%\{ for name, arn in secrets ~\}\n(.*?)%\{ endfor ~\}\n", re.DOTALL)


class RenderError(Exception):
    """Why there is no user data."""


def render(url: str, sha256: str, settings: bytes, secrets: Mapping[str, str]) -> str:
    """The template with its places filled, as Terraform's templatefile does it."""
    if not SAFE.fullmatch(url) or not re.fullmatch(r"(https|s3)://\S+", url):
        raise RenderError(f"--package-url {url}: https://... or s3://BUCKET/KEY, without quotes")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise RenderError(f"--package-sha256 {sha256}: 64 hexadecimal digits, as in SHA256SUMS")
    for name, arn in secrets.items():
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) or not SAFE.fullmatch(arn):
            raise RenderError(f"--secret {name}={arn}: FILE=ARN, FILE such as server.key")
    script = gzip.compress((HERE / "fetch.py").read_bytes(), 9, mtime=0)
    values = {
        "fetch": base64.b64encode(script).decode(),
        "settings": base64.b64encode(settings).decode(),
        "package_url": url,
        "package_sha256": sha256,
    }

    def each(match: re.Match[str]) -> str:
        return "".join(fill(match[1], {"name": n, "arn": a}) for n, a in sorted(secrets.items()))

    text = fill(LOOP.sub(each, TEMPLATE.read_text(encoding="utf-8")), values)
    if len(text.encode()) > MOST_BYTES:
        raise RenderError(f"{len(text.encode())} bytes, EC2 takes {MOST_BYTES}: shorten the settings")
    return text


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replaces the places that have values."""
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package-url", required=True, metavar="URL", help="https:// or s3://")
    parser.add_argument("--package-sha256", required=True, metavar="HEX")
    parser.add_argument("--settings", type=Path, default=SETTINGS, metavar="FILE")
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="FILE=ARN",
        help="a secret of Secrets Manager, to be put into /etc/vedette/tls/FILE",
    )
    args = parser.parse_args()
    try:
        secrets = dict(pair.split("=", 1) for pair in args.secret)
        text = render(args.package_url, args.package_sha256, args.settings.read_bytes(), secrets)
    except (RenderError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
