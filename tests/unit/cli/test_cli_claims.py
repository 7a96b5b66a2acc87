"""`vdev allocate --claim`: devices of claims and their edits, without a kubelet or an API server."""

import json
import sys

import pytest

from vdev.cli import main
from vdev.sim.dra import cel_selectors

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

CONFIG = """version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    advertise: [dra]
    virtual: {preset: h100-sxm5-80gb, count: 2}
    dra: {partitions: dynamic}
  - name: npu
    resource: acme.dev/npu
    advertise: [dra]
    virtual: {count: 2, memory: 16Gi}
    container: {env: {ACME_MODEL: X1}}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec: {devices: {requests: [{name: main, exactly: {deviceClassName: npu.acme.dev, count: COUNT}}]}}
"""
ALLOCATED = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: given, namespace: team, uid: "42"}
status:
  allocation:
    devices:
      results:
        - {request: main, driver: acme.dev, pool: n, device: npu-1}
        - {request: net, driver: net.example.com, pool: n, device: eth1}
"""


@pytest.fixture
def allocate(tmp_path, capsys):
    """Run it with the text of a claim file. Returns exit code, stdout and stderr."""
    (tmp_path / "vdev.yaml").write_text(CONFIG)

    def run(text, *arguments):
        (tmp_path / "claim.yaml").write_text(text)
        files = [str(tmp_path / "vdev.yaml"), "--claim", str(tmp_path / "claim.yaml")]
        code = main(["allocate", *files, "--node-name", "n", *arguments])
        return code, *capsys.readouterr()

    return run


def claim(name="one", count=1):
    return CLAIM.replace("NAME", name).replace("COUNT", str(count))


def results(document):
    return [[each["device"] for each in row["allocation"]["devices"]["results"]] for row in document["claims"]]


def test_a_claim_gets_the_first_devices_that_fit(allocate):
    code, out, _ = allocate(claim(count=2))
    assert 0 == code
    assert "claim default/one" in out
    assert "device      npu-1 of acme.dev for main" in out
    assert "env       ACME_DEV_NPU_VISIBLE_DEVICES=npu-0,npu-1" in out
    assert "env       ACME_MODEL=X1" in out


def test_classes_of_the_file(allocate):
    """Their selectors distinguish partitions and whole devices by type."""
    partition = claim().replace("npu.acme.dev", "mig.nvidia.com")
    whole = claim("two").replace("npu.acme.dev", "gpu.nvidia.com")
    code, out, _ = allocate(f"{partition}---{whole}", "-o", "json")
    assert 0 == code
    (((first,)), ((second,))) = results(json.loads(out))
    assert first.startswith("gpu-0-mig-")
    assert "gpu-1" == second


def test_selectors(allocate):
    wanted = "selectors: [{cel: {expression: \"device.attributes['acme.dev'].id == 'npu-1'\"}}]"
    code, out, err = allocate(claim().replace("count: 1", wanted), "-o", "json")
    assert (0, [["npu-1"]]) == (code, results(json.loads(out))), err


def test_selectors_without_cel(allocate, monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    cel_selectors._library.cache_clear()
    wanted = "selectors: [{cel: {expression: \"device.driver == 'seen here alone'\"}}]"
    code, out, err = allocate(claim().replace("count: 1", wanted))
    cel_selectors._library.cache_clear()
    assert (2, "") == (code, out)
    assert "a selector needs CEL: pip install cel-expr-python (the extra [sim] of vdev), or" in err
    assert "refused" not in err


def test_claims_of_one_file_do_not_get_the_same_device(allocate):
    """Allocated claims count first. Templates and lists are read too."""
    listed = (
        "kind: List\nitems:\n- 7\n- kind: List\n  items:\n  - kind: ResourceClaimTemplate\n    metadata: {name: t}\n"
    )
    listed += "    spec: {spec: {devices: {requests: [{name: main, exactly: {deviceClassName: npu.acme.dev}}]}}}\n"
    code, out, _ = allocate(f"{ALLOCATED}---\n{listed}", "-o", "json")
    assert 0 == code
    assert [["npu-1", "eth1"], ["npu-0"]] == results(json.loads(out))


def test_an_existing_allocation_is_used(allocate):
    """Devices of other drivers are only named."""
    code, out, _ = allocate(ALLOCATED, "-o", "json")
    assert 0 == code
    (document,) = json.loads(out)["claims"]
    assert ("team", "given") == (document["namespace"], document["name"])
    assert document["drivers"]["net.example.com"] is None
    (device,) = document["drivers"]["acme.dev"]["devices"]
    assert ["k8s.acme.dev/claim=42-npu-1", "k8s.acme.dev/claim=42_main"] == device["cdiDeviceIds"]
    assert "k8s.acme.dev/claim" == document["drivers"]["acme.dev"]["cdi"]["kind"]
    _, out, _ = allocate(ALLOCATED)
    assert "net.example.com: another driver prepares its devices" in out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (claim(count=3), "cannot allocate all claims"),
        (claim().replace("npu.acme.dev", "none.acme.dev"), "device class none.acme.dev does not exist"),
        (claim().replace("npu.acme.dev", "none.acme.dev"), "gpu.nvidia.com, mig.nvidia.com, npu.acme.dev"),
        (ALLOCATED.replace("npu-1", "npu-7"), "node n publishes no such device"),
        (ALLOCATED.replace("pool: n, device: npu", "pool: other, device: npu"), "node n publishes no such device"),
    ],
)
def test_refused_claims(allocate, text, why):
    code, out, err = allocate(text)
    assert (1, "") == (code, out)
    assert err.startswith("refused: ")
    assert why in err


def test_invalid_files(subtests, allocate):
    cases = [
        ("kind: Pod", "has no ResourceClaim"),
        ("", "has no ResourceClaim"),
        ("[1, a]", "has no ResourceClaim"),
        ("{kind: List, items: 7}", "has no ResourceClaim"),
        ("&list {kind: List, items: [*list]}", "an API server would not take"),
        ("a: b: c", "is not YAML"),
        ("kind: ResourceClaim\nspec: {}", "an API server would not take"),
        ("kind: ResourceClaim\nspec: {devices: {requests: []}}", "has no requests"),
        ("kind: ResourceClaim\nspec: {devices: {requests: [{name: x}]}}", "Required value"),
        ("kind: ResourceClaim\nspec: {devices: {requests: [{name: x, deviceClassName: old}]}}", "Required value"),
        ("kind: ResourceClaim\nstatus: {allocation: {devices: {results: [1]}}}", "an API server would not take"),
        (claim(count="[x]"), "an API server would not take"),
        (
            claim().replace("}}]}}", "}}], config: [{requests: [other], opaque: {driver: a.b, parameters: {}}}]}}"),
            'spec.devices.config[0].requests[0]: Invalid value: "other": must be the name of a request in the claim',
        ),
        (
            claim().replace("}}]}}", "}}], constraints: [{requests: [other], matchAttribute: acme.dev/x}]}}"),
            'spec.devices.constraints[0].requests[0]: Invalid value: "other": must be the name of a request',
        ),
    ]
    for text, why in cases:
        with subtests.test(text=text):
            code, out, err = allocate(text)
            assert (2, "") == (code, out)
            assert why in err
