"""Blocks that are looked at: good ones pass, planted faults are found."""

from __future__ import annotations

import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import environment
from data import CHECKS, Tools, Wrong
from fakes import Bench

MODELS = environment.ROOT / "models"


class Checks(unittest.TestCase):
    def setUp(self) -> None:
        self.bench = Bench()
        self.addCleanup(self.bench.close)
        root = self.bench.root
        self.tools = Tools(root, self.bench.env, Path(sys.executable), self.bench.home / "stubs")

    def passes(self, check: str, text: str, argument: str = "") -> None:
        """The check finds nothing."""
        CHECKS[check](text, self.tools, argument)

    def fails(self, check: str, text: str, says: str = "") -> None:
        """The check finds a fault."""
        with self.assertRaisesRegex(Wrong, says):
            CHECKS[check](text, self.tools, "")

    def test_syntax(self) -> None:
        self.passes("python-syntax", "x = 1\n")
        self.fails("python-syntax", "x = = 1\n", "line 1")
        self.passes("shell-syntax", "for a in b; do ls; done\n")
        self.fails("shell-syntax", "for a in b; do ls\n")
        self.passes("toml-syntax", "a = 1\n")
        self.fails("toml-syntax", "a = \n")
        self.fails("toml-syntax", "# nothing\n", "holds nothing")

    def test_json_is_a_document_or_one_a_line(self) -> None:
        self.passes("json", '{"a": 1}\n')
        self.passes("json", '{"a": 1}\n{"b": 2}\n')
        self.fails("json", '{"a": 1,}\n')
        self.fails("json", '{"a": 1}\n{"b": }\n')

    def test_settings_have_to_be_in_force(self) -> None:
        self.passes("config", 'max_cameras = 5\nmax_pixels = "1920x1080"\n')
        self.fails("config", "max_camera = 5\n", "unknown key")
        self.fails("config", "max_cameras = 13\n", "12 in force, not 13")
        self.fails("config", "# nothing\n", "sets nothing")

    def test_a_server_has_to_start_with_the_tokens(self) -> None:
        self.passes("tokens", '[[token]]\nsecret = "x"\n')
        self.fails("tokens", '[[token]]\nname = "x"\n', "no secret")

    def test_the_simulator_has_to_take_scenarios_and_instances(self) -> None:
        self.passes("scenario", "[[group]]\ncameras = 1\n")
        self.fails("scenario", "bad = 1\n[[group]]\n", "unknown key")
        self.passes("instances", '[[instance]]\nname = "a"\n')
        self.fails("instances", 'bad = 1\n[[instance]]\nname = "a"\n', "unknown key")

    def test_the_set_up_has_to_know_the_models_keys(self) -> None:
        for path in [*MODELS.glob("*.py"), *MODELS.glob("*.toml"), *MODELS.glob("*.txt")]:
            shutil.copy(path, self.bench.root / "models")
        good = '[models.mine]\npath = "~/no/mine.onnx"\nlabels = "coco80.txt"\n'
        self.passes("manifest", good)
        self.fails("manifest", '[models.other]\npath = "~/no/o.onnx"\nlabel = "x"\n', "label")

    def test_yaml_needs_the_environment(self) -> None:
        python = environment.HOME / "bin" / "python"
        if not python.exists():
            self.skipTest("the environment is made by docs/check/run.py")
        self.tools = Tools(self.bench.root, self.bench.env, python, self.bench.home / "stubs")
        environment.generate(python, self.bench.home / "stubs")
        self.passes("yaml", "a: 1\n---\n- b\n")
        self.fails("yaml", "a: [1\n")
        self.fails("yaml", "just words\n", "plain text")
        self.fails("yaml", "# nothing\n", "holds nothing")
        self.passes("message", '{"frame_id": 1, "objects": [{"label": "a"}]}', "DetectResponse")
        for text, says in (
            ('{"frame_id": 1, "objects": [{"lable": "a"}]}', "lable"),
            ('{"frameId": 1}', "write it as in the contract"),
            ('{"outcome": "FINE"}', "FINE"),
            ('{"times": {"queue_us": -1}}', "queue_us|range"),
        ):
            with self.subTest(text), self.assertRaisesRegex(Wrong, says):
                CHECKS["message"](text, self.tools, "DetectResponse")


if __name__ == "__main__":
    unittest.main()
