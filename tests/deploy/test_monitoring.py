"""The dashboard and the alert rules use only existing metrics and labels."""

import json
import re
import subprocess
from pathlib import Path

import yaml
from prometheus_client.metrics import MetricWrapperBase

from tests.kit.promtool import promtool
from vdev.model.telemetry import SmiTool
from vdev.observe.metrics import Metrics
from vdev.telemetry.exporters import EXPORTERS

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
CASES = Path(__file__).parent / "alerts.yaml"
EVERY_SERIES = {"instance", "node"}  # the scrape configuration adds these

OF_DEVICES = (  # metrics, and the labels that expressions may use
    (EXPORTERS[SmiTool.NVIDIA].metrics, {"gpu", "GPU_I_ID", "Hostname", "pod", "namespace"}),
    (EXPORTERS[SmiTool.AMD].metrics, {"gpu_id", "hostname", "pod", "namespace"}),
    (EXPORTERS[None].metrics, {"device", "entry", "resource", "pod", "namespace"}),
)


def _known():
    """The labels of each series, by the series' name."""
    known = {}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
            known |= {family.name + suffix: {*metric._labelnames, "le", *EVERY_SERIES} for suffix in suffixes}
    for metrics, labels in OF_DEVICES:
        known |= {each.name: {*labels, *dict(each.labels), *EVERY_SERIES} for each in metrics}
    for family in Metrics().registry.collect():
        if family.name.startswith("process_"):
            known |= {family.name + ("_total" if family.type == "counter" else ""): {*EVERY_SERIES}}
    return known


def _rules():
    return [
        each for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for each in group["rules"]
    ]


def _panels():
    return json.loads((MONITORING / "dashboard.json").read_text())["panels"]


def _expressions():
    yield from (target["expr"] for panel in _panels() for target in panel["targets"])
    yield from (rule["expr"] for rule in _rules())


def test_expressions_use_existing_series_and_labels(subtests):
    known = _known()
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    for expression in sorted(set(_expressions())):
        with subtests.test(expression=expression):
            assert set(re.findall(r"vdev:[a-z_0-9:]+", expression)) <= recorded
            names = re.findall(r"\b(?:vdev|process)_[a-z_]+|\bDCGM_[A-Z_]+|\bgpu_[a-z_]+(?={)", expression)
            assert [] == [name for name in names if name not in known]
            labels = {
                label for text in re.findall(r"{([^}]*)}", expression) for label in re.findall(r"(\w+)\s*[!=~]", text)
            }
            labels |= {
                each.strip() for text in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for each in text.split(",")
            }
            assert labels <= set().union(EVERY_SERIES, *(known[name] for name in names))


@promtool
def test_alerts():
    """Run the cases with promtool: when each alert fires, and which alerts a drill silences."""
    done = subprocess.run(
        ["promtool", "test", "rules", CASES.name],
        cwd=CASES.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_every_alert_has_a_test():
    """Each alert fires in some case, and all but three also have a case with a drill."""
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fired = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each["exp_alerts"]}
    assert {rule["alert"] for rule in _rules() if "alert" in rule} == fired
    drilled = {
        each["alertname"]
        for case in cases
        if any(series["series"].startswith("vdev_faults_active") for series in case["input_series"])
        for each in case["alert_rule_test"]
    }
    # A drill cannot cause the first two, and its flaps are not counted.
    assert fired - {"VdevConfigurationRefused", "VdevListNearLimit", "VdevDevicesFlap"} == drilled


def test_a_drill_silences_only_its_own_node():
    """Rules match drills by node and instance."""
    for rule in _rules():
        for asked in re.findall(r"(\S+ \([^)]*\)) (?:max_over_time\()?vdev_faults_active", rule["expr"]):
            assert "on (node, instance)" == asked
        assert rule["expr"].count("vdev_faults_active") == rule["expr"].count("unless on (node, instance)")


def test_dashboard_variables():
    """Each query filters by node and by resource if the series has it. "All" also matches series without the label."""
    variables = json.loads((MONITORING / "dashboard.json").read_text())["templating"]["list"]
    queried = {each["name"]: each for each in variables if each["type"] == "query"}
    assert {"node", "resource"} == queried.keys()
    assert all(each["includeAll"] and each["multi"] and each["allValue"] == ".*" for each in queried.values())
    known = _known()
    for panel in _panels():
        for target in panel["targets"]:
            for name, selector in re.findall(r"\b((?:vdev|process)_[a-z_]+)({[^}]*})?", target["expr"]):
                assert 'node=~"$node"' in selector, panel["title"]
                assert ('resource=~"$resource"' in selector) == ("resource" in known[name]), panel["title"]


@promtool
def test_the_scrape_configuration(tmp_path):
    """It finds the manifests' pods by label and port and adds the node label; promtool accepts it."""
    config = yaml.safe_load((MONITORING / "scrape.yaml").read_text())
    (job,) = config["scrape_configs"]
    discovery = job.pop("kubernetes_sd_configs")  # Debian's promtool does not support it
    assert [{"role": "pod", "namespaces": {"names": ["vdev-system"]}}] == discovery
    (tmp_path / "scrape.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        ["promtool", "check", "config", tmp_path / "scrape.yaml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 0 == done.returncode, done.stderr
    keep, *labels = job["relabel_configs"]
    pod = yaml.safe_load((MONITORING.parent / "base" / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    base = yaml.safe_load((MONITORING.parent / "base" / "kustomization.yaml").read_text())
    name = base["labels"][0]["pairs"]["app.kubernetes.io/name"]
    assert f"{name};{pod['containers'][0]['ports'][0]['name']}" == keep["regex"]
    assert {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"} in labels
