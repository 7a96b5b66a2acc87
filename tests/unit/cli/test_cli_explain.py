"""What `plan` and `allocate` explain: names, refusals, and the answer under each strategy."""

import itertools
import json
from pathlib import Path

import pytest

from vdev import cli

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture
def vdev(capsys):
    """Run a command; its exit code and what it printed to stdout and stderr."""

    def run(*arguments):
        code = cli.main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_each_strategy_has_its_answer(vdev):
    """`--all-strategies` shows what a container gets under each, whichever are on."""
    request = ("allocate", CONFIGS / "cdi.yaml", "--resource", "acme.dev/npu", "0", "--all-strategies")
    code, out, _ = vdev(*request, "-o", "json")
    answers = json.loads(out)["strategies"]
    assert 0 == code
    assert ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"] == list(answers)
    assert {"ACME_DEV_NPU_VISIBLE_DEVICES": "0"} == answers["envvar"]["envs"]
    assert ["/dev/null"] == [node["hostPath"] for node in answers["envvar"]["devices"]]
    assert ["/dev/null", "/etc"] == sorted(mount["hostPath"] for mount in answers["volume-mounts"]["mounts"])
    assert [{"name": "k8s.device-plugin.acme.dev/npu=0"}] == answers["cdi-cri"]["cdiDevices"]
    (annotation,) = answers["cdi-annotations"]["annotations"].values()
    assert "k8s.device-plugin.acme.dev/npu=0" == annotation
    _, text, _ = vdev(*request)
    assert ["envvar:", "volume-mounts:", "cdi-annotations:", "cdi-cri:"] == [
        line for line in text.splitlines() if line.endswith(":")
    ]


def test_what_a_cdi_name_stands_for_is_shown(vdev):
    """With CDI the answer is a name; what the runtime finds behind it is shown as well."""
    _, out, _ = vdev("allocate", CONFIGS / "cdi.yaml", "--resource", "acme.dev/npu", "1", "-o", "json")
    edits = json.loads(out)["cdi"]["k8s.device-plugin.acme.dev/npu=1"]
    assert ["ACME_DEV_NPU_DEVICE_1=acme-1"] == edits["env"]
    _, text, _ = vdev("allocate", CONFIGS / "cdi.yaml", "--resource", "acme.dev/npu", "1")
    assert "    device    /dev/null -> /dev/acme1 (rw)" in text.splitlines()


def test_a_refused_request_says_why(vdev):
    """Two replicas of a resource that gives one are refused, as the kubelet would be told."""
    files = (CONFIGS / "sharing-per-device.yaml", "--resource", "nvidia.com/gpu.half", "--size", "2")
    code, _, err = vdev("allocate", *files)
    assert 1 == code
    assert "maximum request size for shared resources is 1; found 2" in err


def test_the_plan_says_which_pattern_named_a_resource(vdev):
    """Each name has its reason."""
    _, out, _ = vdev("plan", CONFIGS / "resource-names.yaml")
    assert "  named so because resources.gpus pattern '*A100*' matches 'NVIDIA A100-SXM4-40GB'" in out.splitlines()
    assert "  named so because resources.mig pattern '1g.*' matches '1g.10gb'" in out.splitlines()


def test_the_plan_says_what_sharing_renamed(vdev, tmp_path):
    """Such a resource has its name from there, and not from the pattern that named the devices at first."""
    file = tmp_path / "v.yaml"
    file.write_text(
        """version: v1
devices:
  - {name: gpu, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}}
  - {name: npu, resource: acme.dev/npu, virtual: {count: 1}}
resources: {gpus: [{pattern: "NVIDIA-A100*", name: nvidia.com/big}]}
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
      - {name: nvidia.com/big, rename: nvidia.com/slow, replicas: 2, devices: [1]}
      - {name: acme.dev/npu, replicas: 2}
"""
    )
    _, out, _ = vdev("plan", file)
    pattern = "resources.gpus pattern 'NVIDIA-A100*' matches 'NVIDIA-A100-SXM4-40GB'"
    after = {line.partition(":")[0]: following for line, following in itertools.pairwise(out.splitlines())}
    renamed = "  named so by sharing, which renames"
    assert f"  named so because {pattern}" == after["nvidia.com/big"]
    assert f"{renamed} nvidia.com/big, named so because {pattern}" == after["nvidia.com/slow"]
    by_entry = "because the entry 'npu' gives this name"
    assert f"{renamed} acme.dev/npu, named so {by_entry}" == after["acme.dev/npu.shared"]


def test_the_plan_says_why_a_profile_was_refused(vdev, tmp_path):
    """The clash is named with its slices and its place in the file; what is right beside it is planned."""
    file = tmp_path / "v.yaml"
    file.write_text(
        """flags: {migStrategy: mixed}
devices:
- name: bad
  resource: nvidia.com/gpu
  virtual: {preset: a100-sxm4-40gb}
  partitions: {"0": [3g.20gb, 3g.20gb, 1g.5gb]}
- {name: good, resource: acme.dev/npu, virtual: {count: 2}}
"""
    )
    code, out, err = vdev("plan", file)
    assert 2 == code
    assert "acme.dev/npu: 2 devices" in out
    assert (
        f'{file}:6:40: devices[0].partitions["0"][2]: 1g.5gb takes 1 slice from 0, 1, 2, 3, 4, 5 or 6, '
        "and does not fit beside 3g.20gb@0, 3g.20gb@4" in err
    )


@pytest.fixture
def good(tmp_path):
    """A file without errors."""
    file = tmp_path / "good.yaml"
    file.write_text("devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 1}}]\n")
    return file


@pytest.fixture
def bad(tmp_path):
    """A file with an error in its only entry."""
    file = tmp_path / "bad.yaml"
    file.write_text("devices: [{name: npu, resource: acme.dev/npu, virtual: {cuont: 1}}]\n")
    return file


def test_a_reload_of_what_has_errors_changes_nothing(vdev, good, bad):
    """It would be refused as a whole, so no resource is said to be removed or new."""
    code, out, err = vdev("plan", bad, "--against", good)
    assert (2, True) == (code, "unknown key 'cuont'" in err)
    assert "a reload would change nothing: it would be refused" in out
    assert "removed" not in out
    assert [] == json.loads(vdev("plan", bad, "--against", good, "-o", "json")[1])["changes"]


@pytest.mark.parametrize("is_there", [True, False], ids=["wrong", "missing"])
def test_what_a_plan_is_compared_with_has_no_errors(vdev, good, bad, is_there):
    """Its errors are shown like those of the files, and it is not taken for one without devices."""
    if not is_there:
        bad.unlink()
    code, out, err = vdev("plan", good, "--against", bad)
    assert (2, True) == (code, "bad.yaml" in err)
    assert "what a reload would change is unknown" in out
    assert "new, " not in out
    document = json.loads(vdev("plan", good, "--against", bad, "-o", "json")[1])
    assert ([], 1) == (document["changes"], len(document["problems"]))


@pytest.mark.parametrize("is_there", [True, False], ids=["wrong", "missing"])
def test_a_plan_with_errors_is_not_called_empty(vdev, bad, is_there):
    """Nobody knows what files with errors are to advertise."""
    if not is_there:
        bad.unlink()
    code, out, _ = vdev("plan", bad)
    assert 2 == code
    assert "advertises nothing" not in out
    assert "a running vdev would refuse this configuration" in out


# --- labels of the node ----------------------------------------------------------------------------------------------

LABELLED = """
node: {labels: %s}
devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}, labels: {acme.dev/b: %s, acme.dev/%s: "1"}}]
"""


@pytest.fixture
def labelled(tmp_path):
    """Writes a configuration with labels."""

    def written(name, *values):
        file = tmp_path / name
        file.write_text(LABELLED % values)
        return file

    return written


def test_a_plan_shows_labels(vdev, labelled):
    """Sorted and in columns, wherever they go; in JSON there is always such a key."""
    for where in ("true", "nfd"):
        file = labelled("a.yaml", where, "two", "long-name")
        code, out, _ = vdev("plan", file)
        assert 0 == code
        assert (
            "labels of the node\n  LABEL               VALUE\n  acme.dev/b          two\n  acme.dev/long-name  1\n"
            in out
        )
        document = json.loads(vdev("plan", file, "-o", "json")[1])
        assert {"acme.dev/b": "two", "acme.dev/long-name": "1"} == document["nodeLabels"]
    file = labelled("off.yaml", "false", "two", "a")
    assert "labels of the node" not in vdev("plan", file)[1]
    assert {} == json.loads(vdev("plan", file, "-o", "json")[1])["nodeLabels"]


def test_a_plan_says_what_is_wrong_with_labels(vdev, labelled):
    """As a problem that stops nothing."""
    file = labelled("a.yaml", "true", "'{index}'", "a")
    code, _, err = vdev("plan", file)
    assert (0, True) == (code, "want different values for the label acme.dev/b: '0', which is used, and '1'" in err)
    assert "warning" == json.loads(vdev("plan", file, "-o", "json")[1])["problems"][0]["severity"]


def test_a_reload_changes_labels(vdev, labelled):
    """And no resource, where only labels differ."""
    old, new = labelled("old.yaml", "true", "one", "x"), labelled("new.yaml", "true", "two", "y")
    out = vdev("plan", new, "--against", old)[1]
    lines = out.partition("a reload would change:\n")[2].splitlines()
    assert ["  ~ label acme.dev/b: one -> two", "  - label acme.dev/x", "  + label acme.dev/y: 1"] == lines
    document = json.loads(vdev("plan", new, "--against", old, "-o", "json")[1])
    assert [] == document["changes"]
    assert [
        {"label": "acme.dev/b", "old": "one", "new": "two"},
        {"label": "acme.dev/x", "old": "1", "new": None},
        {"label": "acme.dev/y", "old": None, "new": "1"},
    ] == document["labelChanges"]
