"""Tests of the scripts; nothing is built or fuzzed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import jobs  # noqa: E402
import pictures  # noqa: E402
import run  # noqa: E402
import seed  # noqa: E402
import targets  # noqa: E402
from build import INSTRUMENTED, PROBE, CannotRun  # noqa: E402

PASSED_LOG = """\
INFO: Seed: 1
#193\tINITED cov: 5000 ft: 15000 corp: 150/400Kb exec/s: 0 rss: 90Mb
#2811\tDONE   cov: 5724 ft: 17997 corp: 414/462Kb lim: 8899 exec/s: 139 rss: 215Mb
stat::number_of_executed_units: 2811
stat::average_exec_per_sec:     139
stat::slowest_unit_time_sec:    1
stat::peak_rss_mb:              215
"""
CRASHED_LOG = """\
#7\tNEW    cov: 10 ft: 11 corp: 2/2b lim: 4 exec/s: 0 rss: 30Mb
thread '<unnamed>' (7) panicked at src/x.rs:1:2:
an older picture shows
==7== ERROR: libFuzzer: deadly signal
stat::number_of_executed_units: 8
Test unit written to /fuzz/artifacts/decode/crash-0123abcd
"""


def job(code: int, text: str, folder: str) -> jobs.Job:
    log = Path(folder) / "log"
    log.write_text(text)
    return jobs.Job(subprocess.Popen(["true"]), log, code=code, cpu_seconds=2.0)


class Results(unittest.TestCase):
    def test_counts_are_added_and_the_best_coverage_is_kept(self) -> None:
        result = jobs.Result("decode")
        with tempfile.TemporaryDirectory() as folder:
            for text in PASSED_LOG, PASSED_LOG.replace("5724", "9"):
                one = job(0, text, folder)
                jobs.add(result, one)
                one.process.wait()
        self.assertTrue(result.passed)
        self.assertEqual((result.executions, result.cpu_seconds), (5622, 4.0))
        self.assertEqual((result.edges, result.features), (5724, 17997))
        self.assertEqual((result.slowest_seconds, result.peak_rss_mb), (1, 215))
        self.assertIn("5,724", run.table([result]))

    def test_what_failed_is_named(self) -> None:
        for code, text, verdict, word in (
            (77, CRASHED_LOG, "crash", "an older picture shows"),
            (77, CRASHED_LOG.replace("crash-", "timeout-"), "too slow", "deadly"),
            (1, "cannot execute\n", "exit 1", "cannot execute"),
            (0, "ended early\n", "no statistics", "ended early"),
        ):
            result = jobs.Result("decode")
            with tempfile.TemporaryDirectory() as folder:
                one = job(code, text, folder)
                jobs.add(result, one)
                one.process.wait()
            self.assertEqual(result.verdict, verdict)
            self.assertFalse(result.passed)
            self.assertTrue(any(word in line for line in result.summary), result.summary)


class Jobs(unittest.TestCase):
    def test_cpu_time_is_that_of_the_process(self) -> None:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        one = jobs.Job(busy, Path("none"))
        while one.cpu_seconds == 0:
            one.look()
        self.assertIsNone(one.code)
        one.kill()
        self.assertEqual(one.code, -9)
        self.assertGreater(one.cpu_seconds, 0)


class Targets(unittest.TestCase):
    def test_every_list_of_targets_is_the_same(self) -> None:
        names = [target.name for target in targets.TARGETS]
        manifest = tomllib.loads((HERE / "Cargo.toml").read_text())
        self.assertEqual([binary["name"] for binary in manifest["bin"]], names)
        self.assertEqual(list(seed.TARGETS), names)

    def test_an_inputs_target(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            inputs = {"raw/crash-1": "raw", "x/decode-0a": "decode", "decode/model-1": "decode"}
            for name, target in inputs.items():
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"")
                self.assertEqual(targets.of_input(path).name, target)
            with self.assertRaises(CannotRun):
                targets.of_input(Path(folder) / "x" / "none")
            stranger = Path(folder) / "x" / "stranger"
            stranger.write_bytes(b"")
            with self.assertRaises(CannotRun):
                targets.of_input(stranger)


class Instrumentation(unittest.TestCase):
    # What cargo-fuzz has every crate built with, and what any crate is built with.
    COVERAGE = (
        "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Zsanitizer=address "
        "-Ccodegen-units=1"
    ).split()
    PLAIN = ["--edition=2024", "-Copt-level=3", "--cfg", "fuzzing", "src/a b.rs"]

    def built_with(self, crate: str) -> list[str]:
        """The arguments that rustc gets."""
        show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
        command = [str(HERE / "rustc.sh"), *show, "--crate-name", crate, *self.COVERAGE, *self.PLAIN]
        environment = {"INSTRUMENTED": " ".join(INSTRUMENTED.split())}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        arguments: list[str] = json.loads(done.stdout)
        return arguments[arguments.index(crate) + 1 :]

    def test_what_inputs_pass_through_is_instrumented_and_nothing_else(self) -> None:
        for crate in "vedette_server", "png", "decode":
            self.assertEqual(self.built_with(crate), self.COVERAGE + self.PLAIN)
        for crate in "h2", "image_web", "ng":
            self.assertEqual(self.built_with(crate), self.PLAIN)

    def test_every_instrumented_crate_is_linked(self) -> None:
        locked = tomllib.loads((HERE / "Cargo.lock").read_text())["package"]
        known = {package["name"].replace("-", "_") for package in locked}
        known |= {target.name for target in targets.TARGETS} | {PROBE}
        self.assertEqual(set(INSTRUMENTED.split()) - known, set())


class Seeds(unittest.TestCase):
    def test_seeds_are_the_same_each_time_and_fit(self) -> None:
        for target in targets.TARGETS:
            first, second = (dict(seed.TARGETS[target.name]()) for _ in range(2))
            self.assertEqual(first, second)
            self.assertGreater(len(first), 30, target.name)
            fitting = [data for data in first.values() if len(data) <= target.max_len]
            self.assertGreater(len(fitting), 0.95 * len(first), target.name)

    def test_old_seeds_go_and_finds_stay(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder) / "raw"
            raw.mkdir()
            for name in "seed-old", "0123abcd":
                (raw / name).write_bytes(b"")
            count = seed.write(Path(folder), ["raw"])["raw"]
            names = {path.name for path in raw.iterdir()}
            self.assertEqual(len(names), count + 1)
            self.assertIn("0123abcd", names)
            self.assertNotIn("seed-old", names)

    def test_a_shrunk_jpeg_has_its_size_and_an_end(self) -> None:
        whole = (seed.FIXTURES / "progressive_420.jpg").read_bytes()
        small = pictures.shrink_jpeg(whole, (64, 48))
        assert small is not None
        frame = small.index(b"\xff\xc2")
        self.assertEqual(small[frame + 5 : frame + 9], bytes((0, 48, 0, 64)))
        self.assertTrue(small.endswith(b"\xff\xd9"))
        self.assertEqual(small.count(b"\xff\xda"), whole.count(b"\xff\xda"), "every scan is there")
        self.assertLess(len(small), len(whole))
        self.assertIsNone(pictures.shrink_jpeg(whole, (4000, 4000)))

    def test_a_png_holds_all_rows_of_its_passes(self) -> None:
        for interlaced, lines in ((False, 11 * (1 + 19)), (True, None)):
            data = pictures.png(19, 11, 0, 8, interlaced=interlaced)
            at = data.index(b"IDAT")
            size = int.from_bytes(data[at - 4 : at], "big")
            pixels = zlib.decompress(data[at + 4 : at + 4 + size])
            if lines:
                self.assertEqual(len(pixels), lines)
            else:
                rows = sum(-(-(11 - y) // dy) for x, y, dx, dy in pictures.PASSES)
                self.assertEqual(len(pixels) - rows, 19 * 11)


if __name__ == "__main__":
    unittest.main()
