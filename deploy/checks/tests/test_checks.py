"""Faults planted in copies of the files: does each check find its own? Run with
`python3 -m unittest discover -s deploy/checks/tests`."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import check as command
import registry
from registry import ROOT, Check, Skip

COPIED = (
    "deploy", "Cargo.toml", "LICENSE", "CHANGELOG.md", "SECURITY.md", "docs", "proto/camera_ai.proto",
    "server/Cargo.toml", "server/src/error.rs", "server/src/settings.rs",
)  # fmt: skip
SYSTEMD, COMPOSE, EC2 = "deploy/systemd", "deploy/compose", "deploy/ec2"
CONTAINER = "deploy/container/Containerfile"

# Subject, check, file, what stands there, what the fault makes of it, what is said.
FAULTS = [
    ("systemd", "the unit fits the server", f"{SYSTEMD}/vedette.service", "WatchdogSec=20", "WatchdogSec=10", "WatchdogSec=10"),
    ("systemd", "the unit fits the server", f"{SYSTEMD}/vedette.service", "TimeoutStopSec=20", "TimeoutStopSec=9", "TimeoutStopSec=9"),
    ("systemd", "the unit fits the server", f"{SYSTEMD}/vedette.toml", "stuck_seconds = 5", "stuck_seconds = 30", "WatchdogSec=20"),
    ("systemd", "the unit fits the server", f"{SYSTEMD}/vedette.service", "=64 65 66 69", "=64 65 66", "RestartPrevent"),
    ("systemd", "the unit fits the server", f"{SYSTEMD}/vedette.service", "NoNewPrivileges=yes", "NoNewPrivileges=no", "NoNewPrivileges"),
    ("systemd", "every setting exists", f"{SYSTEMD}/vedette.toml", "max_cameras", "max_camera", "max_camera"),
    ("systemd", "every setting exists", f"{SYSTEMD}/vedette.toml", "# token_file", "# token_files", "token_files"),
    ("systemd", "every setting exists", CONTAINER, "VEDETTE_MODEL=", "VEDETTE_MODELL=", "modell"),
    ("systemd", "systemd-analyze verify", f"{SYSTEMD}/vedette.service", "Type=notify", "Type=notifi", "notifi"),
    ("systemd", "systemd-analyze security", f"{SYSTEMD}/vedette.service", "SystemCallFilter=@system-service\n", "", "vedette"),
    ("container", "pins, user, probe, signal", CONTAINER, "debian:trixie-slim", "debian:latest", "pinned"),
    ("container", "pins, user, probe, signal", CONTAINER, "USER 10001:10001", "USER 0:0", "USER"),
    ("container", "pins, user, probe, signal", CONTAINER, "USER 10001:10001", "USER vedette", "USER"),
    ("container", "pins, user, probe, signal", CONTAINER, "STOPSIGNAL SIGTERM\n", "", "STOPSIGNAL"),
    ("container", "pins, user, probe, signal", CONTAINER, "library/rust:1.95", "library/rust:1.90", "rust-version"),
    ("container", "holds what a package holds", CONTAINER, "COPY LICENSE /usr/share/doc/vedette/\n", "", "LICENSE"),
    ("container", "holds what a package holds", CONTAINER, "/usr/share/vedette/yolox_nano.onnx \\", "/models/x.onnx \\", "VEDETTE_MODEL"),
    ("container", "hadolint", CONTAINER, " --no-install-recommends libgcc-s1", " libgcc-s1", "DL3015"),
    ("compose", "docker compose config", f"{COMPOSE}/compose.yaml", "healthcheck:", "healthchek:", "healthchek"),
    ("compose", "services are shut tight", f"{COMPOSE}/compose.yaml", "cap_drop: [ALL]", "cap_drop: [NET_RAW]", "cap_drop"),
    ("compose", "services are shut tight", f"{COMPOSE}/compose.yaml", "read_only: true", "read_only: false", "read_only"),
    ("compose", "services are shut tight", f"{COMPOSE}/compose.yaml", '"127.0.0.1:${GRAFANA_PORT', '"0.0.0.0:${GRAFANA_PORT', "grafana: port 3000"),
    ("compose", "services are shut tight", f"{COMPOSE}/compose.yaml", ":50051:50051\"\n", ":50051:50051\"\n      - \"9464:9464\"\n", "operators"),
    ("compose", "services are shut tight", f"{COMPOSE}/.env.example", "GRAFANA_TAG=12.1.0", "GRAFANA_TAG=latest", "pinned"),
    ("compose", "time to drain", f"{COMPOSE}/compose.yaml", "stop_grace_period: 20s", "stop_grace_period: 10s", "not above"),
    ("compose", "Prometheus is set up as without containers", f"{COMPOSE}/prometheus.yml", "scrape_interval: 10s", "scrape_interval: 60s", "differs"),
    ("ec2", "every reference resolves", f"{EC2}/main.tf", "var.instance_type", "var.instance_kind", "instance_kind"),
    ("ec2", "every reference resolves", f"{EC2}/balancer.tf", "local.listener_port", "local.listen_port", "listen_port"),
    ("ec2", "every reference resolves", f"{EC2}/outputs.tf", "aws_security_group.instance", "aws_security_group.instances", "instances"),
    ("ec2", "variables explain themselves", f"{EC2}/variables.tf", "  type        = string\n", "", "no type"),
    ("ec2", "what must hold of an instance", f"{EC2}/main.tf", '= "required"', '= "optional"', "IMDSv2"),
    ("ec2", "what must hold of an instance", f"{EC2}/main.tf", "encrypted             = true", "encrypted             = false", "encrypted"),
    ("ec2", "what must hold of an instance", f"{EC2}/security.tf", "from_port         = 50051", "from_port         = 22", "ssh"),
    ("ec2", "the template and those who fill it agree", f"{EC2}/main.tf", "    package_url    =", "    package        =", "package_url"),
    ("ec2", "Terraform files parse", f"{EC2}/main.tf", "locals {", "locals {{", "main.tf"),
    ("ec2", "terraform fmt", f"{EC2}/main.tf", "  user_data = templatefile", "  user_data   = templatefile", "user_data"),
    ("ec2", "terraform evaluates the variables and the user data", f"{EC2}/variables.tf", '&& !can(regex("^t[0-9]", var.instance_type))', "", "t3.large is taken"),
    ("package", "what is packed exists", "SECURITY.md", None, None, "SECURITY.md"),
    ("scripts", "bash -n", "deploy/demo.sh", "set -euo pipefail", "if then", "demo.sh"),
    ("scripts", "ShellCheck", "deploy/demo.sh", 'mkdir -p "$(dirname "$2")"', 'mkdir -p $(dirname "$2")', "SC2046"),
    ("scripts", "Python compiles", f"{EC2}/render.py", "import argparse", "import", "render.py"),
    ("texts", "TOML files", f"{SYSTEMD}/vedette.toml", "grace_seconds = 10", "grace_seconds = ", "vedette.toml"),
    ("texts", "YAML files", f"{COMPOSE}/prometheus.yml", "global:", "global: [", "prometheus.yml"),
]  # fmt: skip

TABLE = """
[package.metadata.deb]
conf-files = ["/etc/vedette/vedette.toml"]
assets = [{}]
"""


class Planted(unittest.TestCase):
    """A copy of the files with one fault in it."""

    def setUp(self) -> None:
        """The copy."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in COPIED:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "secrets"))
            else:
                shutil.copy(ROOT / name, target)
        self.checks = {(one.subject, one.name): one for one in registry.all_checks()}

    def fault(self, path: str, old: str | None, new: str | None) -> None:
        """Plants it; the file is removed when there is no text."""
        file = self.root / path
        if old is None or new is None:
            file.unlink()
            return
        text = file.read_text(encoding="utf-8")
        self.assertIn(old, text, path)
        file.write_text(text.replace(old, new, 1), encoding="utf-8")

    def test_every_fault_is_found_by_its_check(self) -> None:
        """And the file is well without it. Where a check's tool is missing it says so, and is left out."""
        looked = 0
        for subject, name, path, old, new, said in FAULTS:
            with self.subTest(check=name, fault=new):
                one = self.checks[subject, name]
                before = (self.root / path).read_bytes()
                clean = registry.run(one, self.root)
                if clean.outcome == "SKIP" and not one.fast:
                    continue
                self.assertEqual(clean.outcome, "PASS", clean.lines)
                self.fault(path, old, new)
                found = registry.run(one, self.root)
                (self.root / path).write_bytes(before)
                self.assertEqual(found.outcome, "FAIL")
                self.assertIn(said, "\n".join(found.lines))
                self.assertNotIn("the check itself broke", "\n".join(found.lines))
                looked += 1
        self.assertGreater(looked, 20)

    def test_the_debs_table_is_held_to_the_list(self) -> None:
        """One file more, one less, one with other rights."""
        import contents

        rows = [(item.source, item.target, f"{item.mode:o}") for item in contents.EVERYWHERE]
        rows.append((contents.CONFIG.source, contents.CONFIG.target, "644"))
        manifest = self.root / "server/Cargo.toml"
        start = manifest.read_text(encoding="utf-8").split("[package.metadata.deb]")[0]

        def result(assets: list[tuple[str, str, str]]) -> registry.Result:
            lines = ", ".join(f'["../{source}", "{target}", "{mode}"]' for source, target, mode in assets)
            manifest.write_text(start + TABLE.format(lines), encoding="utf-8")
            return registry.run(self.checks["package", "the .deb's table is the list"], self.root)

        self.assertEqual(result(rows).outcome, "PASS")
        self.assertEqual(result(rows[1:]).outcome, "FAIL")
        self.assertEqual(result([*rows, ("a", "b", "644")]).outcome, "FAIL")
        self.assertEqual(result([(*rows[0][:2], "700"), *rows[1:]]).outcome, "FAIL")


class Runner(unittest.TestCase):
    """What becomes of a check's result."""

    def outcome(self, body: registry.Body) -> str:
        """Of a check with this body."""
        return registry.run(Check("subject", "name", True, body), ROOT).outcome

    def test_pass_fail_skip_and_one_that_breaks(self) -> None:
        """A check that breaks has failed."""

        def skips(_root: Path) -> list[str]:
            raise Skip("install it")

        def breaks(_root: Path) -> list[str]:
            raise KeyError("x")

        self.assertEqual(self.outcome(lambda _root: []), "PASS")
        self.assertEqual(self.outcome(lambda _root: ["wrong"]), "FAIL")
        self.assertEqual(self.outcome(skips), "SKIP")
        self.assertEqual(self.outcome(breaks), "FAIL")

    def test_the_exit_code_says_what_was_found(self) -> None:
        """0 all well, 1 a failure, 2 something skipped with --strict."""

        def code(body: registry.Body, *flags: str) -> int:
            one = Check("subject", "name", True, body)
            with (
                mock.patch.object(registry, "all_checks", lambda: [one]),
                mock.patch.object(sys, "argv", ["check.py", "--fast", *flags]),
                contextlib.redirect_stdout(io.StringIO()) as out,
            ):
                result = command.main()
            self.assertIn("passed", out.getvalue())
            return result

        def skips(_root: Path) -> list[str]:
            raise Skip("install it")

        self.assertEqual(code(lambda _root: []), 0)
        self.assertEqual(code(lambda _root: ["wrong"]), 1)
        self.assertEqual(code(skips), 0)
        self.assertEqual(code(skips, "--strict"), 2)


if __name__ == "__main__":
    unittest.main()
