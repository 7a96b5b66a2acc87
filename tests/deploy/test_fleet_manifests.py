"""The fleet's Deployment: valid, of little privilege, with exactly the permissions that its work takes."""

import contextlib

import pytest

from tests.kit.manifests import DEPLOY, kustomize, one, rendered, validate
from vdev import config
from vdev.cli import main

DIRECTORIES = [DEPLOY / "fleet", DEPLOY / "kwok"]

pytestmark = kustomize
by_name = pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)


@by_name
def test_objects_are_valid(directory):
    """Every object is what the Kubernetes API takes, strictly."""
    validate(rendered(directory))


@by_name
def test_least_privilege(directory):
    """No root, no privilege, no path of the host."""
    pod = one(rendered(directory), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    } == container["securityContext"]
    assert not any("hostPath" in each for each in pod["volumes"])


@by_name
def test_the_configuration_is_one(directory, tmp_path, capsys):
    """What the ConfigMap has is accepted, and makes a thousand nodes for KWOK."""
    file = tmp_path / "fleet.yaml"
    file.write_text(one(rendered(directory), "ConfigMap")["data"]["fleet.yaml"])
    loaded = config.load([file])
    assert loaded.problems == ()
    made = sum(len(each.names) for each in loaded.spec.fleet.made)
    assert {"fleet": 0, "kwok": 1000}[directory.name] == made


def test_the_arguments_are_known(capsys):
    """As `vdev fleet --help` has them."""
    (container,) = one(rendered(DIRECTORIES[0]), "Deployment")["spec"]["template"]["spec"]["containers"]
    with contextlib.suppress(SystemExit):
        main(["fleet", "--help"])
    known = capsys.readouterr().out
    assert "fleet" == container["args"][0]
    assert all(each.partition("=")[0] in known for each in container["args"][2:])
