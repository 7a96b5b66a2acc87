"""The fleet's Deployment: valid objects, least privilege, and the same objects from the chart."""

import contextlib

import pytest

from tests.kit.manifests import DEPLOY, charted, composed, helm, kustomize, one, plain, rendered, validate
from vdev import config
from vdev.cli import main

ALONE = {"agent": {"enabled": False}, "fleet": {"enabled": True}}
WAYS = {
    "fleet": lambda: rendered(DEPLOY / "fleet"),
    "kwok": lambda: rendered(DEPLOY / "kwok"),
    "chart": lambda: charted(ALONE, release="lab"),
}
MADE = {"kwok": 1000}

pytestmark = [kustomize, helm]
by_way = pytest.mark.parametrize("way", WAYS)


@by_way
def test_objects_are_valid(way):
    validate(WAYS[way]())


@by_way
def test_least_privilege(way):
    """It runs without root, privileges and host paths."""
    pod = one(WAYS[way](), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container["securityContext"]
    assert not any("hostPath" in each for each in pod["volumes"])


@by_way
def test_the_configuration_is_valid(way, tmp_path):
    """The configuration in the ConfigMap has no problems, and that for KWOK has a thousand nodes."""
    file = tmp_path / "fleet.yaml"
    file.write_text(one(WAYS[way](), "ConfigMap")["data"]["fleet.yaml"])
    loaded = config.load([file])
    assert loaded.problems == ()
    assert MADE.get(way, 0) == sum(len(each.names) for each in loaded.spec.fleet.made)


@by_way
def test_the_arguments_are_known(way, capsys):
    """`vdev fleet --help` lists every argument of the container."""
    (container,) = one(WAYS[way](), "Deployment")["spec"]["template"]["spec"]["containers"]
    with contextlib.suppress(SystemExit):
        main(["fleet", "--help"])
    known = capsys.readouterr().out
    assert "fleet" == container["args"][0]
    assert all(each.partition("=")[0] in known for each in container["args"][2:])


@by_way
def test_the_control_socket_is_writable(way):
    """VDEV_RUN_DIR, which `vdev fault` uses too, is the only writable directory."""
    spec = one(WAYS[way](), "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert 0 != spec["securityContext"]["runAsUser"]
    writable = {each["name"] for each in spec["volumes"] if "emptyDir" in each}
    places = {each["mountPath"] for each in container["volumeMounts"] if each["name"] in writable}
    assert {each["value"] for each in container["env"] if each["name"] == "VDEV_RUN_DIR"} == places


@by_way
def test_the_service_selects_the_pods(way):
    objects = WAYS[way]()
    service, template = one(objects, "Service")["spec"], one(objects, "Deployment")["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    ports = {each["name"] for each in template["spec"]["containers"][0]["ports"]}
    assert ports == {each["targetPort"] for each in service["ports"]}


def test_the_chart_renders_the_same_objects():
    assert plain(rendered(DEPLOY / "fleet")) == plain(charted(ALONE))


def test_the_chart_renders_the_same_policy():
    """The policy names the service account of the namespace."""
    policy = composed(["own-nodes-only"], fleet=True)
    values = {**ALONE, "fleet": {"enabled": True, "ownNodesOnly": {"enabled": True}}}
    assert plain(policy) == plain(charted(values))
    validate(policy)
    objects = composed(["own-nodes-only"], namespace="devices", fleet=True)
    moved = one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert moved[0]["expression"].endswith("'system:serviceaccount:devices:vdev-fleet'")


def test_agents_and_fleet_in_one_release():
    """No selector matches the pods of both, and object names are unique."""
    objects = charted({"fleet": {"enabled": True}, "telemetry": {"enabled": True}, "podMonitor": {"enabled": True}})
    validate(objects)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    agents = one(objects, "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert not agents.items() <= labels.items()


def test_two_releases_share_no_names():
    first, second = (charted(ALONE, release=release) for release in ("vdev", "lab"))
    args = [one(each, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"] for each in (first, second)]
    assert ["--name=vdev-fleet", "--name=lab-vdev-fleet"] == [each[2] for each in args]
    names = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (first, second)]
    assert not names[0] & names[1]


def test_without_agents_and_fleet_nothing_is_rendered():
    values = {"node": {"labels": True, "events": True}, "ownNodeOnly": {"enabled": True}, "dra": {"enabled": True}}
    assert [] == charted({**values, "agent": {"enabled": False}, "podMonitor": {"enabled": True}})


def test_fault_injection_and_log_level_apply_to_the_fleet():
    objects = charted({**ALONE, "faultInjection": {"enabled": True}, "logLevel": "debug"})
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"--enable-fault-injection", "--log-level=debug"} <= set(container["args"])
