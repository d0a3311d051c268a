"""How an instance gets its files: signatures, hashes, rights, and what is refused."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import sys
import tempfile
import threading
import unittest
import urllib.request
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ec2"))

import fetch
import render

ROLE = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "Token": "session"}
ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:key-AbCdEf"


class Aws(http.server.BaseHTTPRequestHandler):
    """The metadata service (version 2), S3 and Secrets Manager, as far as they are asked."""

    def answer(self, status: int, body: bytes) -> None:
        """A status and a body."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        """A session of the metadata service."""
        self.answer(200, b"metadata-session")

    def do_GET(self) -> None:
        """Metadata for those with a session; objects for those who sign."""
        if self.path.startswith("/latest/"):
            if self.headers["X-aws-ec2-metadata-token"] != "metadata-session":
                self.answer(401, b"")
            elif self.path.endswith("/role"):
                self.answer(200, json.dumps(ROLE).encode())
            else:
                self.answer(200, b"eu-central-1" if self.path.endswith("region") else b"role")
            return
        signed = self.headers["Authorization"] or ""
        good = "/eu-central-1/s3/aws4_request" in signed and self.headers["x-amz-security-token"] == "session"
        self.answer(200 if good else 403, b"the package")

    def do_POST(self) -> None:
        """A secret."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = "/secretsmanager/aws4_request" in self.headers["Authorization"] and asked["SecretId"] == ARN
        self.answer(200 if good else 403, json.dumps({"SecretString": "the key"}).encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Fetching(unittest.TestCase):
    """Against servers on this machine."""

    def setUp(self) -> None:
        """The servers and a folder."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Aws)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        base = f"http://127.0.0.1:{server.server_port}"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.to = Path(folder.name, "file")
        for name, value in (("METADATA", base), ("ENDPOINT", base), ("ATTEMPTS", 1)):
            patch = mock.patch.object(fetch, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_it(self, *arguments: str) -> tuple[int, str]:
        """Exit code, and what it says."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return fetch.main(list(arguments)), said.getvalue()

    def test_the_signature_is_that_of_the_published_example(self) -> None:
        """`get-vanilla` of the test suite of Signature Version 4."""
        request = urllib.request.Request("https://example.amazonaws.com/")
        headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
        found = fetch.authorization(request, headers, "service", "us-east-1", ROLE)
        self.assertIn("Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31", found)

    def test_an_object_counts_with_its_hash_only(self) -> None:
        """The same object, with the right hash and a wrong one."""
        right = hashlib.sha256(b"the package").hexdigest()
        self.assertEqual(self.run_it("file", "s3://bucket/v.deb", right, str(self.to)), (0, ""))
        self.assertEqual(self.to.read_bytes(), b"the package")
        self.to.unlink()
        code, said = self.run_it("file", "s3://bucket/v.deb", "0" * 64, str(self.to))
        self.assertEqual((code, self.to.exists()), (1, False))
        self.assertIn(right, said)

    def test_a_secret_is_for_its_readers_only(self) -> None:
        """Mode 0640, and nothing of it in what is said."""
        code, said = self.run_it("secret", ARN, str(self.to))
        self.assertEqual((code, said, self.to.read_text()), (0, "", "the key"))
        self.assertEqual(self.to.stat().st_mode & 0o777, 0o640)
        self.assertEqual(self.run_it("secret", ARN + "x", str(self.to))[0], 1)

    def test_other_addresses_are_refused(self) -> None:
        """Without TLS, or what is no bucket."""
        for url in ("http://example.com/v.deb", "file:///etc/shadow", "s3://b"):
            self.assertEqual(self.run_it("file", url, "0" * 64, str(self.to))[0], 1, url)
        self.assertEqual(self.run_it("fil")[0], 64)


class Rendering(unittest.TestCase):
    """User data without Terraform."""

    def test_what_could_end_a_quote_is_refused(self) -> None:
        """The values stand in a shell script."""
        good = ("https://example.com/v.deb", "0" * 64, b"", {"server.key": ARN})
        self.assertIn("server.key vedette", render.render(*good))
        for place, bad in ((0, "https://x/'; reboot;'"), (1, "0"), (3, {"../x": ARN}), (3, {"k": "a'b"})):
            values = [*good]
            values[place] = bad
            with self.assertRaises(render.RenderError):
                render.render(*values)

    def test_what_ec2_would_not_take_is_refused(self) -> None:
        """16 KiB."""
        with self.assertRaisesRegex(render.RenderError, "16384"):
            render.render("https://example.com/v.deb", "0" * 64, bytes(16384), {})


if __name__ == "__main__":
    unittest.main()
