"""`vdev import`: output, files, warnings and exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

from vdev import config
from vdev.cli import main

ROOT = Path(__file__).parents[3]
FUSE = "{name: fuse, groups: [{paths: [{path: /dev/fuse}]}]}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.yaml"
    path.write_text(f"devices: [{FUSE}, {{name: x, groups: [{{paths: [{{path: dev/x}}]}}]}}]")
    return path


def test_output_and_warnings(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is a configuration. Warnings are on stderr; with --strict they are errors."""
    assert 0 == main(["import", str(file)])
    out, err = capsys.readouterr()
    assert ["squat.ai/fuse"] == [entry.resource for entry in config.load_text(out).spec.entries]
    assert "warning: devices 'x': 'dev/x' is not an absolute path" in err
    assert 1 == main(["import", str(file), "--strict"])


def test_flags_of_the_other_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["import", "--device", FUSE, "--domain", "example.com"])
    assert ["example.com/fuse"] == [entry.resource for entry in config.load_text(capsys.readouterr().out).spec.entries]


@pytest.mark.parametrize(
    ("to", "written"),
    [("configs/", "configs/small.yaml"), ("configs", "configs/small.yaml"), ("new.yaml", "new.yaml")],
)
def test_a_directory_for_the_only_node_pool(tmp_path: Path, to: str, written: str) -> None:
    """A path without a suffix is a new directory; its file has the name that a label selects."""
    source = tmp_path / "topology.yaml"
    source.write_text("nodePools: {small: {gpuProduct: Tesla-T4, gpuCount: 1, gpuMemory: 15360}}")
    assert 0 == main(["import", str(source), "--to", f"{tmp_path}/{to}"])
    assert "t4" in (tmp_path / written).read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no file to import"),
        (["FILE", "--device", FUSE], "give a file or --device, not both"),
        (["/nowhere"], "cannot be read"),
        (["FILE", "--from", "sriov"], "this is not a configuration of the SR-IOV network device plugin"),
        (["FILE", "--from", "sriof"], "invalid choice: 'sriof'"),
        (["--device", "{name: x, groups: []}"], "but it declares nothing"),
        (["--device", "{name: x, groups: [{paths: [{path: x}]}]}"], "but nothing in it can be converted:"),
        (["configs/quickstart.yaml"], "this is a configuration of vdev already"),
        (["FILE", "--to", "/proc/x/y/"], "cannot be written"),
        (["FILE", "--to", "/proc/x/y.yaml"], "cannot be written"),
    ],
)
def test_errors(file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    places = {"FILE": str(file), "configs/quickstart.yaml": str(ROOT / "configs/quickstart.yaml")}
    assert 2 == main(["import", *(places.get(each, each) for each in arguments)])
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", ["validate", "plan", "config", "dra classes"])
def test_other_commands_name_the_plugin_of_a_file(file: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert 2 == main([*command.split(), str(file)])
    said = f"{file}: this is a configuration of generic-device-plugin; `vdev import {file}` converts it\n"
    assert said == capsys.readouterr().err


def test_run_names_the_plugin_of_a_file(file: Path, tmp_path: Path) -> None:
    places = [f"--{name}-dir={tmp_path / name}" for name in ("kubelet", "state", "run", "cdi")]
    command = [sys.executable, "-m", "vdev", "run", file, "--node-name", "n", *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = f"{file}: this is a configuration of generic-device-plugin; `vdev import {file}` converts it\n"
    assert (2, said) == (done.returncode, done.stderr)


def test_a_file_of_layouts_is_not_of_another_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """mig-parted's file has another use in a configuration than in an import."""
    layouts, own = tmp_path / "l.yaml", tmp_path / "own.yaml"
    layouts.write_text("version: v1\nmig-configs:\n  a: [{devices: some, mig-enabled: false}]\n")
    partitions = "{fromLabel: a.b/c, file: l.yaml}"
    device = f"{{name: a, resource: a.b/c, virtual: {{preset: a30}}, partitions: {partitions}}}"
    own.write_text(f"flags: {{migStrategy: mixed}}\ndevices: [{device}]\n")
    assert 2 == main(["validate", str(own)])
    (said,) = capsys.readouterr().err.splitlines()
    assert f"{layouts}:3:17: mig-configs.a[0].devices: expected all, or a list" in said


def test_the_errors_of_other_files_are_reported_too(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("shraing: {}\n")
    assert 2 == main(["validate", str(file), str(own)])
    foreign, misspelled = capsys.readouterr().err.splitlines()
    assert "this is a configuration of generic-device-plugin" in foreign
    assert "did you mean 'sharing'" in misspelled
