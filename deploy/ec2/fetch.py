#!/usr/bin/env python3
"""Brings a file, or a secret, to an EC2 instance at its first start, with nothing installed but Python.

    fetch.py file URL SHA256 TO          https://..., or s3://BUCKET/KEY with the instance's own role
    fetch.py secret ARN TO [GROUP]       of Secrets Manager; root writes it, GROUP may read it

The role's credentials come from the instance metadata service (version 2 only) and are never written
anywhere. A file counts only with the content that SHA256 says.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

METADATA = os.environ.get("VEDETTE_METADATA", "http://169.254.169.254")
# For tests; in service the names of AWS are used.
ENDPOINT = os.environ.get("VEDETTE_ENDPOINT", "")
SECONDS = 30.0
# A network that is not there yet, a role that was attached a moment ago.
ATTEMPTS = 8
SCOPE_END = "aws4_request"


class FetchError(Exception):
    """Why there is no file: one line that says what to do."""


def ask(request: urllib.request.Request) -> bytes:
    """The body of an answer."""
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        words = error.read()[:300].decode(errors="replace")
        raise FetchError(f"{request.full_url}: status {error.code}: {words}") from error
    except OSError as error:
        raise FetchError(f"{request.full_url}: {error}") from error


def metadata(path: str, token: str) -> str:
    """An entry of the instance metadata service."""
    head = {"X-aws-ec2-metadata-token": token}
    return ask(urllib.request.Request(f"{METADATA}/latest/{path}", headers=head)).decode()


def credentials() -> tuple[dict[str, str], str]:
    """The role's credentials and the region."""
    head = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    put = urllib.request.Request(f"{METADATA}/latest/api/token", method="PUT", headers=head)
    token = ask(put).decode()
    role = metadata("meta-data/iam/security-credentials/", token).split("\n")[0]
    found = json.loads(metadata(f"meta-data/iam/security-credentials/{role}", token))
    return found, metadata("meta-data/placement/region", token)


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def keyed(key: bytes, text: str) -> bytes:
    """HMAC-SHA-256."""
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def authorization(
    request: urllib.request.Request,
    headers: Mapping[str, str],
    service: str,
    region: str,
    role: Mapping[str, str],
) -> str:
    """The header that signs a request (Signature Version 4). `headers` are all that are signed, in lower
    case, x-amz-date among them; the path of the URL is taken as it is, quoted."""
    url = urllib.parse.urlsplit(request.full_url)
    body = request.data if isinstance(request.data, bytes) else b""
    names = ";".join(sorted(headers))
    lines = [request.get_method(), url.path or "/", url.query]
    lines += [f"{name}:{headers[name].strip()}" for name in sorted(headers)]
    canonical = "\n".join([*lines, "", names, headers.get("x-amz-content-sha256", digest(body))])
    stamp = headers["x-amz-date"]
    parts = [stamp[:8], region, service, SCOPE_END]
    scope = "/".join(parts)
    key = f"AWS4{role['SecretAccessKey']}".encode()
    for part in parts:
        key = keyed(key, part)
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest(canonical.encode())])
    signature = keyed(key, text).hex()
    credential = f"{role['AccessKeyId']}/{scope}"
    return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"


def signed(url: str, service: str, body: bytes | None, extra: Mapping[str, str]) -> bytes:
    """The answer to a request in the instance's own name."""
    role, region = credentials()
    url = url.replace("{region}", region)
    if ENDPOINT:
        url = ENDPOINT + urllib.parse.urlsplit(url).path
    request = urllib.request.Request(url, data=body, method="POST" if body else "GET")
    headers = {
        "host": urllib.parse.urlsplit(url).netloc,
        "x-amz-content-sha256": digest(body or b""),
        "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        "x-amz-security-token": role["Token"],
        **extra,
    }
    for name, value in headers.items():
        request.add_header(name, value)
    request.add_header("Authorization", authorization(request, headers, service, region, role))
    return ask(request)


def s3_url(text: str) -> str:
    """s3://BUCKET/KEY as the address of the object, by region; the bucket's name stands in the path, as
    names with dots fit no certificate."""
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", text)
    if match is None:
        raise FetchError(f"{text}: s3://BUCKET/KEY is expected")
    return f"https://s3.{{region}}.amazonaws.com/{match[1]}/{urllib.parse.quote(match[2])}"


def download(url: str) -> bytes:
    """The object or page."""
    if url.startswith("s3://"):
        return signed(s3_url(url), "s3", None, {})
    if not url.startswith("https://"):
        raise FetchError(f"{url}: only https:// and s3:// are fetched")
    return ask(urllib.request.Request(url))


def secret(arn: str) -> bytes:
    """A secret's text or bytes."""
    if not re.fullmatch(r"arn:[a-z-]+:secretsmanager:[a-z0-9-]+:\d+:secret:\S+", arn):
        raise FetchError(f"{arn}: not the ARN of a secret of Secrets Manager")
    kind = {
        "content-type": "application/x-amz-json-1.1",
        "x-amz-target": "secretsmanager.GetSecretValue",
    }
    body = json.dumps({"SecretId": arn}).encode()
    url = "https://secretsmanager.{region}.amazonaws.com/"
    found: dict[str, Any] = json.loads(signed(url, "secretsmanager", body, kind))
    if "SecretString" not in found:
        raise FetchError(f"{arn}: it holds bytes; a secret that is text is expected")
    return str(found["SecretString"]).encode()


def place(to: Path, data: bytes, mode: int, group: str | None) -> None:
    """Writes the file in one step, never readable for more than it shall be."""
    part = to.with_name(f".{to.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    if group is not None:
        shutil.chown(part, group=group)
    part.chmod(mode)
    part.rename(to)


def patiently(get: Callable[[], bytes]) -> bytes:
    """Tries again for a while: about four minutes altogether."""
    for attempt in range(ATTEMPTS):
        try:
            return get()
        except FetchError as error:
            if attempt == ATTEMPTS - 1:
                raise
            print(f"fetch: {error}; again in {2**attempt} s", file=sys.stderr)
            time.sleep(2**attempt)
    raise AssertionError("the last attempt returns or raises")


def main(arguments: list[str]) -> int:
    """The command line."""
    try:
        match arguments:
            case ["file", url, sha256, to]:
                data = patiently(lambda: download(url))
                if digest(data) != sha256.lower():
                    raise FetchError(f"{url}: SHA-256 is {digest(data)}, {sha256} is expected")
                place(Path(to), data, 0o644, None)
            case ["secret", arn, to, *group] if len(group) < 2:
                place(Path(to), patiently(lambda: secret(arn)), 0o640, *(group or [None]))
            case _:
                print(__doc__, file=sys.stderr)
                return 64
    except (FetchError, OSError, LookupError, ValueError) as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
