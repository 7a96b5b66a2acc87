"""The command line of `vdev fleet`: dry runs and errors."""

import pytest
import yaml

from vdev import cli

CONFIG = """
version: v1
devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}}]
fleet: {nodes: [{name: "r{1..2}", labels: {rack: "r{1}"}}]}
"""


@pytest.fixture
def fleet(tmp_path, capsys):
    """Run the command on a file. Returns exit code, stdout and stderr."""

    def run(*arguments, text=CONFIG):
        file = tmp_path / "fleet.yaml"
        file.write_text(text)
        code = cli.main(["fleet", str(file), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.replace(str(file), "FILE")

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "Team"], "--name: expected at most 63 lower-case letters"),
        (["--name", "a" * 64], "--name: expected at most 63 lower-case letters"),
        (["--selector", "pool"], "--selector: expected KEY=VALUE, such as pool=a100, got 'pool'"),
    ],
)
def test_wrong_options(arguments, said, fleet):
    code, _, printed = fleet(*arguments, "--dry-run")
    assert (2, True) == (code, said in printed), printed


def test_a_missing_kubeconfig(fleet, tmp_path):
    """The controller does not wait for it."""
    missing = tmp_path / "nope"
    assert (2, "", f"vdev: the kubeconfig file {missing} does not exist\n") == fleet("--kubeconfig", str(missing))


def test_an_invalid_kubeconfig(fleet, tmp_path):
    garbage = tmp_path / "garbage"
    garbage.write_text("no: [kubeconfig\n")
    code, out, err = fleet("--kubeconfig", str(garbage))
    assert (2, "", True) == (code, out, f"{garbage} cannot be used: " in err)


def test_a_file_without_a_fleet_is_an_error(fleet):
    code, _, printed = fleet(text=CONFIG.partition("fleet:")[0])
    said = "FILE: there is no section fleet, which lists the nodes; give fleet.nodes, see docs/fleet.md; "
    assert (2, f"{said}[] for none\n") == (code, printed)


def test_keys_without_effect_are_warnings(fleet):
    """They are real devices, and faults of components that such nodes lack."""
    text = CONFIG.replace("devices: [", "devices: [{name: uart, resource: acme.dev/uart, glob: /dev/ttyUSB*}, ")
    text += "faults: {rules: [{name: dies, at: 1m, process: {exit: 1}}]}\n"
    _, printed, said = fleet("--dry-run", text=text)
    assert "FILE:3:11: devices[0]: warning: the devices of uart are real" in said
    assert "the fault rule 'dies' does nothing in a fleet: no kubelet, plugin or container runs there" in said
    assert 2 == len(list(yaml.safe_load_all(printed)))


def test_the_objects_of_a_named_fleet(fleet):
    """Nodes have the fleet's name and match the selector."""
    code, printed, _ = fleet("--dry-run", "--name", "lab", "--selector", "rack=r2")
    (node,) = yaml.safe_load_all(printed)
    assert (0, "r2", "lab") == (code, node["metadata"]["name"], node["metadata"]["labels"]["vdev.dev/made-by"])
    assert {"acme.dev/npu": "2"} == node["status"]["allocatable"]
