"""What is put in place of a page's words."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from substitutions import PICTURE, PICTURES, Place, substitute

SHORT = Place(7001, 7002, Path("/env/python"), True)
WHOLE = Place(7001, 7002, Path("/env/python"), False)


class Substitutions(unittest.TestCase):
    def test_every_rule(self) -> None:
        server = "--addr 127.0.0.1:7001"
        for text, put_in in (
            ("client-sim run --addr HOST:50051\n", f"client-sim run {server}\n"),
            ("client-sim detect PICTURE...\n", f"client-sim detect {server} {PICTURE}\n"),
            ("target/release/client-sim run --cameras 3\n", f"target/release/client-sim run {server} --cameras 3\n"),
            ("client-sim run \\\n  --addr SERVER:50051\n", f"client-sim run \\\n  {server}\n"),
            ("client-sim report x.json\n", "client-sim report x.json\n"),
            ("client-sim run --help\n", "client-sim run --help\n"),
            ("curl http://localhost:9464/metrics\n", "curl http://127.0.0.1:7002/metrics\n"),
            ("x 0.0.0.0:50051 my-HOST:50051\n", "x 127.0.0.1:7001 my-HOST:50051\n"),
            (
                "client-sim run --addr https://vedette.example:50051\n",
                "client-sim run --addr https://127.0.0.1:7001 --tls-domain vedette.example\n",
            ),
            ("cargo build --release --locked  # once\n", ":\n"),
            ("echo cargo build --release\n", "echo cargo build --release\n"),
            ("venv/bin/python client.py\n", "/env/python client.py\n"),
            ("x --images DIR --price-per-hour PRICE\n", f"x --images {PICTURES} --price-per-hour 0.09\n"),
        ):
            with self.subTest(text):
                self.assertEqual(substitute(text, WHOLE)[0], put_in)

    def test_measurements_are_short_unless_all_is_run(self) -> None:
        for text, short in (
            ("x --seconds 30\n", "x --seconds 2\n"),
            ("x --seconds 3\n", "x --seconds 2\n"),
            ("x --seconds 1\n", "x --seconds 1\n"),
            ("x --seconds 2\n", "x --seconds 2\n"),
            ("x --grace-seconds 30\n", "x --grace-seconds 30\n"),
            ("client-sim ping --tls-ca x\n", "client-sim ping --in-flight 1 --seconds 0.2 --tls-ca x\n"),
        ):
            with self.subTest(text):
                self.assertEqual(substitute(text, SHORT)[0], short)
                self.assertEqual(substitute(text, WHOLE)[0], text)

    def test_what_was_put_in_is_named(self) -> None:
        _, made = substitute("client-sim run --seconds 30\ncurl HOST:9464\n", SHORT)
        self.assertEqual(made, ["client-sim's --addr", "--seconds 2", "operators' port"])
        self.assertEqual(substitute("ls\n", SHORT), ("ls\n", []))


if __name__ == "__main__":
    unittest.main()
