"""YAML and HCL as plain data, by the packages of requirements.txt, which live in an environment of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import install
import registry

YAML = "import json,sys,yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1]))), default=str))"
HCL = "import hcl2,json,sys; print(json.dumps(hcl2.load(open(sys.argv[1]))))"


def _run(script: str, path: Path) -> tuple[Any, str]:
    python = install.python()
    if not python.exists():
        raise registry.Skip("no environment: run without --fast on a machine with a network")
    code, text = registry.output([python, "-c", script, path], path.parent)
    if code != 0:
        return None, text.splitlines()[-1] if text else "it cannot be parsed"
    return json.loads(text), ""


def yaml(path: Path) -> tuple[list[Any], str]:
    """The documents of a file, and what is wrong with it."""
    found, wrong = _run(YAML, path)
    return found or [], wrong


def hcl(path: Path) -> tuple[Any, str]:
    """The blocks of a Terraform file, and what is wrong with it."""
    return _run(HCL, path)
