"""Blocks that run, in folders of their own, beside stand-ins for the programs."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import runner
from blocks import blocks_of
from fakes import Bench
from runner import Result, Setting, run_all


class Runs(unittest.TestCase):
    def setUp(self) -> None:
        self.bench = Bench()
        self.addCleanup(self.bench.close)

    def run_page(self, page: str, every: bool = False) -> list[Result]:
        """What came of a page's blocks."""
        home = self.bench.home
        setting = Setting(
            home / "work", self.bench.binaries, Path(sys.executable), home / "stubs", every, self.bench.root
        )
        said: list[Result] = []
        results = run_all(list(blocks_of("p.md", page)), setting, said.append)
        self.assertEqual(said, results)
        return results

    def verdicts(self, page: str, every: bool = False) -> list[str]:
        """Only the verdicts."""
        return [result.verdict for result in self.run_page(page, every)]

    def test_a_command_that_fails_fails_its_block(self) -> None:
        self.assertEqual(self.verdicts("<!-- run -->\n```sh\ntrue\n```\n"), ["PASS"])
        self.assertEqual(self.verdicts("<!-- run -->\n```sh\nfalse\ntrue\n```\n"), ["FAIL"])
        self.assertEqual(self.verdicts("<!-- run -->\n```sh\nfalse | true\n```\n"), ["FAIL"])
        self.assertEqual(self.verdicts("<!-- run -->\n```sh\necho $UNSET_HERE\n```\n"), ["FAIL"])
        self.assertEqual(self.verdicts("```sh\ntrue\n```\n"), ["FAIL"])

    def test_an_exit_code_may_be_asked_for(self) -> None:
        self.assertEqual(self.verdicts("<!-- run: exit=3 -->\n```sh\nexit 3\n```\n"), ["PASS"])
        self.assertEqual(self.verdicts("<!-- run: exit=3 -->\n```sh\ntrue\n```\n"), ["FAIL"])

    def test_blocks_of_a_name_share_a_folder_and_others_do_not(self) -> None:
        write = "<!-- run: name=a -->\n```sh\necho x > made\n```\n"
        self.assertEqual(self.verdicts(write + "<!-- run: name=a -->\n```sh\ncat made\n```\n"), ["PASS", "PASS"])
        self.assertEqual(self.verdicts(write + "<!-- run -->\n```sh\ncat made\n```\n"), ["PASS", "FAIL"])

    def test_the_repository_is_a_copy(self) -> None:
        page = "<!-- run -->\n```sh\necho y >> README.md\ntest -x target/release/client-sim\n```\n"
        self.assertEqual(self.verdicts(page), ["PASS"])
        self.assertEqual((self.bench.root / "README.md").read_text(encoding="utf-8"), "# x\n")

    def test_a_block_that_takes_too_long_fails_and_is_ended(self) -> None:
        with mock.patch.object(runner, "SHORT_SECONDS", 0.3):
            (result,) = self.run_page("<!-- run -->\n```sh\nsleep 60\n```\n")
        self.assertEqual(result.verdict, "FAIL")
        self.assertIn("not done within", result.detail)
        self.assertLess(result.seconds, 30)

    def test_a_server_is_there_for_blocks_that_need_one(self) -> None:
        page = "<!-- run: server -->\n```sh\necho $VEDETTE_ADDR\nclient-sim run --addr HOST:50051\n```\n"
        (result,) = self.run_page(page)
        self.assertEqual((result.verdict, result.substitutions), ("PASS", ["cameras' port"]))
        broken = "<!-- run: server=--broken -->\n```sh\ntrue\n```\n"
        self.assertEqual(self.verdicts(broken), ["FAIL"])

    def test_a_server_has_to_end_in_order(self) -> None:
        (result,) = self.run_page("<!-- run: server=--bad-end -->\n```sh\ntrue\n```\n")
        self.assertEqual(result.verdict, "FAIL")
        self.assertIn("at the end of the group", result.detail)

    def test_a_server_in_a_block_serves_the_next_one(self) -> None:
        serve = "<!-- run: serves, name=s -->\n```sh\necho first\nvedette-server  # listens\n```\n"
        use = "<!-- run: name=s -->\n```sh\nclient-sim run\n```\n"
        self.assertEqual(self.verdicts(serve + use), ["PASS", "PASS"])
        broken = serve.replace("vedette-server", "vedette-server --broken")
        self.assertEqual(self.verdicts(broken), ["FAIL"])

    def test_a_verdict_may_be_any_and_has_to_be_one(self) -> None:
        run = "<!-- run: verdict -->\n```sh\nclient-sim run {}\n```\n"
        self.assertEqual(self.verdicts(run.format("--fail")), ["PASS"])
        self.assertEqual(self.verdicts(run.format("--silent")), ["FAIL"])
        plain = run.replace(": verdict", "")
        self.assertEqual(self.verdicts(plain.format("--fail")), ["FAIL"])

    def test_a_saved_file_has_to_be_used(self) -> None:
        save = "<!-- run: file=a.py, name=f -->\n```python\nprint('hello')\n```\n"
        use = "<!-- run: name=f -->\n```console\n$ python3 a.py\nhello\n```\n"
        self.assertEqual(self.verdicts(save + use), ["PASS", "PASS"])
        self.assertEqual(self.verdicts(save), ["FAIL"])
        self.assertEqual(self.verdicts(save.replace("print(", "print((") + use), ["FAIL", "FAIL"])
        self.assertEqual(self.verdicts(save.replace("a.py", "../a.py") + use), ["FAIL", "FAIL"])

    def test_a_console_has_to_print_what_the_page_says(self) -> None:
        page = "<!-- run -->\n```console\n$ echo one; echo two\none\n{}\n```\n"
        self.assertEqual(self.verdicts(page.format("two")), ["PASS"])
        self.assertEqual(self.verdicts(page.format("three")), ["FAIL"])
        self.assertEqual(self.verdicts("<!-- run -->\n```console\n$ exit 1\n$ echo x\nx\n```\n"), ["FAIL"])

    def test_slow_blocks_run_with_all(self) -> None:
        page = "<!-- run: slow -->\n```sh\ntrue\n```\n"
        self.assertEqual(self.verdicts(page), ["NOT RUN"])
        self.assertEqual(self.verdicts(page, every=True), ["PASS"])

    def test_steps_that_make_no_order_fail(self) -> None:
        page = "<!-- run: name=a, step=1 -->\n```sh\ntrue\n```\n" * 2
        self.assertEqual(self.verdicts(page), ["FAIL", "FAIL"])

    def test_data_is_checked_where_it_stands(self) -> None:
        self.assertEqual(self.verdicts("```toml\nmax_cameras = 5\n```\n"), ["PASS"])
        self.assertEqual(self.verdicts("```toml\nmax_camera = 5\n```\n"), ["FAIL"])
        self.assertEqual(self.verdicts("```json\n{]\n```\n"), ["FAIL"])


if __name__ == "__main__":
    unittest.main()
