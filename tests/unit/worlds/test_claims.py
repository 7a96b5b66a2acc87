"""Worlds with claims: what their file comes to, and rules that can be broken."""

import json

import pytest

from tests.worlds import claim_rules
from tests.worlds.claim_model import DRIVER, ClaimModel, pieces
from tests.worlds.invariants import Broken
from vdev.preview import preview


@pytest.mark.parametrize("changes", [[], [(0, 0), (2, 2)], [(3, 0), (4, 0)], [(4, 0), (2, 0)]])
def test_the_model_knows_what_its_file_comes_to(directory, changes):
    """The names of devices, by the documented naming alone."""
    model = ClaimModel()
    for what, one in changes:
        model.change(what, one)
    file = directory / "vdev.yaml"
    file.write_text("\n".join(["version: v1", "devices:", *model.entries()]) + "\n")
    seen = preview([file], node="node-1", host_root=directory / "host", overrides={})
    assert model.published() == {name for pool in seen.pools.values() for name in pool.by_name}


def test_hardware_behind_names():
    """Partitions overlap with their device, and with others on the same slices."""
    whole, left, right = (pieces(f"card-0{each}") for each in ("", "-2x-0", "-1x-3"))
    assert left < whole
    assert right < whole
    assert not left & right
    assert not whole & pieces("card-1")


def test_devices_that_two_claims_have(directory):
    """By hardware: a partition and its device are one."""
    path = directory / "plugins" / DRIVER / "prepared-claims.json"
    path.parent.mkdir(parents=True)

    def record(**claims):
        rows = [{"uid": uid, "devices": [{"device": each} for each in devices]} for uid, devices in claims.items()]
        path.write_bytes(json.dumps({"version": 1, "claims": rows}).encode() + b"\nchecksum\n")

    claim_rules.judge_devices(directory)
    record(one=["card-0-1x-0", "core-1"], two=["card-0-2x-2"])
    claim_rules.judge_devices(directory)
    record(one=["card-0-1x-2"], two=["card-0-2x-2"])
    with pytest.raises(Broken, match="no device is prepared for two"):
        claim_rules.judge_devices(directory)
