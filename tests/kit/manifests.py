"""Renders deploy/ with kubectl (kustomize) and Helm's engine. Tests are skipped if these are not installed."""

import copy
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.kit.api_schemas import by_schema

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "vdev"
_HELM_LABELS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}

kustomize = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which renders kustomize, is not here")
HELM = importlib.util.find_spec("helm_python") is not None
helm = pytest.mark.skipif(not HELM, reason="helm-python-sdk is not installed")


@functools.cache
def _rendered(directory):
    return loaded(kustomized(directory))


@functools.cache
def kustomized(directory):
    """Return the output of `kubectl kustomize`. Cached, so the directory must not change."""
    done = subprocess.run(["kubectl", "kustomize", directory], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(directory):
    """Return the objects that kustomize renders from a directory."""
    return copy.deepcopy(_rendered(directory))


def charted(values=None, release="vdev"):
    """Return the objects that Helm renders from the chart."""
    return copy.deepcopy(_charted(json.dumps(values or {}), release))


@functools.cache
def _charted(text, release):
    from helm_python import Chart

    values = json.loads(text)
    with Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(values))
        output = chart.render(values, name=release, namespace="vdev-system")
    return [each for name, text in output.items() if name.endswith(".yaml") for each in loaded(text)]


def loaded(text):
    """Return the objects of a YAML text. If libyaml is installed, reading takes a tenth of the time."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, loader) if each]


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_RELABELINGS = {
    "items": {
        "additionalProperties": False,
        "properties": {
            "sourceLabels": {"type": "array", "items": {"type": "string"}},
            "targetLabel": {"type": "string"},
            "action": {"enum": ["replace"]},
        },
    }
}


def _monitor(endpoints, **more):
    """Return the schema of a monitor with its endpoints under this key, and with additional fields."""
    fields = {
        "port": {"type": "string"},
        "path": {"type": "string"},
        "interval": {"type": "string", "pattern": "^[0-9]+(ms|[smhd])$"},
        "relabelings": _RELABELINGS,
        **more,
    }
    return {
        "required": ["selector", endpoints],
        "additionalProperties": False,
        "properties": {
            "selector": {"additionalProperties": False, "properties": {"matchLabels": _TEXTS}},
            endpoints: {"items": {"additionalProperties": False, "properties": fields}},
        },
    }


_OPERATOR = {  # the used fields, as in the CRDs of the Prometheus operator
    "PodMonitor": _monitor("podMetricsEndpoints"),
    "ServiceMonitor": _monitor("endpoints", honorLabels={"type": "boolean"}),
    "PrometheusRule": {
        "additionalProperties": False,
        "properties": {
            "groups": {
                "items": {
                    "required": ["name", "rules"],
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"},
                        "rules": {
                            "items": {
                                "required": ["expr"],
                                "additionalProperties": False,
                                "properties": {
                                    "record": {"type": "string"},
                                    "alert": {"type": "string"},
                                    "expr": {"type": "string"},
                                    "for": {"type": "string"},
                                    "labels": _TEXTS,
                                    "annotations": _TEXTS,
                                },
                            }
                        },
                    },
                }
            }
        },
    },
}


def validate(objects):
    """Validate each object strictly against the schema of the Kubernetes API, or of the Prometheus operator's CRD."""
    pytest.importorskip("kubernetes_validate")
    for each in objects:
        if each["apiVersion"] == "monitoring.coreos.com/v1":
            jsonschema.validate(each["spec"], _OPERATOR[each["kind"]])
            assert {"apiVersion", "kind", "metadata", "spec"} == each.keys()
        else:
            _validate(json.dumps(each))


@functools.cache
def _validate(text):
    """Validate an object. Cached, because most objects of two renderings are the same."""
    assert [] == by_schema(json.loads(text))


def permissions_of(component):
    """Return the permissions of a component's roles for the tests' API server: verb, resource, and maybe a name."""
    objects = yaml.safe_load_all((DEPLOY / "components" / component / "rbac.yaml").read_text())
    rules = [rule for each in objects if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    return {
        f"{verb} {resource} {name}".strip()
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def granted(objects):
    """Return the permissions of the agent's service account: (namespace, resource, verb).

    A resource has its group unless that is the core group, and a name if the permission is for one object only.
    """
    account = one(objects, "ServiceAccount")["metadata"]
    roles = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}
    found = set()
    for binding in objects:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        (subject,) = binding["subjects"]
        assert {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]} == subject
        namespace = binding["metadata"].get("namespace", "")
        for rule in roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]["rules"]:
            assert {"apiGroups", "resources", "verbs"} == rule.keys() - {"resourceNames"}
            (group,) = rule["apiGroups"]
            what = [f"{each}.{group}" if group else each for each in rule["resources"]]
            if "resourceNames" in rule:
                what = [f"{each} {name}" for each in what for name in rule["resourceNames"]]
            found |= {(namespace, each, verb) for each in what for verb in rule["verbs"]}
    return found


def one(objects, kind):
    """Return the only object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def pod_of(objects):
    """Return the pod spec of the DaemonSet."""
    return one(objects, "DaemonSet")["spec"]["template"]["spec"]


def composed(components, namespace="vdev-system", *, fleet=False):
    """Return the objects of an overlay: the base, whose namespace an intermediate layer sets, and the components."""
    return copy.deepcopy(_composed(DEPLOY / "fleet" if fleet else DEPLOY, namespace, *components))


@functools.cache
def _composed(directory, namespace, *components):
    with tempfile.TemporaryDirectory() as place:
        layer, overlay = Path(place, "layer"), Path(place, "overlay")
        base = directory / "base" if directory == DEPLOY else directory
        _kustomization(layer, namespace=namespace, resources=[base])
        used = [directory / "components" / name for name in components]
        _kustomization(overlay, resources=[layer], components=used)
        return loaded(kustomized(overlay))


def _kustomization(place, **fields):
    place.mkdir()
    for key in {"resources", "components"} & fields.keys():  # kustomize does not accept absolute paths
        fields[key] = [os.path.relpath(path, place.resolve()) for path in fields[key]]
    (place / "kustomization.yaml").write_text(yaml.safe_dump(fields))


def plain(objects):
    """Remove the parts that only Helm or only kustomize adds: labels, the Namespace, empty mappings.

    Volumes, mounts, variables and ports are sorted by name.
    """
    found = {}
    for each in copy.deepcopy(objects):
        if each["kind"] == "Namespace":
            continue
        spec = each.get("spec", {})
        places = [each["metadata"].get("labels"), spec.get("selector", {}).get("matchLabels")]
        places.append(spec["selector"] if each["kind"] == "Service" else None)
        places.append(spec.get("template", {}).get("metadata", {}).get("labels"))
        for labels in places:
            for name in _HELM_LABELS & (labels or {}).keys():
                del labels[name]
        if each["kind"] == "DaemonSet":
            pod = spec["template"]["spec"]
            container = pod["containers"][0]
            for named in (pod["volumes"], container["volumeMounts"], container["env"], container["ports"]):
                named.sort(key=lambda one: one["name"])
        if each["kind"] == "ConfigMap":  # kustomize's generator also labels it
            each["data"] = {name: text.strip() for name, text in each["data"].items()}
        found[each["kind"], each["metadata"]["name"]] = each
    return found
