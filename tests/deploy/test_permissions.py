"""The permissions of the agent: none by default, and with each component exactly those of its feature."""

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
# component: the permissions that it gives as (namespace, resource, verb), and the chart's values that do the same
COMPONENTS = {
    "node-label": ({("", "nodes", "get")}, {"nodeLabel": {"enabled": True}}),
    "node-labels": (WRITE_NODES, {"node": {"labels": True}}),
    "node-features": (set(), {"node": {"features": True}}),
    "node-status": (
        WATCH_NODES | {("", "nodes/status", "patch")},
        {"node": {"status": True}},
    ),
    "node-events": (
        {("", "nodes", "get"), ("default", "events", "create"), ("default", "events", "patch")},
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
DIRECTORIES = {  # of the host, which a component adds, with the same paths inside
    "node-features": {"/etc/kubernetes/node-feature-discovery/features.d": "DirectoryOrCreate"},
    "dra": {
        "/var/lib/kubelet/plugins": "Directory",
        "/var/lib/kubelet/plugins_registry": "Directory",
        "/var/run/cdi": "DirectoryOrCreate",
    },
}


def everything():
    """The values of all components together."""
    values = {}
    for _, some in COMPONENTS.values():
        for key, value in some.items():
            values[key] = values.get(key, {}) | value
    return values


def test_every_component_with_a_role_is_here():
    """Each component with its own objects is in the table above."""
    found = {path.parent.name for path in DEPLOY.glob("components/*/*.yaml") if path.name != "kustomization.yaml"}
    assert found | {"node-features"} == COMPONENTS.keys()


@kustomize
def test_nothing_by_default():
    """The base has no role, no policy and no token."""
    objects = rendered(DEPLOY / "base")
    assert {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"} == {each["kind"] for each in objects}
    assert not pod_of(objects)["automountServiceAccountToken"]
    assert not one(objects, "ServiceAccount")["automountServiceAccountToken"]


@kustomize
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component(name):
    """It gives its permissions and no other, a token only for those, and valid objects; its value of the chart renders
    the same.

    It changes nothing of the pod but the token, and the directories and the port that it is for; dra adds the pod's
    uid.
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
    """All components together give the sum, in any order, and nothing twice: cdi and dra share a directory."""
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
    """Bindings and policy follow the namespace of the layer below; the role for Events stays in that of Events."""
    objects = composed(COMPONENTS, namespace="devices")
    assert "devices" == one(objects, "ServiceAccount")["metadata"]["namespace"]
    assert set().union(*(wanted for wanted, _ in COMPONENTS.values())) == granted(objects)
    (condition,) = one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"].endswith(" == 'system:serviceaccount:devices:vdev'")


def test_the_namespace_is_left_to_the_base():
    """No overlay sets a namespace for all objects: that would move the role for Events out of `default`."""
    for path in DEPLOY.glob("overlays/*/kustomization.yaml"):
        assert "namespace" not in yaml.safe_load(path.read_text()), path


@kustomize
@helm
def test_the_chart_gives_the_same_together():
    """All values together are all components together."""
    assert plain(composed(COMPONENTS)) == plain(charted(everything()))


@helm
def test_drivers_of_ones_own():
    """The chart's value lists the drivers whose claims the agent may update; without drivers there is no such rule."""
    for drivers in (["mine.example"], []):
        found = granted(charted({"dra": {"enabled": True, "drivers": drivers}}))
        named = {what.partition(" ")[2] for _, what, verb in found if verb.startswith("associated-node:")}
        assert set(drivers) == named


@helm
def test_another_release_has_names_of_its_own():
    """Two releases in one cluster share no object, and the bindings and the policy of each name its own account."""
    first, second = (
        {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in objects}
        for objects in (charted(everything()), charted(everything(), release="lab"))
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
def test_the_chart_changes_the_pod_as_the_component_does(name, values):
    """The components that only change the pod have a value of the chart too."""
    objects = composed([name])
    validate(objects)
    assert plain(objects) == plain(charted(values))


def test_every_component_has_its_value():
    """Each component exists for both ways to deploy."""
    alone = {"host-devices", "cdi", "stand-ins", "fault-injection", "privileged"}
    assert {path.parent.name for path in DEPLOY.glob("components/*/kustomization.yaml")} == COMPONENTS.keys() | alone
