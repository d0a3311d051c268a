"""Faults planted in copies of the manifests, the chart and the proxies' files: does each check find its own?"""

from __future__ import annotations

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import registry
from registry import ROOT

COPIED = (
    "deploy/kubernetes", "deploy/helm", "deploy/proxies", "deploy/container", "Cargo.toml",
    "server/src/settings.rs", "server/src/telemetry/metrics.rs",
)  # fmt: skip
K8S, CHART, PROXIES = "deploy/kubernetes", "deploy/helm/vedette", "deploy/proxies"
DEPLOYMENT, TEMPLATE = f"{K8S}/deployment.yaml", f"{CHART}/templates/deployment.yaml"

# Subject, check, file, what stands there, what the fault makes of it, what is said.
FAULTS = [
    ("kubernetes", "time to drain", DEPLOYMENT, "PeriodSeconds: 20", "PeriodSeconds: 15", "not above 5 + 10"),
    ("kubernetes", "time to drain", TEMPLATE, ".Values.graceSeconds 5 }}", "5 }}", "preStopSeconds + graceSeconds"),
    ("kubernetes", "time to drain", f"{K8S}/horizontalpodautoscaler.yaml", "WindowSeconds: 2400", "WindowSeconds: 300", "300 s"),
    ("kubernetes", "time to drain", f"{K8S}/optional/keda.yaml", "WindowSeconds: 2400", "WindowSeconds: 300", "300 s"),
    ("kubernetes", "settings, figures and the image are the server's", DEPLOYMENT, "VEDETTE_LOG_FORMAT", "VEDETTE_LOG_FORMATS", "log_formats is no setting"),
    ("kubernetes", "settings, figures and the image are the server's", f"{CHART}/values.yaml", "  log_format:", "  log_formats:", "log_formats"),
    ("kubernetes", "settings, figures and the image are the server's", f"{K8S}/optional/keda.yaml", "vedette_headroom_cameras", "vedette_headroom", "vedette_headroom is"),
    ("kubernetes", "settings, figures and the image are the server's", TEMPLATE, "runAsUser: 10001", "runAsUser: 1000", "runAsUser: 10001"),
    ("kubernetes", "settings, figures and the image are the server's", f"{CHART}/Chart.yaml", "appVersion: 0.1.0", "appVersion: 0.0.9", "appVersion"),
    ("kubernetes", "Kubernetes' schemas take the manifests", DEPLOYMENT, "minReadySeconds", "minReadySecond", "minReadySecond"),
    ("kubernetes", "Kubernetes' schemas take the manifests", f"{K8S}/kustomization.yaml", "- networkpolicy.yaml\n", "", "puts together"),
    ("kubernetes", "Kubernetes' schemas take the manifests", TEMPLATE, "readOnly: true", "readonly: true", "everything on"),
    ("kubernetes", "helm lint", f"{CHART}/values.yaml", "  cpu: 2\n", "  cpu: 1.5\n", "integer"),
    ("kubernetes", "the chart refuses what cannot be meant", f"{CHART}/values.schema.json", '"maximum": 80', '"maximum": 100', "busyPercent=100"),
    ("kubernetes", "the chart makes what the manifests say", TEMPLATE, "periodSeconds: 2\n", "periodSeconds: 3\n", "periodSeconds"),
    ("kubernetes", "the chart makes what the manifests say", f"{K8S}/networkpolicy.yaml", "port: admin", "port: grpc", "NetworkPolicy"),
    ("kubernetes", "pods are shut tight", DEPLOYMENT, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"),
    ("kubernetes", "pods are shut tight", DEPLOYMENT, 'limits: {cpu: "2"', 'limits: {cpu: "4"', "requests = limits"),
    ("kubernetes", "what is optional fits", f"{K8S}/optional/podmonitor.yaml", "port: admin", "port: metrics", "no port metrics"),
    ("kubernetes", "promtool takes the autoscalers' queries", f"{K8S}/optional/keda.yaml", "sum(avg_over_time", "sum(avg_over", "avg_over"),
    ("kubernetes", "promtool takes the autoscalers' queries", f"{K8S}/optional/prometheus-adapter-values.yaml", "vedette_headroom_cameras{<<.LabelMatchers>>}, 1", "vedette_headroom_cameras{<<.LabelMatchers>>}, 9", "vedette_fill_ratio"),
    ("proxies", "idle limits let two heartbeats be late", f"{PROXIES}/envoy.yaml", "stream_idle_timeout: 70s", "stream_idle_timeout: 60s", "60 s"),
    ("proxies", "idle limits let two heartbeats be late", f"{PROXIES}/haproxy.cfg", "timeout server 70s", "timeout server 30s", "30 s"),
    ("proxies", "streams have no end, and are not tried again once begun", f"{PROXIES}/envoy.yaml", "num_retries: 3", "per_try_timeout: 3s", "per_try_timeout"),
    ("proxies", "streams have no end, and are not tried again once begun", f"{PROXIES}/envoy.yaml", "refused-stream,reset-before-request,unavailable", "reset,unavailable", "reset"),
    ("proxies", "streams have no end, and are not tried again once begun", f"{PROXIES}/haproxy.cfg", "retry-on conn-failure", "retry-on all-retryable-errors", "all-retryable"),
    ("proxies", "streams have no end, and are not tried again once begun", f"{PROXIES}/nginx.conf", "        least_conn;", "", "least_conn"),
    ("proxies", "envoy --mode validate", f"{PROXIES}/envoy.yaml", "outlier_detection:", "outlier_detections:", "outlier_detections"),
    ("proxies", "haproxy -c", f"{PROXIES}/haproxy.cfg", "balance leastconn", "balance leastcon", "leastcon"),
    ("proxies", "nginx -t", f"{PROXIES}/nginx.conf", "least_conn;", "leest_conn;", "leest_conn"),
]  # fmt: skip


class Planted(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        for name in COPIED:
            source, target = ROOT / name, self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)

    def test_each_fault_is_found_and_nothing_without_one(self) -> None:
        checks = {(one.subject, one.name): one for one in registry.all_checks()}
        skipped = []
        for key in dict.fromkeys((subject, name) for subject, name, *_ in FAULTS):
            result = registry.run(checks[key], self.root)
            if result.outcome == "SKIP":
                self.assertFalse(checks[key].fast, "a fast check needs nothing")
                skipped.append(key)
            else:
                self.assertEqual(result.outcome, "PASS", (key, result.lines))
        for subject, name, file, old, new, said in FAULTS:
            if (subject, name) in skipped:
                continue
            with self.subTest(check=name, file=file, fault=new):
                path = self.root / file
                text = path.read_text(encoding="utf-8")
                self.assertIn(old, text)
                path.write_text(text.replace(old, new), encoding="utf-8")
                result = registry.run(checks[subject, name], self.root)
                path.write_text(text, encoding="utf-8")
                self.assertEqual(result.outcome, "FAIL")
                self.assertIn(said, "\n".join(result.lines))

    def test_every_check_of_both_subjects_has_a_fault(self) -> None:
        names = {(one.subject, one.name) for one in registry.all_checks() if one.subject in ("kubernetes", "proxies")}
        self.assertEqual(names, {(subject, name) for subject, name, *_ in FAULTS})


if __name__ == "__main__":
    unittest.main()
