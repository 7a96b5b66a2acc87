"""The ResourceSlices of a configuration."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.rules import rule
from tests.kit.slice_rules import check_pool, fits
from vdev import config
from vdev.config.presets import preset_names
from vdev.dra import slices as cutting
from vdev.dra.published_devices import record
from vdev.errors import ConfigError
from vdev.faults.targets import ActiveFaults
from vdev.model.device import Health
from vdev.model.geometry import LayoutError
from vdev.planning.inventory import inventory
from vdev.planning.partitions import place
from vdev.planning.plan import NO_POOLS, ObservedState, Previous, desired_state

NODE = "n1"
SICK = Health(healthy=False, reason="dead")


def file(*entries, **more):
    named = [
        {"name": f"e{number}", "resource": "acme.dev/npu", "advertise": "dra", **entry}
        for number, entry in enumerate(entries)
    ]
    return config.load_text(json.dumps({"devices": named, "flags": {"mpsRoot": "/run/mps"}, **more})).spec


def world(spec, pools=NO_POOLS, **more):
    previous = Previous(pools=pools)
    return ObservedState(spec=spec, node=NODE, inventory=inventory(spec, NODE), previous=previous, **more)


def pools(spec, **more):
    return desired_state(world(spec, **more)).pools


def pool(*entries, **more):
    (only,) = pools(file(*entries, **more)).values()
    return only


def devices(made):
    """The devices of a pool as written to slices, by name."""
    return {each["name"]: each for spec in cutting.specifications(made, NODE) for each in spec.get("devices", ())}


def plain(device):
    """Its attributes without their types."""
    return {key: value for key, each in device["attributes"].items() for value in each.values()}


def capacity(device):
    return {key: each["value"] for key, each in device.get("capacity", {}).items()}


# --- devices as published by vendors' drivers -------------------------------------------------------------------------


def test_a_gpu_of_nvidia():
    made = pool({"resource": "nvidia.com/gpu", "virtual": {"preset": "a100-sxm4-40gb", "count": 2, "numa": [0, 1]}})
    assert "gpu.nvidia.com" == made.driver
    first, second = devices(made).values()
    assert ("gpu-0", "gpu-1") == (first["name"], second["name"])
    assert {
        "type": {"string": "gpu"},
        "uuid": {"string": made.by_name["gpu-1"].device.id},
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Ampere"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "driverVersion": {"version": "580.95.5"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:11:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:10"},
        "resource.kubernetes.io/numaNode": {"int": 1},
    } == second["attributes"]
    assert {"memory": {"value": "40Gi"}} == second["capacity"]


def test_static_partitions_of_nvidia():
    made = pool(
        {
            "resource": "nvidia.com/gpu",
            "virtual": {"preset": "a100-sxm4-40gb", "count": 2},
            "partitions": {"1": ["1g.5gb", "1g.5gb+me", "3g.20gb"]},
        }
    )
    found = devices(made)
    assert ["gpu-0", "gpu-1-mig-1g5gb-19-0", "gpu-1-mig-1g5gb-me-20-1", "gpu-1-mig-3g20gb-9-4"] == list(found)
    last = found["gpu-1-mig-3g20gb-9-4"]
    stands_for = made.by_name["gpu-1-mig-3g20gb-9-4"].device
    told = plain(last)
    assert ("mig", "3g.20gb", stands_for.id, stands_for.raw.id) == (
        told["type"],
        told["profile"],
        told["uuid"],
        told["parentUUID"],
    )
    assert {
        "multiprocessors": "42",
        "copyEngines": "3",
        "decoders": "2",
        "encoders": "0",
        "jpegEngines": "0",
        "ofaEngines": "0",
        "memory": "19968Mi",
        **{f"memorySlice{number}": "1" for number in range(4, 8)},
    } == capacity(last)


def test_dynamic_partitions_of_nvidia():
    made = pool(
        {
            "resource": "nvidia.com/gpu",
            "virtual": {"preset": "h100-sxm5-80gb"},
            "dra": {"partitions": "dynamic"},
        }
    )
    counted, offered = cutting.specifications(made, NODE)
    assert ["gpu-0-counter-set"] == [each["name"] for each in counted["sharedCounters"]]
    assert 15 == len(counted["sharedCounters"][0]["counters"])
    names = [each["name"] for each in offered["devices"]]
    assert sorted(names) == names
    assert 26 == len(names)  # the GPU, and 7 + 7 + 4 + 3 + 2 + 1 + 1 placements
    part = devices(made)["gpu-0-mig-2g20gb-14-2"]
    assert "uuid" not in part["attributes"]
    assert not any(key.startswith("memorySlice") for key in part["capacity"])
    (used,) = part["consumesCounters"]
    assert {"memory-slice-2": "1", "memory-slice-3": "1", "multiprocessors": "32", "memory": "20Gi"}.items() <= {
        key: each["value"] for key, each in used["counters"].items()
    }.items()
    whole = devices(made)["gpu-0"]
    assert whole["consumesCounters"][0]["counters"] == counted["sharedCounters"][0]["counters"]
    assert "132" == capacity(whole)["multiprocessors"]


AMPERE = {"resource": "nvidia.com/gpu", "virtual": {"preset": "a100-sxm4-40gb"}}


@pytest.mark.parametrize("mode", [{}, {"migEnabled": True}])
def test_an_ampere_gpu_with_mig_mode_has_only_partitions(mode):
    """As in NVIDIA's driver, because changing the mode needs a reset of the GPU."""
    made = pool({**AMPERE, "dra": {"partitions": "dynamic", **mode}})
    counted, offered = cutting.specifications(made, NODE)
    assert 15 == len(counted["sharedCounters"][0]["counters"])
    assert "98" == counted["sharedCounters"][0]["counters"]["multiprocessors"]["value"]
    assert 25 == len(offered["devices"])
    assert "gpu-0" not in devices(made)
    (used,) = devices(made)["gpu-0-mig-1g5gb-19-0"]["consumesCounters"]
    assert "gpu-0-counter-set" == used["counterSet"]


def test_an_ampere_gpu_without_mig_mode_is_whole():
    made = pool({**AMPERE, "dra": {"partitions": "dynamic", "migEnabled": False}})
    (offered,) = cutting.specifications(made, NODE)
    (whole,) = offered["devices"]
    assert ("gpu-0", {"memory": "40Gi"}) == (whole["name"], capacity(whole))
    assert "consumesCounters" not in whole


def test_a_gpu_of_amd():
    made = pool(
        {"resource": "amd.com/gpu", "virtual": {"preset": "mi300x", "count": 2}, "partitions": {"1": "qpx_nps1"}}
    )
    assert "gpu.amd.com" == made.driver
    found = devices(made)
    assert {"gpu-0-128", "gpu-1-129", "gpu-72-200", "gpu-74-202", "gpu-76-204"} == found.keys()
    whole, part = plain(found["gpu-0-128"]), plain(found["gpu-74-202"])
    assert ("amdgpu", "spx_nps1", 0, 128) == tuple(
        whole[key] for key in ("type", "partitionProfile", "cardIndex", "renderIndex")
    )
    assert ("amdgpu-partition", "qpx_nps1") == (part["type"], part["partitionProfile"])
    assert part["parentDeviceID"] == plain(found["gpu-1-129"])["parentDeviceID"] != whole["deviceID"]
    assert {"memory": "192Gi", "computeUnits": "304", "simdUnits": "1216"} == capacity(found["gpu-0-128"])


def test_devices_of_other_vendors():
    made = pool(
        {
            "virtual": {
                "count": 2,
                "memory": "16Gi",
                "numa": 1,
                "attributes": {"model": "X1", "cores": 64, "slices.gi": "1", "on": True, "pciBusID": "0000:3B:00.0"},
            },
            "dra": {"attributes": {"acme.dev/rack": "r{index}", "model": "other", "example.org/n": 7}},
        }
    )
    found = devices(made)
    assert ["e0-0", "e0-1"] == list(found)
    assert {
        "type": {"string": "npu"},
        "id": {"string": "e0-1"},
        "model": {"string": "other"},
        "cores": {"int": 64},
        "slices_gi": {"int": 1},
        "on": {"bool": True},
        "pciBusID": {"string": "0000:3B:00.0"},
        "rack": {"string": "r1"},
        "example.org/n": {"int": 7},
        "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
        "resource.kubernetes.io/numaNode": {"int": 1},
    } == found["e0-1"]["attributes"]
    assert {"memory": "16Gi"} == capacity(found["e0-1"])


def test_the_type_is_never_left_out():
    """DeviceClasses select by it, and a missing attribute is an error that ends the allocation."""
    many = {f"a{number}": "x" for number in range(32)}
    of_its_own = pool({"virtual": {"attributes": many}})
    of_the_file = pool({"virtual": {}, "dra": {"attributes": many}})
    for made in (of_its_own, of_the_file):
        (only,) = devices(made).values()
        assert 32 == len(only["attributes"])
        assert {"string": "npu"} == only["attributes"]["type"]
    assert "id" in next(iter(devices(of_its_own).values()))["attributes"]


def test_a_long_attribute_of_a_device_is_cut_with_a_warning():
    made = pool({"virtual": {"count": 2, "attributes": {"serial": "x" * 65}}})
    assert ["x" * 64] * 2 == [plain(each)["serial"] for each in devices(made).values()]
    (problem,) = made.problems
    assert problem.message.startswith("the attribute serial of e0 is cut off in its ResourceSlices: ")
    assert not problem.is_error


# --- shares ----------------------------------------------------------------------------------------------------------


def test_time_slicing_has_slots_and_shared_memory():
    sharing = {"timeSlicing": {"resources": [{"name": "acme.dev/npu", "replicas": 4, "devices": [1]}]}}
    first, second = devices(pool({"virtual": {"count": 2, "memory": "8Gi"}}, sharing=sharing)).values()
    assert "allowMultipleAllocations" not in first
    assert second["allowMultipleAllocations"] is True
    assert {
        "memory": {
            "value": "8Gi",
            "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "8Gi", "step": "1Mi"}},
        },
        "slots": {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}},
    } == second["capacity"]


def test_shares_of_mps_have_memory():
    sharing = {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}}
    made = pool({"resource": "nvidia.com/gpu", "virtual": {"preset": "t4"}}, sharing=sharing)
    only = devices(made)["gpu-0"]["capacity"]
    assert {"default": "5461Mi", "validRange": {"min": "1Mi", "max": "16Gi", "step": "1Mi"}} == only["memory"][
        "requestPolicy"
    ]
    assert "48" == only["shares"]["value"]


NET = {
    "virtual": {"count": 1, "memory": "1Gi"},
    "dra": {
        "capacity": {
            "acme.dev/vfs": {"value": 100, "requestPolicy": {"default": 1, "validValues": [1]}},
            "ingress": {
                "value": "100G",
                "requestPolicy": {"default": "1G", "validRange": {"min": "100M", "max": "100G", "step": "1M"}},
            },
            "ports": 4,
            "a.b/any": {"value": 10, "requestPolicy": {"default": 3}},
        }
    },
}


def test_declared_capacity():
    """A policy makes the device shareable. A claim gets capacity without a policy only if it requests it."""
    (only,) = devices(pool(NET)).values()
    assert only["allowMultipleAllocations"]
    whole = {"min": "0", "step": "1"}
    assert {
        "vfs": {"value": "100", "requestPolicy": {"default": "1", "validValues": ["1"]}},
        "ingress": {
            "value": "100G",
            "requestPolicy": {"default": "1G", "validRange": {"min": "100M", "max": "100G", "step": "1M"}},
        },
        "ports": {"value": "4", "requestPolicy": {"default": "0", "validRange": {**whole, "max": "4"}}},
        "a.b/any": {"value": "10", "requestPolicy": {"default": "3"}},
        "memory": {
            "value": "1Gi",
            "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "1Gi", "step": "1Mi"}},
        },
    } == only["capacity"]


def test_dynamic_partitions_are_not_shared():
    spec = file(
        {"resource": "nvidia.com/gpu", "virtual": {"preset": "a30"}, "dra": {"partitions": "dynamic"}},
        sharing={"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}},
    )
    (problem,) = inventory(spec, NODE).problems
    assert "claims do not share nvidia.com/gpu of e0" in problem.message


# --- health ----------------------------------------------------------------------------------------------------------


def raw(spec, index=0):
    return next(iter(inventory(spec, NODE).claimable.values())).slots[index].device.raw.id


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [{"key": "acme.dev/unhealthy", "effect": "NoSchedule"}]),
        ({"unhealthy": "NoExecute"}, [{"key": "acme.dev/unhealthy", "effect": "NoExecute"}]),
        ({"unhealthy": "none"}, None),
    ],
)
def test_an_unhealthy_device_is_tainted(policy, expected):
    spec = file({"virtual": {"count": 2}, "dra": {"taints": policy}})
    made = pools(spec, health={raw(spec, 1): SICK})["acme.dev"]
    assert [None, expected] == [each.get("taints") for each in devices(made).values()]
    assert SICK == made.by_name["e0-1"].health


def test_taints_of_nvidia():
    spec = file({"resource": "nvidia.com/gpu", "virtual": {"preset": "a30"}, "dra": {"partitions": "dynamic"}})
    sick = {raw(spec): Health(healthy=False, reason="dead")}
    made = pools(spec, health=sick)["gpu.nvidia.com"]
    taint = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}
    assert all(each["taints"] == [taint] for each in devices(made).values())


@pytest.mark.parametrize(
    ("numbers", "value", "effect"), [((31,), "31", "None"), ((79,), "79", "NoSchedule"), ((31, 79), "79", "NoSchedule")]
)
def test_an_xid_on_a_healthy_device_has_a_taint(numbers, value, effect):
    spec = file({"resource": "nvidia.com/gpu", "virtual": {"preset": "t4", "count": 2}})
    faults = ActiveFaults(tuple((rule(xid=number), frozenset({slot(spec, 1)})) for number in numbers))
    plan = desired_state(world(spec, faults=faults))
    assert [[], [("gpu.nvidia.com/xid", value, effect)]] == [
        [(taint.key, taint.value, taint.effect) for taint in each.taints]
        for each in plan.pools["gpu.nvidia.com"].devices
    ]
    assert [*numbers] == [each.number for each in plan.xids[slot(spec, 1)]]


def slot(spec, index):
    ((driver, offered),) = inventory(spec, NODE).claimable.items()
    return driver, offered.slots[index].id


@pytest.mark.parametrize("kind", ["timeSlicing", "mps"])
def test_a_device_stays_shared_and_lost_while_claims_have_shares(kind):
    """The scheduler counts shares and whole devices separately, so a whole device would look free."""
    sharing = {kind: {"resources": [{"name": "acme.dev/npu", "replicas": 4}]}}
    entry = {"virtual": {"count": 2, "memory": "8Gi"}}
    whole = file(entry)
    before = desired_state(world(file(entry, sharing=sharing))).pools
    claimed = {"acme.dev": {"e0-0": None}}
    kept = desired_state(world(whole, pools=before, claimed=claimed)).pools
    assert [("e0-1", False, ()), ("e0-0", True, ("acme.dev/lost",))] == [
        (each.name, each.shared, tuple(taint.key for taint in each.taints)) for each in kept["acme.dev"].devices
    ]
    assert kept["acme.dev"].by_name["e0-0"].health.healthy
    assert before["acme.dev"].by_name["e0-0"].capacity == kept["acme.dev"].by_name["e0-0"].capacity
    assert kept == desired_state(world(whole, pools=kept, claimed=claimed)).pools
    written = {name: record(kept["acme.dev"], each) for name, each in kept["acme.dev"].by_name.items() if each.lost}
    (restarted,) = (each for each in pools(whole, claimed={"acme.dev": written})["acme.dev"].devices if each.shared)
    assert (kept["acme.dev"].by_name["e0-0"].taints, True) == (restarted.taints, restarted.health.healthy)
    assert before == desired_state(world(file(entry, sharing=sharing), pools=kept, claimed=claimed)).pools
    assert pools(whole) == desired_state(world(whole, pools=kept)).pools


def test_a_claimed_device_keeps_its_name():
    gpu = {"resource": "nvidia.com/gpu", "virtual": {"preset": "t4", "count": 1}}
    both, one = file(gpu, {**gpu, "name": "last"}), file({**gpu, "name": "last"})
    before = pools(both)
    device = before["gpu.nvidia.com"].by_name["gpu-0"].device
    after = pools(one, pools=before, claimed={"gpu.nvidia.com": {"gpu-0": None}})["gpu.nvidia.com"]
    assert device.id == after.by_name["gpu-0"].device.id
    assert 1 == len(after.devices)


def test_partitions_that_overlap_a_claimed_one_are_not_offered():
    gpu = {"resource": "nvidia.com/gpu", "virtual": {"preset": "a30", "count": 1}}
    before = pools(file({**gpu, "partitions": {"0": ["1g.6gb", "1g.6gb", "2g.12gb"]}}))
    held = next(name for name in before["gpu.nvidia.com"].by_name if "1g6gb" in name and name.endswith("-0"))
    after = pools(
        file({**gpu, "partitions": {"0": ["2g.12gb", "2g.12gb"]}}),
        pools=before,
        claimed={"gpu.nvidia.com": {held: None}},
    )["gpu.nvidia.com"]
    assert [False, True] == [each.lost for each in after.devices]
    assert range(2, 4) == after.devices[0].device.slices


# --- limits ----------------------------------------------------------------------------------------------------------


def test_counters_are_in_separate_slices():
    made = pool(
        {"resource": "nvidia.com/gpu", "virtual": {"preset": "a30", "count": 9}, "dra": {"partitions": "dynamic"}}
    )
    apart = cutting.objects(made, NODE)
    assert [8, 1, 0, 0] == [len(each["spec"].get("sharedCounters", ())) for each in apart]
    check_pool(apart)


# --- any layout ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b-1", "model", "Cores", "x" * 40, "1st", "driver.version", "é", "pciBusID", "type", "-"])
KNOWN = st.sampled_from(["", "x" * 80, "7", "-1", "007", "true", "é" * 40, "0000:3b:00.0", "2.0"])
VALUES = KNOWN | st.text("aZ9. -_:é", max_size=9)
TAINTS = st.sampled_from(["none", "NoSchedule", "NoExecute"])
CUT = ["a100-sxm4-40gb", "h100-sxm5-80gb", "a30", "dgx-a100"]
OTHERS = ["t4", "mi300x", "tpu-v5e-8", "gaudi2"]


@st.composite
def entries(draw, number):
    preset = draw(st.none() | st.sampled_from([*CUT, *OTHERS]))
    dynamic = draw(st.booleans())
    virtual = {"attributes": draw(st.dictionaries(NAMES, VALUES, max_size=40))}
    if preset:
        virtual["preset"] = preset
    virtual["count"] = draw(st.integers(1, 1 if (preset or "").endswith("-8") else 8))
    if preset is None:
        virtual["count"] = draw(st.sampled_from([1, 3, 130]))
        virtual["memory"] = draw(st.sampled_from([0, 1, 2**20, "1000", "5Gi", "3G"]))
        slices = draw(st.integers(1, 4))
        virtual["partitioning"] = {
            "slices": slices,
            "profiles": {
                f"{size}x.{size}gb": {"slices": size, "memory": f"{size}G", "max": draw(st.integers(1, 3))}
                for size in draw(st.lists(st.integers(1, slices), unique=True, min_size=1))
            },
        }
    can_be_dynamic = preset is None or preset in CUT
    entry = {
        "name": f"e.{number}",
        "resource": draw(st.sampled_from(["acme.dev/npu", "acme.dev/Other.thing_x", "nvidia.com/gpu", "amd.com/gpu"])),
        "virtual": virtual,
        "advertise": draw(st.sampled_from([["dra"], ["device-plugin", "dra"]])),
        "dra": {
            "partitions": "dynamic" if dynamic and can_be_dynamic else "static",
            "taints": {"unhealthy": draw(TAINTS), "lost": draw(TAINTS)},
            "attributes": draw(
                st.dictionaries(
                    st.sampled_from(["a", "b", "acme.dev/a", "example.org/b", "type"]),
                    st.sampled_from(["x", "{index}", "{memory.bytes}", "{id}{id}{id}", 3, False, {"version": "1.2.3"}]),
                    max_size=2,
                )
            ),
        },
    }
    if preset in CUT and preset != "a30" and not dynamic and draw(st.booleans()):
        entry["partitions"] = {"all": "all-balanced"}
    return entry


@st.composite
def files(draw):
    made = [draw(entries(number)) for number in range(draw(st.integers(1, 3)))]
    tree = {"devices": made, "flags": {"mpsRoot": "/run/mps"}}
    if draw(st.booleans()):
        rules = [
            {"name": draw(st.sampled_from(["acme.dev/npu", "nvidia.com/gpu"])), "replicas": draw(st.integers(2, 9))}
        ]
        tree["sharing"] = {draw(st.sampled_from(["timeSlicing", "mps"])): {"resources": rules}}
    return tree


def loaded(tree):
    try:
        return config.load_text(json.dumps(tree)).spec
    except ConfigError:
        return None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data(), files())
def test_any_file_has_valid_slices(data, tree):
    """With any unhealthy, removed or shared devices, slices are valid and deterministic."""
    spec = loaded(tree)
    if spec is None:
        return
    base = inventory(spec, NODE)
    keys = [(driver, each.id) for driver, offered in base.claimable.items() for each in offered.slots]
    some = st.lists(st.sampled_from(keys), max_size=5) if keys else st.just([])
    sick, away = rule(health="Unhealthy", reason="dead"), rule(remove=True)
    active_faults = ActiveFaults(tuple((each, frozenset(data.draw(some))) for each in (sick, away)))
    before = desired_state(ObservedState(spec=spec, node=NODE, inventory=base))
    plan = desired_state(
        ObservedState(spec=spec, node=NODE, inventory=base, previous=before.as_previous(), faults=active_faults)
    )
    fresh = desired_state(ObservedState(spec=spec, node=NODE, inventory=inventory(spec, NODE), faults=active_faults))
    assert plan.pools == fresh.pools
    for each in (*before.pools.values(), *plan.pools.values()):
        documents = cutting.objects(each, NODE)
        sets, written = check_pool(documents)
        assert [*documents] == json.loads(json.dumps(documents))
        assert each.by_name.keys() == written.keys()
        assert each.counters.keys() == sets.keys()


@settings(deadline=None)
@given(st.data(), st.sampled_from(CUT[:3]))
def test_counters_in_slices_admit_exactly_the_possible_layouts(data, preset):
    """This checks the written objects."""
    spec = file({"resource": "nvidia.com/gpu", "virtual": {"preset": preset}, "dra": {"partitions": "dynamic"}})
    made = pools(spec)["gpu.nvidia.com"]
    sets, written = check_pool(cutting.objects(made, NODE))
    names = data.draw(st.lists(st.sampled_from(sorted(written)), unique=True, max_size=8))
    geometry = spec.entries[0].geometry
    chosen = [made.by_name[name].device for name in names]
    parts = [f"{each.profile}@{each.slices.start}" for each in chosen if each.is_partition]
    try:
        place(geometry, parts)
        possible = len(chosen) == len(parts) or len(chosen) == 1
    except LayoutError:
        possible = False
    assert possible == fits(sets, [written[name] for name in names])


def test_every_preset_can_be_published():
    spec = file(*({"virtual": {"preset": name}, "resource": f"e{n}.dev/x"} for n, name in enumerate(preset_names())))
    for each in pools(spec).values():
        check_pool(cutting.objects(each, NODE))
