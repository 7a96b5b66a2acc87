"""How an entry is advertised: the keys `advertise` and `dra`."""

import pytest

from tests.kit.refused import check_refusals, refusals
from vdev import config
from vdev.model.dra import DraPartitions, TaintPolicy, Version
from vdev.model.template import parse

ENTRY = "devices:\n- name: a\n  resource: example.com/a\n  virtual: {attributes: {m: x}}\n  "
CUT = (
    "devices:\n- name: a\n  resource: example.com/a\n"
    "  virtual: {partitioning: {slices: 2, profiles: {half: {slices: 1, memory: 1Gi}}}}\n  "
)


def loaded(text):
    return config.load_text(text, "f")


def entry(text):
    (only,) = loaded(text).spec.entries
    return only


def test_the_default_driver_is_the_vendors_or_the_resources_domain(subtests):
    cases = [
        ("nvidia.com/gpu", "a100-sxm4-40gb", "gpu.nvidia.com"),
        ("example.com/gpu", "dgx-h100", "gpu.nvidia.com"),
        ("amd.com/gpu", "mi300x", "gpu.amd.com"),
        ("google.com/tpu", "tpu-v5e", "google.com"),
        ("nvidia.com/other", "", "nvidia.com"),
    ]
    for resource, preset, driver in cases:
        with subtests.test(resource=resource):
            virtual = f"{{preset: {preset}}}" if preset else "{}"
            text = f"devices: [{{name: a, resource: {resource}, virtual: {virtual}, advertise: dra%s}}]"
            assert driver == entry(text % "").dra.driver
            assert "mine.dev" == entry(text % ", dra: {driver: mine.dev}").dra.driver


def test_every_key():
    found = entry(
        CUT + "advertise: dra\n  dra:\n    partitions: dynamic\n    taints: {unhealthy: none, lost: NoExecute}\n"
        "    attributes: {cooling: liquid, example.org/rack: 7, on: true, quoted: '7', fw: {version: 1.2.3-rc.1}, "
        "n: 'x{index}'}\n"
    ).dra
    assert DraPartitions.DYNAMIC is found.partitions
    assert (TaintPolicy.NONE, TaintPolicy.NO_EXECUTE) == (found.taints.unhealthy, found.taints.lost)
    assert {
        "cooling": parse("liquid"),
        "example.org/rack": 7,
        "on": True,
        "quoted": parse("7"),
        "fw": Version(version="1.2.3-rc.1"),
        "n": parse("x{index}"),
    } == found.attributes


def test_errors(subtests):
    cases = [
        ("advertise: []", "the list is empty"),
        ("advertise: [dar]", "'dar' is not allowed here; did you mean 'dra'? expected device-plugin or dra"),
        ("dra: {}", "f:5:3: devices[0].dra: a is not advertised by dra, so dra has no effect; set advertise to [dra]"),
        ("advertise: device-plugin\n  dra: {driver: a.b}", "a is not advertised by dra"),
        ("advertise: dra\n  dra: {driver: A.b}", "'A.b' is not the name of a driver"),
        (f"advertise: dra\n  dra: {{driver: {'a' * 64}}}", "has 64 characters; the name of a driver has at most 63"),
        (
            "advertise: dra\n  dra: {partitions: dynamic}",
            "devices[0].dra.partitions: these devices cannot be partitioned",
        ),
        (
            "advertise: dra\n  dra: {taints: {lost: None}}",
            "'None' is not allowed here; did you mean 'none'? expected none, NoSchedule",
        ),
        (
            "advertise: dra\n  dra: {attributes: {a-b: x}}",
            "'a-b' is not the name of an attribute: 'a-b' may hold letters",
        ),
        ("advertise: dra\n  dra: {attributes: {A.b/a: x}}", "'A.b' before '/' is not a DNS name"),
        (f"advertise: dra\n  dra: {{attributes: {{{'a' * 33}: x}}}}", "has 33 characters; at most 32 are allowed"),
        ("advertise: dra\n  dra: {attributes: {a: 1.5}}", 'got the number 1.5; write it in quotes: "1.5"'),
        (
            "advertise: dra\n  dra: {attributes: {a: [x]}}",
            "expected a string, a whole number, true, false, or {version",
        ),
        (
            f"advertise: dra\n  dra: {{attributes: {{a: {'é' * 33}}}}}",
            "has 66 bytes; a string in a ResourceSlice has at",
        ),
        ("advertise: dra\n  dra: {attributes: {a: '{idx}'}}", "unknown placeholder {idx}"),
        ("advertise: dra\n  dra: {attributes: {a: '{attributes.q}'}}", "unknown attribute 'q'"),
        ("advertise: dra\n  dra: {attributes: {a: {version: 580.95.05}}}", "'580.95.05' is not a version: it is three"),
        (
            "advertise: dra\n  dra: {attributes: {a: {version: v1.2.3}}}",
            "attributes.a.version: 'v1.2.3' is not a version",
        ),
        ("advertise: dra\n  dra: {attributes: {a: {version: 1.2}}}", "expected a string, and 1.2 unquoted is a number"),
    ]
    check_refusals(subtests, cases, f"{ENTRY}@")


def test_errors_in_capacity(subtests):
    cases = [
        ("{x: much}", "dra.capacity.x: 'much' is not an amount; expected a whole number, or a number with Ki"),
        ("{x: {value: 1.5}}", "dra.capacity.x.value: '1.5' is not a whole number"),
        ("{x: {value: 4, requestPolicy: {}}}", "dra.capacity.x.requestPolicy: 'default' is missing"),
        ("{x: {value: 4, requestPolicy: {default: 5}}}", "dra.capacity.x: the default is more than the"),
        (
            "{x: {value: 4, requestPolicy: {default: 1, validValues: [2, 3]}}}",
            "ascending order, and contain the default",
        ),
        ("{x: {value: 4, requestPolicy: {default: 1, validValues: [1, 3, 2]}}}", "validValues are at most 10, in asc"),
        (
            "{x: {value: 4, requestPolicy: {default: 1, validValues: [1, 5]}}}",
            "a valid value is more than the capacity",
        ),
        (
            "{x: {value: 4, requestPolicy: {default: 1, validValues: [1], validRange: {min: 1}}}}",
            "validValues and validRange exclude each other",
        ),
        (
            "{x: {value: 4, requestPolicy: {default: 1, validRange: {min: 2}}}}",
            "expected min <= default <= max <= value",
        ),
        (
            "{x: {value: 4, requestPolicy: {default: 2, validRange: {min: 1, step: 2}}}}",
            "default and max must be a whole number of steps from min",
        ),
        ("{x: {value: 4, requestPolicy: {default: 1, validRange: {min: 1, step: 0}}}}", "the step must be more than 0"),
        (
            "{x: {value: 4, requestPolicy: {default: 4, validRange: {min: 4, step: 1}}}}",
            "min and one step are more than the capacity",
        ),
        (f"{{{', '.join(f'x{number}: 1' for number in range(17))}}}", "17 capacities; at most 16 can be given"),
    ]
    check_refusals(subtests, cases, f"{ENTRY}advertise: dra\n  dra: {{capacity: @}}")


def test_dynamic_partitions_exclude_shared_capacity():
    policy = "{value: 4, requestPolicy: {default: 1}}"
    (said,) = refusals(f"{CUT}advertise: dra\n  dra: {{partitions: dynamic, capacity: {{x: {policy}, y: 1}}}}")
    assert "dra.capacity.x.requestPolicy: claims do not share devices whose partitions are dynamic" in said


def test_devices_with_one_mode_have_no_dynamic_partitions():
    said = "{name: a, resource: amd.com/gpu, virtual: {preset: mi300x}, advertise: dra, dra: {partitions: dynamic}}"
    (said,) = refusals(f"devices: [{said}]")
    assert "which the counters of ResourceSlices cannot express; use static" in said


@pytest.mark.parametrize(
    "said",
    [
        "{preset: h100-sxm5-80gb}, dra: {partitions: dynamic, migEnabled: true}",
        "{preset: a100-sxm4-40gb}, dra: {migEnabled: true}",
        "{partitioning: {slices: 1, profiles: {h: {slices: 1, memory: 1}}}}, "
        "dra: {partitions: dynamic, migEnabled: true}",
    ],
)
def test_mig_enabled_is_for_ampere_with_dynamic_partitions(said):
    (said,) = refusals(f"devices: [{{name: a, resource: nvidia.com/gpu, advertise: dra, virtual: {said}}}]")
    assert "dra.migEnabled: has no effect here: it is for NVIDIA's Ampere presets with partitions: dynamic" in said


@pytest.mark.parametrize(("slices", "fits"), [(31, True), (32, False)])
def test_a_resource_slice_has_at_most_32_counters(slices, fits):
    """There is one for each memory slice and one for the limit of the profile."""
    cut = f"{{partitioning: {{slices: {slices}, profiles: {{one: {{slices: 1, memory: 1, max: 2}}}}}}}}"
    said = f"{{name: a, resource: a.b/c, virtual: {cut}, advertise: dra, dra: {{partitions: dynamic}}}}"
    if fits:
        assert () == loaded(f"devices: [{said}]").problems
    else:
        (problem,) = refusals(f"devices: [{said}]")
        assert "need 33 counters for their slices and limits, and a ResourceSlice has 32; use static" in problem


def test_a_device_in_both_apis_is_a_warning():
    (said,) = loaded(f"{ENTRY}advertise: [device-plugin, dra]").problems
    assert not said.is_error
    assert "a pod that asks for example.com/a as an extended resource is served by the device plugin" in said.message
