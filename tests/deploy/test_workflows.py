"""The workflows and the action: pinned, linted, and the action's script produces its outputs."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import vdev
from tests.kit.manifests import charted, one

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
BIN = Path(sys.executable).parent
PINNED = re.compile(r"^ *(?:- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")

by_file = pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)


@by_file
def test_every_action_is_pinned(path):
    """Actions are pinned by commit, with the version in a comment, except for the action of this repository."""
    uses = [line for line in path.read_text().splitlines() if re.match(r" *(- )?uses:", line)]
    assert uses
    assert [] == [line for line in uses if not PINNED.match(line) and "uses: ./ " not in line]


@pytest.mark.skipif(not (BIN / "zizmor").exists(), reason="zizmor is not installed; `make lint` brings it")
def test_zizmor_finds_nothing():
    lint(BIN / "zizmor", "--offline", "--no-progress", *WORKFLOWS, ACTION)


@pytest.mark.skipif(not (BIN / "actionlint").exists(), reason="actionlint is not installed")
def test_actionlint_finds_nothing():
    lint(BIN / "actionlint", *WORKFLOWS)


def lint(*command):
    """Run a linter, which must find nothing."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert 0 == done.returncode, done.stdout + done.stderr


# --- the action ------------------------------------------------------------------------------------------------------

NODES = {
    "items": [
        {"metadata": {"name": "control"}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}},
        {
            "metadata": {"name": "worker"},
            "status": {"allocatable": {"acme.dev/npu": "2", "x.kubernetes.io/y": "1", "hugepages-2Mi": "0"}},
        },
    ]
}
FAKE = """#!/bin/sh
printf '%s\\037' "$(basename "$0")" "$@" >>"$CALLS"
printf '\\n' >>"$CALLS"
case "$(basename "$0") $*" in
*"get nodes"*) cat "$NODES" ;;
"docker pull"*missing*) exit 1 ;;
"helm"*"$BROKEN"*) exit 1 ;;
*"create namespace"*) echo 'kind: Namespace' ;;
*"apply"*) cat >/dev/null ;;
*"logs"*) echo 'vdev: no such file' ;;
esac
"""


@pytest.fixture
def action(tmp_path):
    """Run the action's script with fake programs that record their arguments."""
    for name in ("docker", "kind", "kubectl", "helm"):
        (tmp_path / name).write_text(FAKE)
        (tmp_path / name).chmod(0o755)
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")

    def run(nodes=NODES, **environ):
        (tmp_path / "nodes.json").write_text(json.dumps(nodes))
        (tmp_path / "calls").unlink(missing_ok=True)
        (tmp_path / "output").unlink(missing_ok=True)
        variables = {"CLUSTER": "c1", "WAIT": "1", "CALLS": tmp_path / "calls", "NODES": tmp_path / "nodes.json"}
        variables |= {"GITHUB_OUTPUT": tmp_path / "output", "BROKEN": "nothing", **environ}
        done = subprocess.run(
            [ROOT / "deploy/kind/action.sh"],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **{name: str(each) for name, each in variables.items()}},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        calls = (tmp_path / "calls").read_text().split("\037\n")[:-1] if (tmp_path / "calls").exists() else []
        output = (tmp_path / "output").read_text().splitlines() if (tmp_path / "output").exists() else []
        return (
            done,
            [call.replace("\n", " ").split("\037") for call in calls],
            dict(line.split("=", 1) for line in output),
        )

    return run


def called(calls, *begin):
    """The only call that starts with these words."""
    (found,) = [call for call in calls if call[: len(begin)] == [*begin]]
    return found


def test_outputs(action):
    """The script writes exactly the declared outputs."""
    done, _, output = action()
    assert 0 == done.returncode, done.stderr
    declared = yaml.safe_load(ACTION.read_text())["outputs"]
    assert set(output) == {name for name, each in declared.items() if "steps.devices.outputs" in each["value"]}
    assert {"control": {}, "worker": {"acme.dev/npu": 2}} == json.loads(output["devices"])
    assert ("kind-c1", "vdev-system", vdev.__version__) == (output["context"], output["namespace"], output["version"])
    assert "worker  acme.dev/npu  2\n" in done.stdout


def test_every_input_is_used():
    text = ACTION.read_text()
    document = yaml.safe_load(text)
    assert set(document["inputs"]) == set(re.findall(r"inputs\.([\w-]+)", text))
    script = (ROOT / "deploy/kind/action.sh").read_text()
    for variable in document["runs"]["steps"][1]["env"]:
        assert variable == "ACTION" or f"${variable}" in script or f"${{{variable}" in script


def test_the_cluster_has_no_feature_gates():
    """Its nodes are those of the tutorial; older versions of Kubernetes would refuse the gates."""
    (name,) = re.findall(r"'\{0\}/(deploy/kind/[\w.]+)'", ACTION.read_text())
    plain, tutorial = (yaml.safe_load((ROOT / path).read_text()) for path in (name, "deploy/kind/cluster.yaml"))
    assert (tutorial["nodes"], False) == (plain["nodes"], "featureGates" in plain)


def test_an_image_is_built_or_pulled(action):
    """The image is built from the action's source or pulled from a registry, and has one name in the cluster."""
    _, calls, output = action()
    assert str(ROOT) == called(calls, "docker", "build")[-1]
    assert f"vdev:{vdev.__version__}" == output["image"]
    pinned = f"registry.example/team/vdev@sha256:{'0' * 64}"
    _, calls, output = action(IMAGE=pinned)
    assert pinned == called(calls, "docker", "pull")[-1] == output["image"]
    assert [pinned, "vdev:of-this-cluster"] == called(calls, "docker", "tag")[2:]
    assert ["vdev:of-this-cluster", "--name", "c1"] == called(calls, "kind", "load")[3:]
    done, _, _ = action(IMAGE="registry.example/missing")
    assert (1, "::error title=vdev::image: cannot pull registry.example/missing\n") == (done.returncode, done.stderr)


def settings(call):
    """The values in Helm's arguments, as a mapping of chart values."""
    values = {}
    for flag, text in itertools.pairwise(call):
        if flag in ("--set", "--set-file"):
            keys, _, value = text.partition("=")
            *path, last = [key.replace("\\", "") for key in re.split(r"(?<!\\)\.", keys)]
            place = values
            for key in path:
                place = place.setdefault(key, {})
            place[last] = {"true": True}.get(value, value) if flag == "--set" else Path(value).read_text()
    return values


def test_the_chart_accepts_the_settings(action, tmp_path):
    """`config` is a file for all nodes or a directory of files by name; `values` is passed on."""
    pytest.importorskip("helm_python")
    (tmp_path / "mine.yaml").write_text("version: v1\n")
    (tmp_path / "all").mkdir()
    for name in ("default", "gpu.a100"):
        (tmp_path / "all" / f"{name}.yaml").write_text(f"version: v1 # {name}\n")
    _, calls, _ = action(CONFIG=tmp_path / "mine.yaml", VALUES="values.yaml")
    call = called(calls, "helm", "upgrade")
    assert ["--values", "values.yaml"] == call[call.index("--values") :][:2]
    objects = charted(settings(call))
    assert {"default.yaml": "version: v1\n"} == one(objects, "ConfigMap")["data"]
    (container,) = one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert ("vdev:of-this-cluster", "Never") == (container["image"], container["imagePullPolicy"])
    _, calls, _ = action(CONFIG=tmp_path / "all")
    data = one(charted(settings(called(calls, "helm", "upgrade"))), "ConfigMap")["data"]
    assert {f"{name}.yaml": f"version: v1 # {name}\n" for name in ("default", "gpu.a100")} == data


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"CONFIG": "none.yaml"}, "config: there is no none.yaml; check out the repository first"),
        ({"CONFIG": "."}, "config: no file *.yaml in ."),
        ({"WAIT": "3m"}, "wait: expected seconds, found '3m'"),
        ({"BROKEN": "upgrade"}, "the agents were not ready within 1 s"),
        ({"nodes": {"items": [NODES["items"][0]]}}, "no node had a device within 1 s; is there one for these nodes"),
    ],
)
def test_errors(action, environ, said):
    """Errors are annotations of the run, with the agents' log if it helps."""
    done, _, output = action(**environ)
    assert (1, {}) == (done.returncode, output)
    assert f"::error title=vdev::{said}" in done.stderr
    assert ("vdev: no such file" in done.stderr) == ("within" in said)


def test_the_page_lists_all_inputs_and_outputs():
    text = (ROOT / "docs" / "github-action.md").read_text()
    inputs, outputs = text.partition("| output |")[::2]
    document = yaml.safe_load(ACTION.read_text())
    assert [*document["inputs"]] == re.findall(r"^\| `([\w-]+)` \|", inputs, re.MULTILINE)
    assert [*document["outputs"]] == re.findall(r"^\| `([\w-]+)` \|", outputs, re.MULTILINE)
