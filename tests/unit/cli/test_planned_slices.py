"""The output of `vdev plan` for devices of claims."""

import json

import pytest

from tests.kit.slice_rules import check_pool
from vdev import cli

GPU = """
devices:
  - name: a30
    resource: nvidia.com/gpu
    virtual: {preset: a30, count: %d}
    advertise: dra
    dra: {partitions: %s}
"""


@pytest.fixture
def plan(tmp_path, capsys):
    def planned(text, *more, output="text"):
        path = tmp_path / "new.yaml"
        path.write_text(text)
        assert 0 == cli.main(["plan", str(path), "--node-name", "n1", "--output", output, *more])
        return capsys.readouterr().out

    return planned


def test_devices_are_a_table(plan):
    lines = plan((GPU % (1, "dynamic")).replace("preset: a30", "preset: h100-sxm5-80gb")).splitlines()
    assert "advertises nothing" not in lines
    assert "gpu.nvidia.com: 26 devices for claims in 2 ResourceSlices, 26 healthy" in lines
    assert ["gpu-0", "gpu", "-", "80Gi", "gpu-0-counter-set"] in [line.split() for line in lines]
    shown = next(line.split() for line in lines if "gpu-0-mig-2g20gb-14-2" in line)
    assert ["mig", "2g.20gb"] == shown[1:3]
    assert "gpu-0-counter-set" in shown


def test_json_has_the_slices(plan):
    document = json.loads(plan(GPU % (2, "dynamic"), output="json"))
    assert [] == document["resources"]
    slices = document["resourceSlices"]
    check_pool(slices)
    assert ["00000-gpu.nvidia.com-n1-", "00001-gpu.nvidia.com-n1-"] == [
        each["metadata"]["generateName"] for each in slices
    ]
    assert {"name": "n1", "generation": 1, "resourceSliceCount": 2} == slices[0]["spec"]["pool"]


def test_changes_by_a_reload(plan, tmp_path):
    old = tmp_path / "old.yaml"
    old.write_text(GPU % (1, "static"))
    assert "~ gpu.nvidia.com: 1 -> 2 devices\n      + gpu-1\n" in plan(GPU % (2, "static"), "--against", str(old))
    assert "a reload would change nothing" in plan(GPU % (1, "static"), "--against", str(old))
    changed = json.loads(plan(GPU % (1, "dynamic"), "--against", str(old), output="json"))["sliceChanges"]
    (change,) = changed
    assert ("gpu.nvidia.com", ["gpu-0"], []) == (change["driver"], change["removed"], change["changed"])
    assert 13 == len(change["added"])
    none = (GPU % (1, "static")).replace("advertise: dra\n", "").replace("    dra: {partitions: static}\n", "")
    gone = plan(none, "--against", str(old))
    assert "- gpu.nvidia.com: removed; devices that pods and claims may hold are kept until they are free" in gone
