"""The permissions of the agent: none by default, and exactly the needed ones for each component."""

import pytest
import yaml

from tests.kit.manifests import (
    DEPLOY,
    HELM,
    charted,
    composed,
    granted,
    helm,
    kustomize,
    one,
    plain,
    pod_of,
    rendered,
    validate,
)

_DRA = "resource.k8s.io"
WRITE_NODES = {("", "nodes", verb) for verb in ("get", "list", "watch", "patch")}
DRIVERS = ("acme.dev", "gpu.amd.com", "gpu.nvidia.com")
WATCH_NODES = {("", "nodes", verb) for verb in ("get", "list", "watch")}
DRA = {("", f"resourceslices.{_DRA}", verb) for verb in ("list", "watch", "create", "update", "delete")}
DRA |= {("", f"resourceclaims.{_DRA}", "get"), ("", f"resourceclaims/status.{_DRA}", "patch")}
DRA |= {("", f"resourceclaims/driver.{_DRA} {each}", "associated-node:patch") for each in DRIVERS}
# component: its permissions as (namespace, resource, verb), and the chart values that render the same objects
COMPONENTS = {
    "node-label": (WATCH_NODES, {"nodeLabel": {"enabled": True}}),
    "node-labels": (WRITE_NODES, {"node": {"labels": True}}),
    "node-features": (set(), {"node": {"features": True}}),
    "node-status": (
        WATCH_NODES | {("", "nodes/status", "patch")},
        {"node": {"status": True}},
    ),
    "node-events": (
        WATCH_NODES | {("default", "events", "create"), ("default", "events", "patch")},
        {"node": {"events": True}},
    ),
    "mig-config": (WRITE_NODES, {"migConfig": {"enabled": True}}),
    "dra": (WATCH_NODES | DRA, {"dra": {"enabled": True}}),
    "own-node-only": (set(), {"ownNodeOnly": {"enabled": True}}),
    "telemetry": (set(), {"telemetry": {"enabled": True}}),
    "telemetry-monitor": (set(), {"telemetry": {"serviceMonitor": {"enabled": True}}}),
    "pod-load": ({("", "pods", "list"), ("", "pods", "watch")}, {"telemetry": {"podAnnotations": True}}),
    "pod-monitor": (set(), {"podMonitor": {"enabled": True}}),
}
DIRECTORIES = {  # host directories that a component mounts at the same paths
    "node-features": {"/etc/kubernetes/node-feature-discovery/features.d": "DirectoryOrCreate"},
    "dra": {
        "/var/lib/kubelet/plugins": "Directory",
        "/var/lib/kubelet/plugins_registry": "Directory",
        "/var/run/cdi": "DirectoryOrCreate",
    },
}


def all_values():
    """The chart values of all components together."""
    values = {}
    for _, some in COMPONENTS.values():
        for key, value in some.items():
            values[key] = values.get(key, {}) | value
    return values


def test_the_table_covers_every_component_with_objects():
    found = {path.parent.name for path in DEPLOY.glob("components/*/*.yaml") if path.name != "kustomization.yaml"}
    assert found | {"node-features"} == COMPONENTS.keys()


@kustomize
def test_the_base_has_no_permissions():
    objects = rendered(DEPLOY / "base")
    assert {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"} == {each["kind"] for each in objects}
    assert not pod_of(objects)["automountServiceAccountToken"]
    assert not one(objects, "ServiceAccount")["automountServiceAccountToken"]


@kustomize
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component(name):
    """It grants exactly the listed permissions, and the chart renders the same valid objects.

    In the pod it changes only the token, its directories and its port; dra adds the pod's uid.
    """
    wanted, values = COMPONENTS[name]
    objects = composed([name])
    validate(objects)
    assert wanted == granted(objects)
    before, after = pod_of(rendered(DEPLOY / "base")), pod_of(objects)
    assert bool(wanted) == after["automountServiceAccountToken"]
    if HELM:
        assert plain(objects) == plain(charted(values))
    for path, kind in DIRECTORIES.get(name, {}).items():
        (volume,) = [each for each in after["volumes"] if each.get("hostPath", {}).get("path") == path]
        assert {"path": path, "type": kind} == volume["hostPath"]
        after["volumes"].remove(volume)
        after["containers"][0]["volumeMounts"].remove({"name": volume["name"], "mountPath": path})
    if name == "dra":
        (uid,) = [each for each in after["containers"][0]["env"] if each["name"] == "POD_UID"]
        assert {"fieldPath": "metadata.uid"} == uid["valueFrom"]["fieldRef"]
        after["containers"][0]["env"].remove(uid)
    if name == "telemetry":
        after["containers"][0]["ports"].remove({"name": "telemetry", "containerPort": 9400})
    before["automountServiceAccountToken"] = after["automountServiceAccountToken"]
    assert before == after


@kustomize
def test_components_add_up():
    """All components together grant the sum in any order, without duplicates: cdi and dra share a directory."""
    together = [*COMPONENTS, "cdi"]
    objects = composed(together)
    assert set().union(*(wanted for wanted, _ in COMPONENTS.values())) == granted(objects)
    assert plain(objects) == plain(composed(together[::-1]))
    assert len(objects) == len({(each["kind"], each["metadata"]["name"]) for each in objects})
    pod = pod_of(objects)
    paths = [each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each]
    mounts = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
    assert 1 == paths.count("/var/run/cdi") == mounts.count("/var/run/cdi")
    assert (len(paths), len(mounts)) == (len(set(paths)), len(set(mounts)))


@kustomize
def test_another_namespace():
    """Bindings and policy follow the base's namespace; the role for Events stays in `default`."""
    objects = composed(COMPONENTS, namespace="devices")
    assert "devices" == one(objects, "ServiceAccount")["metadata"]["namespace"]
    assert set().union(*(wanted for wanted, _ in COMPONENTS.values())) == granted(objects)
    (condition,) = one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"].endswith(" == 'system:serviceaccount:devices:vdev'")


def test_overlays_set_no_namespace():
    """A namespace for all objects would move the role for Events out of `default`."""
    for path in DEPLOY.glob("overlays/*/kustomization.yaml"):
        assert "namespace" not in yaml.safe_load(path.read_text()), path


@kustomize
@helm
def test_the_chart_renders_all_components_together():
    assert plain(composed(COMPONENTS)) == plain(charted(all_values()))


@helm
def test_configured_drivers():
    """The agent may update claims of the listed drivers only; an empty list adds no rule."""
    for drivers in (["mine.example"], []):
        found = granted(charted({"dra": {"enabled": True, "drivers": drivers}}))
        named = {what.partition(" ")[2] for _, what, verb in found if verb.startswith("associated-node:")}
        assert set(drivers) == named


@helm
def test_two_releases_share_no_names():
    """Bindings and policy of each release name its own account."""
    first, second = (
        {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in objects}
        for objects in (charted(all_values()), charted(all_values(), release="lab"))
    )
    assert not first.keys() & second.keys()
    assert granted(list(first.values())) == granted(list(second.values()))
    (condition,) = one(second.values(), "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"].endswith("'system:serviceaccount:vdev-system:lab-vdev'")


@kustomize
@helm
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("host-devices", {"hostDevices": {"enabled": True}}),
        ("cdi", {"cdi": {"enabled": True}}),
        ("stand-ins", {"standIns": {"enabled": True}}),
        ("fault-injection", {"faultInjection": {"enabled": True}}),
        ("privileged", {"securityContext": {"privileged": True}}),
    ],
)
def test_components_that_change_only_the_pod(name, values):
    """The chart has a value for each and renders the same objects."""
    objects = composed([name])
    validate(objects)
    assert plain(objects) == plain(charted(values))


def test_every_component_is_tested():
    alone = {"host-devices", "cdi", "stand-ins", "fault-injection", "privileged"}
    assert {path.parent.name for path in DEPLOY.glob("components/*/kustomization.yaml")} == COMPONENTS.keys() | alone
