"""What the check reads out of patches and of the simulation's words."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check
from check import CannotRun, Finding

PATCH = "A bug of\ntwo lines.\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n"


class Folder(unittest.TestCase):
    """Tests with files."""

    def setUp(self) -> None:
        """An empty folder."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Patches(Folder):
    """From files to bugs."""

    def test_the_head_says_what_the_bug_is(self) -> None:
        (self.folder / "one.patch").write_text(PATCH)
        (self.folder / "two.patch").write_text("Other words.\n--- a/x\n+++ b/x\n")
        found = check.bugs(self.folder, None)
        self.assertEqual([(bug.name, bug.what) for bug in found],
                         [("one", "A bug of two lines."), ("two", "Other words.")])
        self.assertEqual([bug.name for bug in check.bugs(self.folder, ["two"])], ["two"])

    def test_unknown_names_no_patches_and_no_words_are_refused(self) -> None:
        with self.assertRaisesRegex(CannotRun, "no patches"):
            check.bugs(self.folder, None)
        (self.folder / "one.patch").write_text(PATCH)
        with self.assertRaisesRegex(CannotRun, "three: no such bug"):
            check.bugs(self.folder, ["one", "three"])
        (self.folder / "mute.patch").write_text("diff --git a/x b/x\n")
        with self.assertRaisesRegex(CannotRun, "does not begin with words"):
            check.bugs(self.folder, None)

    def test_the_patches_here_each_say_what_they_are_and_change_the_server(self) -> None:
        found = check.bugs(check.HERE, None)
        self.assertGreaterEqual(len(found), 8)
        self.assertEqual(len({bug.what for bug in found}), len(found))
        for bug in found:
            files = [line for line in bug.path.read_text().splitlines() if line.startswith("+++ ")]
            self.assertTrue(files and all(f.startswith("+++ b/server/src/") for f in files), bug.name)


class Words(unittest.TestCase):
    """What the simulation printed."""

    def test_a_breach_is_a_seed_and_a_rule(self) -> None:
        output = 'thread panicked:\nsimulation: seed 17: "newest wins" does not hold: frame 3\n'
        self.assertEqual(check.verdict(output, 101), (17, "newest wins", None))

    def test_a_bug_that_nothing_was_seen_of_is_not_found(self) -> None:
        output = "simulation: 1000 seeds, 3.2 million events, 12.3 s\n"
        self.assertEqual(check.verdict(output, 0), (None, None, None))
        finding = Finding("x", "y", None, None, None, 1.0)
        self.assertFalse(finding.found())
        self.assertEqual(finding.verdict(), "NOT FOUND")

    def test_other_ends_are_told_apart(self) -> None:
        passed = "simulation: 1000 seeds, 3.2 million events, 12.3 s\n"
        self.assertEqual(check.verdict(passed, 101), (None, "every situation is met", None))
        self.assertEqual(check.verdict("", -6), (None, "the process lives", None))
        self.assertEqual(check.verdict("0 tests run", 0)[2], "the simulation said nothing")

    def test_the_table_has_a_line_for_each(self) -> None:
        findings = [
            Finding("a", "", 3, "drain", None, 1.0),
            Finding("long", "", None, "the process lives", None, 1.0),
            Finding("c", "", None, None, "DID NOT BUILD: error", 1.0),
        ]
        lines = ['a     found by seed 3: "drain"', 'long  found: "the process lives"',
                 "c     DID NOT BUILD: error"]
        self.assertEqual(check.table(findings).splitlines(), lines)
        self.assertEqual([finding.found() for finding in findings], [True, True, False])


class Copy(Folder):
    """The copy of the tree."""

    def test_what_differs_is_written_and_what_is_gone_removed(self) -> None:
        files = {"same": b"old", "src/changed": b"old"}
        check.refresh(self.folder, files)
        before = (self.folder / "same").stat().st_mtime_ns
        (self.folder / "src/changed").write_text("mutated")
        (self.folder / "extra").write_text("")
        check.refresh(self.folder, files)
        self.assertEqual((self.folder / "src/changed").read_text(), "old")
        self.assertEqual((self.folder / "same").stat().st_mtime_ns, before)
        self.assertFalse((self.folder / "extra").exists())

    def test_tracked_files_are_those_of_the_working_tree(self) -> None:
        files = check.tracked(check.ROOT)
        name = "server/src/schedule.rs"
        self.assertEqual(files[name], (check.ROOT / name).read_bytes())
        self.assertFalse([name for name in files if name.startswith("target/")])


class CommandLine(unittest.TestCase):
    """Mistakes and defaults."""

    def test_seeds_are_whole_and_above_zero(self) -> None:
        self.assertEqual(check.parse_arguments([]).seeds, check.SEEDS)
        for wrong in ("0", "-1", "x", "1.5"):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaises(SystemExit) as left:
                    check.parse_arguments(["--seeds", wrong])
            self.assertEqual(left.exception.code, check.EXIT_CANNOT_RUN)
            self.assertEqual(len(said.getvalue().splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
