"""`plan` and `allocate` explain names, refused requests, and the answer of each strategy."""

import json
from pathlib import Path

CONFIGS = Path(__file__).parents[3] / "configs"


def test_answer_of_each_strategy(vdev):
    """`--all-strategies` shows all strategies, configured or not."""
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


def test_the_edits_of_a_cdi_name_are_shown(vdev):
    _, out, _ = vdev("allocate", CONFIGS / "cdi.yaml", "--resource", "acme.dev/npu", "1", "-o", "json")
    edits = json.loads(out)["cdi"]["k8s.device-plugin.acme.dev/npu=1"]
    assert ["ACME_DEV_NPU_DEVICE_1=acme-1"] == edits["env"]
    _, text, _ = vdev("allocate", CONFIGS / "cdi.yaml", "--resource", "acme.dev/npu", "1")
    assert "    device    /dev/null -> /dev/acme1 (rw)" in text.splitlines()


def test_a_refused_request_has_a_reason(vdev):
    """It is the kubelet's message for two replicas of a resource that allows one."""
    files = (CONFIGS / "sharing-per-device.yaml", "--resource", "nvidia.com/gpu.half", "--size", "2")
    code, _, err = vdev("allocate", *files)
    assert 1 == code
    assert "maximum request size for shared resources is 1; found 2" in err


def test_a_plan_without_candidates_says_where_it_looked(vdev, written, tmp_path):
    """Entries with virtual devices have no candidates."""
    entries = (
        '{name: stick, resource: a.dev/b, usb: {vendor: "10c4"}}, {name: npu, resource: a.dev/c, virtual: {count: 1}}, '
        "{name: gpu, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb}}"
    )
    _, out, err = vdev("plan", written(f"devices: [{entries}]"), "--explain", "--host-root", tmp_path)
    assert "candidates of stick: none in /sys/bus/usb/devices\n" in out
    assert 1 == out.count("candidates of")
    assert "usb vendor 10c4 matches no device on this node" in err


def test_a_plan_shows_which_pattern_gave_a_name(vdev, written):
    patterns = '{gpus: [{pattern: "*A100*", name: a100}], mig: [{pattern: "1g.*", name: small}]}'
    gpus = 'name: g, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}, partitions: {"0": [1g.5gb]}'
    file = written(f"flags: {{migStrategy: mixed}}\nresources: {patterns}\ndevices: [{{{gpus}}}]")
    _, out, _ = vdev("plan", file)
    assert "nvidia.com/a100: 1 device, 1 healthy\n  named by the pattern '*A100*'\n" in out
    assert "nvidia.com/small: 1 device, 1 healthy\n  named by the pattern '1g.*'\n" in out


# --- labels of the node ----------------------------------------------------------------------------------------------

LABELED = """
node: {labels: %s}
devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}, labels: {acme.dev/b: %s, acme.dev/%s: "1"}}]
"""


def test_a_plan_shows_labels(vdev, written):
    for where in ("true", "nfd"):
        file = written(LABELED % (where, "two", "long-name"))
        code, out, _ = vdev("plan", file)
        assert 0 == code
        assert (
            "labels of the node\n  LABEL               VALUE\n  acme.dev/b          two\n  acme.dev/long-name  1\n"
            in out
        )
        document = json.loads(vdev("plan", file, "-o", "json")[1])
        assert {"acme.dev/b": "two", "acme.dev/long-name": "1"} == document["nodeLabels"]
    file = written(LABELED % ("false", "two", "a"))
    assert "labels of the node" not in vdev("plan", file)[1]
    assert {} == json.loads(vdev("plan", file, "-o", "json")[1])["nodeLabels"]
