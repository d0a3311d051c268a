"""Manifests and the chart: by Kubernetes' own schemas and helm itself, and against each other and the server."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import cluster
import parse
from cluster import CHART, MANIFESTS, Manifest
from registry import check, complaints, need, output, tool

# The oldest that the manifests are for, and the newest that kubernetes-validate knows.
VERSIONS = ("1.30", "1.37")

# Kinds that are not Kubernetes' own: there are no schemas of them here.
FOREIGN = ("PodMonitor", "ScaledObject")

# Values that turn everything on; the chart has to be right with them too.
VARIANTS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "everything on": (
        "--set", "tls.secretName=tls,tokens.secretName=tokens,podMonitor.enabled=true,podMonitor.labels.release=p",
        "--set", "networkPolicy.camerasNetworks={192.0.2.0/24},nodeSelector.pool=cameras,podAnnotations.a=b",
        "--set", "imagePullSecrets[0].name=pull,tolerations[0].operator=Exists,settings.max_frame_bytes=16777216",
    ),
    "everything off": ("--set", "autoscaling.enabled=false,networkPolicy.enabled=false,settings=null"),
}  # fmt: skip

# Values that must be refused.
REFUSED = (
    "replica=3", "resources.cpu=1.5", "resources.cpu=0", "resources.memory=1", "settings.max-cameras=3",
    "settings.grace_seconds=60", "preStopSeconds=0", "podDisruptionBudget.maxUnavailable=0",
    "autoscaling.busyPercent=100", "tls.secretName=Not_A_Name", "networkPolicy.camerasNetworks={everywhere}",
)  # fmt: skip

# Labels that only helm sets.
HELMS = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")

# Made by the adapter's rules, not by the server.
MADE = {"vedette_fill_ratio"}


def number(text: str, pattern: str) -> int:
    """The one number that a pattern finds."""
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise ValueError(f"nothing looks like {pattern}")
    return int(found[1])


@check("time to drain", fast=True)
def grace(root: Path) -> list[str]:
    """Kubernetes kills after preStop and the server's grace, not before; in the chart by its arithmetic."""
    text = need(root / MANIFESTS / "deployment.yaml")
    end = number(text, r"terminationGracePeriodSeconds: (\d+)")
    pause = number(text, r"sleep: \{seconds: (\d+)\}")
    finish = number(text, r'VEDETTE_GRACE_SECONDS, value: "(\d+)"')
    wrong = [] if end > pause + finish else [f"terminationGracePeriodSeconds {end} is not above {pause} + {finish}"]
    if "{{ add .Values.preStopSeconds .Values.graceSeconds 5 }}" not in need(root / CHART / "templates/deployment.yaml"):
        wrong.append("the chart's terminationGracePeriodSeconds is not preStopSeconds + graceSeconds + 5")
    age = number(text, r'VEDETTE_MAX_CONNECTION_AGE_SECONDS, value: "(\d+)"')
    for name in ("horizontalpodautoscaler.yaml", "optional/keda.yaml"):
        down = number(need(root / MANIFESTS / name), r"scaleDown:\n(?: +#.*\n)* +stabilizationWindowSeconds: (\d+)")
        if down <= age:
            wrong.append(f"{name}: pods go after {down} s, before cameras have chosen again ({age} s)")
    return wrong


@check("settings, figures and the image are the server's", fast=True)
def servers(root: Path) -> list[str]:
    """Names that nothing else would miss: a variable, a series, the user, the versions."""
    wrong = []
    settings = need(root / "server/src/settings.rs")
    metrics = need(root / "server/src/telemetry/metrics.rs")
    chosen = need(root / CHART / "values.yaml").partition("\nsettings:\n")[2].partition("\n\n")[0]
    used = [(CHART / "values.yaml", key) for key in re.findall(r"^  (\w+):", chosen, re.MULTILINE)]
    for folder in (MANIFESTS, CHART):
        for path in sorted(path for path in (root / folder).rglob("*") if path.is_file()):
            text, name = need(path), path.relative_to(root)
            keys = set(re.findall(r"\bVEDETTE_([A-Z0-9_]+[A-Z0-9])", text))
            used += [(name, key.lower()) for key in sorted(keys)]
            for series in sorted(set(re.findall(r"\bvedette_[a-z_]+[a-z]", text)) - MADE):
                if f'"{series}"' not in metrics:
                    wrong.append(f"{name}: {series} is no series of the server")
    for path, key in used:
        if not re.search(rf"^    pub {key}: ", settings, re.MULTILINE):
            wrong.append(f"{path}: {key} is no setting")
    user = re.search(r"^USER (\d+):(\d+)$", need(root / "deploy/container/Containerfile"), re.MULTILINE)
    version = tomllib.loads(need(root / "Cargo.toml"))["workspace"]["package"]["version"]
    for path, wanted in (
        (MANIFESTS / "deployment.yaml", f"image: vedette:{version}"),
        (MANIFESTS / "kustomization.yaml", f"newTag: {version}"),
        (CHART / "Chart.yaml", f"appVersion: {version}"),
        *(
            (path, f"{key}: {user[place] if user else '?'}")
            for path in (MANIFESTS / "deployment.yaml", CHART / "templates/deployment.yaml")
            for place, key in ((1, "runAsUser"), (2, "runAsGroup"))
        ),
    ):
        if f"{wanted}\n" not in need(root / path):
            wrong.append(f"{path}: not '{wanted}'")
    return wrong


def strict(root: Path, manifests: list[Manifest], what: str) -> list[str]:
    """What Kubernetes' schemas say, with unknown fields refused."""
    validate = tool("kubernetes-validate", cluster.HOW)
    own = [manifest for manifest in manifests if manifest["kind"] not in FOREIGN]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifests.json"
        path.write_text("\n---\n".join(json.dumps(manifest) for manifest in own), encoding="utf-8")
        for version in VERSIONS:
            code, text = output([validate, "--strict", "-k", version, path], root)
            passed = text.count(" passed for resource ")
            if code != 0 or passed != len(own):
                lines = [line for line in text.splitlines() if "passed" not in line and line.strip()]
                wrong.append(f"{what}, {version}: {passed} of {len(own)} pass: {' '.join(lines)[:400]}")
    return wrong


@check("Kubernetes' schemas take the manifests")
def schemas(root: Path) -> list[str]:
    """As they stand, as kustomize puts them together, and as the chart makes them."""
    manifests = cluster.plain(root)
    wrong = strict(root, manifests, "deploy/kubernetes")
    code, text = output([cluster.program("kubectl"), "kustomize", MANIFESTS], root)
    if code != 0:
        return [*wrong, *text.splitlines()[-3:]]
    kinds = re.findall(r"^kind: (\w+)$", text, re.MULTILINE)
    if sorted(kinds) != sorted(manifest["kind"] for manifest in manifests):
        wrong.append(f"kustomization.yaml puts together {', '.join(kinds)}")
    for name, flags in VARIANTS.items():
        made, said = cluster.template(root, *flags)
        wrong += said or strict(root, made, f"chart, {name}")
    return wrong


@check("helm lint")
def lint(root: Path) -> list[str]:
    """Strict: warnings are errors."""
    return complaints([cluster.program("helm"), "lint", "--strict", root / CHART], root)


@check("the chart refuses what cannot be meant")
def refusals(root: Path) -> list[str]:
    """By its schema."""
    wrong = []
    for value in REFUSED:
        _, said = cluster.template(root, "--set", value)
        if not said:
            wrong.append(f"--set {value} is taken")
        elif not any("schema" in line or "- at '" in line for line in said):
            wrong.append(f"--set {value}: refused, but not by the schema: {said[-1]}")
    return wrong


def bare(manifest: Manifest) -> Any:
    """A manifest without the labels that only helm sets."""
    copy = json.loads(json.dumps(manifest))
    for label in HELMS:
        copy["metadata"].get("labels", {}).pop(label, None)
    return copy


def differences(one: Any, other: Any, where: str) -> list[str]:
    """Paths at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other}, key=str)
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{where}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for place, (a, b) in pairs for line in differences(a, b, f"{where}[{place}]")]
    return [] if one == other else [f"{where}: {one!r} here, {other!r} in the chart"]


@check("the chart makes what the manifests say")
def same(root: Path) -> list[str]:
    """Field by field, with default values; the namespace is helm's affair."""
    manifests = {cluster.names(found): bare(found) for found in cluster.plain(root) if found["kind"] != "Namespace"}
    made, wrong = cluster.template(root)
    charts = {cluster.names(found): bare(found) for found in made}
    for name in sorted({*manifests, *charts}):
        if name not in manifests or name not in charts:
            wrong.append(f"{name} is only in {'the chart' if name in charts else 'deploy/kubernetes'}")
        else:
            wrong += differences(manifests[name], charts[name], name)
    return wrong


@check("pods are shut tight")
def hardened(root: Path) -> list[str]:
    """What the Pod Security Standard `restricted` asks for, and more; Guaranteed, with whole CPUs."""
    wrong = []
    made, said = cluster.template(root, *VARIANTS["everything on"])
    for what, manifests in (("deploy/kubernetes", cluster.plain(root)), ("chart", made)):
        spec = cluster.pod(manifests)
        box, context = spec["containers"][0], spec.get("securityContext", {})
        own, resources = box.get("securityContext", {}), box.get("resources", {})
        for good, missing in (
            (context.get("runAsNonRoot") is True, "runAsNonRoot"),
            (context.get("seccompProfile") == {"type": "RuntimeDefault"}, "seccompProfile"),
            (own.get("allowPrivilegeEscalation") is False, "allowPrivilegeEscalation: false"),
            (own.get("readOnlyRootFilesystem") is True, "readOnlyRootFilesystem"),
            (own.get("capabilities") == {"drop": ["ALL"]}, "drop: [ALL]"),
            (spec.get("automountServiceAccountToken") is False, "automountServiceAccountToken: false"),
            (bool(resources.get("limits")) and resources.get("requests") == resources["limits"], "requests = limits"),
            (re.fullmatch(r"[1-9]\d*", str(resources.get("limits", {}).get("cpu"))) is not None, "whole CPUs"),
            (box["livenessProbe"].get("httpGet", {}).get("path") == "/healthz", "liveness by /healthz"),
            (box["readinessProbe"] != box["livenessProbe"], "readiness other than liveness"),
        ):
            if not good:
                wrong.append(f"{what}: not {missing}")
    return said + wrong


@check("what is optional fits")
def optional(root: Path) -> list[str]:
    """Kinds without schemas here: by the names that they lean on."""
    folder = root / MANIFESTS / "optional"
    (monitor,), _ = parse.yaml(folder / "podmonitor.yaml")
    (scaled,), _ = parse.yaml(folder / "keda.yaml")
    (scaler,), _ = parse.yaml(root / MANIFESTS / "horizontalpodautoscaler.yaml")
    manifests = cluster.plain(root)
    deployment = next(found for found in manifests if found["kind"] == "Deployment")
    ports = {port["name"] for port in cluster.pod(manifests)["containers"][0]["ports"]}
    spec, target = monitor["spec"], scaled["spec"]
    wrong = [f"podmonitor.yaml: no port {e['port']}" for e in spec["podMetricsEndpoints"] if e["port"] not in ports]
    if spec["selector"] != deployment["spec"]["selector"]:
        wrong.append("podmonitor.yaml selects other pods than the Deployment's")
    if target["scaleTargetRef"]["name"] != deployment["metadata"]["name"]:
        wrong.append("keda.yaml scales something else")
    if target["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] != scaler["spec"]["behavior"]:
        wrong.append("keda.yaml behaves otherwise than horizontalpodautoscaler.yaml")
    return wrong


@check("promtool takes the autoscalers' queries")
def queries(root: Path) -> list[str]:
    """As the adapter fills them in."""
    promtool = tool("promtool", "sudo apt-get install -y --no-install-recommends prometheus")
    folder = root / MANIFESTS / "optional"
    (adapter,), _ = parse.yaml(folder / "prometheus-adapter-values.yaml")
    (scaled,), _ = parse.yaml(folder / "keda.yaml")
    (scaler,), _ = parse.yaml(root / MANIFESTS / "horizontalpodautoscaler.yaml")
    rules, wrong = [], []
    for rule in adapter["rules"]["custom"]:
        series = rule["seriesQuery"].partition("{")[0]
        query = rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.GroupBy>>", "pod")
        query = query.replace("<<.LabelMatchers>>", 'namespace="vedette",pod=~"a|b"')
        rules.append({"record": f"a:{rule['name']['as']}", "expr": query})
    made = {rule["record"].removeprefix("a:") for rule in rules}
    used = {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}
    if made != used:
        wrong.append(f"the adapter makes {', '.join(sorted(made))}, the autoscaler asks for {', '.join(sorted(used))}")
    rules += [{"record": "a:keda", "expr": one["metadata"]["query"]} for one in scaled["spec"]["triggers"]]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rules.json"
        path.write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}), encoding="utf-8")
        wrong += complaints([promtool, "check", "rules", path], root)
        tests = {"rule_files": [str(path)], "evaluation_interval": "15s", "tests": [fill_test()]}
        trial = Path(place) / "test.json"
        trial.write_text(json.dumps(tests), encoding="utf-8")
        wrong += complaints([promtool, "test", "rules", trial], root)
    return wrong


def fill_test() -> dict[str, Any]:
    """Pod a has 6 cameras and room for 2; pod b is new, without cameras or a headroom; both are half busy."""
    labels = 'namespace="vedette",pod="{}"'
    series = {
        f"vedette_live_cameras{{{labels.format('a')}}}": "6x40",
        f"vedette_headroom_cameras{{{labels.format('a')}}}": "2x40",
        f"vedette_live_cameras{{{labels.format('b')}}}": "0x40",
        f"vedette_busy_ratio{{{labels.format('a')}}}": "0.5x40",
        f"vedette_busy_ratio{{{labels.format('b')}}}": "0.5x40",
    }

    def pods(name: str, a: float, b: float) -> list[dict[str, Any]]:
        return [{"labels": f'{name}{{pod="{pod}"}}', "value": value} for pod, value in (("a", a), ("b", b))]

    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": "a:vedette_fill_ratio", "eval_time": "5m", "exp_samples": pods("a:vedette_fill_ratio", 0.75, 0)},
            {"expr": "a:vedette_busy_ratio", "eval_time": "5m", "exp_samples": pods("a:vedette_busy_ratio", 0.5, 0.5)},
            {"expr": "a:keda", "eval_time": "5m", "exp_samples": [{"labels": "a:keda", "value": 0.75}]},
        ],
    }
