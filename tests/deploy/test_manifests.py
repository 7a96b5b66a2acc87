"""The manifests: valid objects, least privilege, and the same objects from the chart and kustomize."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import vdev
from tests.kit.manifests import (
    CHART,
    DEPLOY,
    HELM,
    charted,
    granted,
    helm,
    kustomize,
    one,
    plain,
    pod_of,
    rendered,
    validate,
)
from vdev import config

OVERLAYS = sorted(path.parent for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
ALL = [DEPLOY / "base", *OVERLAYS]
PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
STATE_DIR = "/var/lib/vdev"
CDI_DIR = "/var/run/cdi"
DRA_DIRS = {"/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry"}


def objects_are_valid(directory):
    validate(rendered(directory))


def least_privilege(directory):
    """No privilege, no capability, a read-only root, the seccomp profile, and no host namespace."""
    pod = pod_of(rendered(directory))
    (container,) = pod["containers"]
    assert {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container["securityContext"]
    assert {"type": "RuntimeDefault"} == pod["securityContext"]["seccompProfile"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def a_token_only_with_a_permission(directory):
    """The pod mounts a token only if a role needs it."""
    objects = rendered(directory)
    assert bool(granted(objects)) == pod_of(objects)["automountServiceAccountToken"]


def only_needed_host_paths(directory):
    """The kubelet's two directories, the state directory, and those of the overlay; host devices are read-only."""
    extra = {"host-devices": {"/dev", "/sys"}, "cdi": {CDI_DIR}, "kind": {CDI_DIR}, "dra": {CDI_DIR, *DRA_DIRS}}
    wanted = {PLUGIN_DIR, "/var/lib/kubelet/pod-resources", STATE_DIR} | extra.get(directory.name, set())
    pod = pod_of(rendered(directory))
    paths = {each["hostPath"]["path"]: each["name"] for each in pod["volumes"] if "hostPath" in each}
    assert wanted == paths.keys()
    mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
    writable = {path for path, name in paths.items() if not mounts[name].get("readOnly")}
    assert writable == {PLUGIN_DIR, STATE_DIR} | ({CDI_DIR, *DRA_DIRS} & wanted)


def a_second_agent_fits_on_a_node(directory):
    """A rolling update ends the old agent when the new one is ready, so both pods run on one node for a while."""
    objects = rendered(directory)
    strategy = one(objects, "DaemonSet")["spec"]["updateStrategy"]
    assert {"maxSurge": 1, "maxUnavailable": 0} == strategy["rollingUpdate"]
    pod = pod_of(objects)
    assert "hostNetwork" not in pod
    assert not [port for each in pod["containers"] for port in each["ports"] if "hostPort" in port]
    (run,) = [each for each in pod["volumes"] if each["name"] == "run"]
    assert "emptyDir" in run  # each pod has its own socket for `vdev status`
    assert not [each for each in pod["volumes"] if "persistentVolumeClaim" in each]


def a_configmap_edit_reaches_the_pod(directory):
    """ConfigMaps keep their names and are mounted as directories."""
    objects = rendered(directory)
    names = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
    pod = pod_of(objects)
    assert names == {each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each}
    assert not [each for each in pod["containers"][0]["volumeMounts"] if "subPath" in each]


def configurations_are_valid(directory):
    for each in rendered(directory):
        if each["kind"] == "ConfigMap":
            for name, text in each["data"].items():
                assert () == config.load_text(text, name, partial=False).errors


def test_device_classes_are_those_of_the_configuration(capsys):
    """The classes of the overlay dra are the output of `vdev dra classes` for its file."""
    from vdev import cli

    directory = DEPLOY / "overlays" / "dra"
    assert 0 == cli.main(["dra", "classes", str(directory / "default.yaml")])
    _, text = (directory / "device-classes.yaml").read_text().split("\n", 1)
    assert text == capsys.readouterr().out


def test_the_kind_cluster_has_the_needed_feature_gates():
    """Without them, the API server drops fields of ResourceSlices."""
    from vdev.dra import slice_applier

    gates = yaml.safe_load((DEPLOY / "kind" / "cluster.yaml").read_text())["featureGates"]
    assert set(slice_applier._GATES.values()) <= {name for name, on in gates.items() if on}


def the_command_line_is_known(directory):
    """`vdev run` accepts every argument of the DaemonSet."""
    from vdev import cli
    from vdev.cli import options

    arguments = pod_of(rendered(directory))["containers"][0]["args"]
    assert "run" == arguments[0]
    chosen = options.read(cli.parsed(arguments), {})
    assert Path("/etc/vdev") == chosen.config_files[0]
    assert ":8080" == chosen.http_address


@kustomize
def test_the_documented_overlay_changes_the_image(tmp_path):
    page = (DEPLOY.parent / "docs" / "deployment.md").read_text()
    (text,) = [each for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "\nimages:" in each]
    base = os.path.relpath(DEPLOY / "base", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(text.replace("../vdev/deploy/base", base))
    (container,) = pod_of(rendered(tmp_path))["containers"]
    assert f"registry.example/devices/vdev:{vdev.__version__}" == container["image"]
    assert f"docker build --tag vdev:{vdev.__version__} ." in page


# --- the chart --------------------------------------------------------------------------------------------------------

_INFO = 1  # Helm's severity of "icon is recommended"


def files_of(directory):
    """The configuration files of an overlay, as values of the chart."""
    others = {"kustomization.yaml", "device-classes.yaml", "config.yaml"}  # config.yaml is NVIDIA's
    return {path.name: path.read_text() for path in directory.glob("*.yaml") if path.name not in others}


VALUES = {  # overlay: chart values that render the same objects, apart from its files
    "cdi": {"cdi": {"enabled": True}},
    "host-devices": {"hostDevices": {"enabled": True}},
    "dra": {"dra": {"enabled": True}, "ownNodeOnly": {"enabled": True}},
    "schedulers": {"node": {"labels": True, "status": True, "events": True}, "ownNodeOnly": {"enabled": True}},
    "kind": {
        "image": {"tag": "dev"},
        "nodeLabel": {"enabled": True},
        "cdi": {"enabled": True},
        "deviceListStrategy": "envvar",
    },
    "nvidia-compat": {
        "extraArgs": ["--config-file=/etc/nvidia/config.yaml"],
        "extraVolumes": [{"name": "nvidia-config", "configMap": {"name": "nvidia-config"}}],
        "extraVolumeMounts": [{"name": "nvidia-config", "mountPath": "/etc/nvidia", "readOnly": True}],
    },
}


def values_of(directory):
    """The chart values that render the same objects as an overlay or the base."""
    if directory.name == "base":
        return {}
    files = files_of(directory)
    return VALUES[directory.name] | ({"config": files} if files else {})


def the_chart_renders_the_same_objects(directory):
    theirs = ("nvidia-config", "DeviceClass")  # the chart does not create these
    ours = {key: each for key, each in plain(rendered(directory)).items() if not {*key} & {*theirs}}
    assert ours == plain(charted(values_of(directory)))


@kustomize
@pytest.mark.parametrize("directory", ALL, ids=lambda path: path.name)
def test_an_overlay(directory, subtests):
    """Run each check above; kubectl renders an overlay once for all of them."""
    checks = [
        objects_are_valid,
        least_privilege,
        a_token_only_with_a_permission,
        only_needed_host_paths,
        a_second_agent_fits_on_a_node,
        a_configmap_edit_reaches_the_pod,
        configurations_are_valid,
        the_command_line_is_known,
        *([the_chart_renders_the_same_objects] if HELM else []),
    ]
    for check in checks:
        with subtests.test(check.__name__):
            check(directory)


@helm
def test_helm_lint_finds_nothing():
    from helm_python import chart

    result = chart.lint(CHART)
    assert [] == result["errors"]
    assert [] == [each for each in result["messages"] if each["severity"] > _INFO]


def test_one_version():
    """The chart, the kustomize base and the package have the same version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    base = yaml.safe_load((DEPLOY / "base" / "kustomization.yaml").read_text())
    assert {vdev.__version__} == {chart["version"], chart["appVersion"], base["images"][0]["newTag"]}


def test_the_schema_matches_the_default_values():
    """The schema accepts the defaults and has no key without a default."""
    import jsonschema

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(values, schema)
    assert values.keys() == schema["properties"].keys() - {"global"}


def test_examples_are_valid(subtests):
    for path in sorted(DEPLOY.glob("examples/*.yaml")):
        with subtests.test(path=path):
            validate(yaml.safe_load_all(path.read_text()))


def test_shellcheck_finds_nothing():
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not here")
    scripts = (*DEPLOY.glob("kind/*.sh"), *DEPLOY.parent.glob("tests/kit/*.sh"))
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert "" == done.stdout
