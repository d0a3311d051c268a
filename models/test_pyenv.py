"""Tests of the Python environment's set-up. Run with `python3 -m unittest discover -s models`."""

from __future__ import annotations

import errno
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import fetch
import parts
import pyenv


class PythonEnvironment(unittest.TestCase):
    """The virtual environment, with venv and pip replaced by a stand-in."""

    def setUp(self) -> None:
        """A cache with an environment in it."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name)
        self.part = pyenv.PythonEnv("reference")
        self.install()

    def stand_in(self, command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        """Makes the interpreter when asked for the environment, succeeds otherwise."""
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "bin" / "python").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    def install(self) -> None:
        """As the tool does it."""
        with mock.patch("subprocess.run", self.stand_in):
            self.part.install(parts.Context(self.cache, fetch.Progress(quiet=True)))

    def test_it_is_complete_once_installed(self) -> None:
        """For its own list, not for the longer one; a second installation replaces it."""
        self.assertEqual(self.part.problems(self.cache), [])
        self.assertEqual(len(pyenv.PythonEnv("accuracy").problems(self.cache)), 1)
        (self.cache / "pyenv" / "old").touch()
        self.install()
        self.assertFalse((self.cache / "pyenv" / "old").exists())
        self.assertEqual(self.part.problems(self.cache), [])

    def test_a_reinstall_that_stops_half_way_leaves_it_incomplete(self) -> None:
        """Interrupted or failed while the old one is removed: neither is hidden."""
        for stop in (KeyboardInterrupt, PermissionError(errno.EACCES, "Permission denied")):
            self.install()
            with self.subTest(stop=stop), mock.patch("pyenv.shutil.rmtree", side_effect=stop):
                with self.assertRaises((KeyboardInterrupt, PermissionError)):
                    self.install()
                self.assertEqual(len(self.part.problems(self.cache)), 1)


if __name__ == "__main__":
    unittest.main()
