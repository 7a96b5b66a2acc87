"""The DeviceClasses of a file."""

import json

from vdev import config
from vdev.dra.device_classes import device_classes


def made(*entries, **how):
    named = [
        {"name": f"e{number}", "resource": "acme.dev/npu", "advertise": "dra", "virtual": {}, **entry}
        for number, entry in enumerate(entries)
    ]
    classes, problems = device_classes(config.load_text(json.dumps({"devices": named})).spec, **how)
    return {each.name: each for each in classes}, [each.message for each in problems]


def shown(classes):
    return [(each.name, each.type, each.resource) for each in classes.values()]


def test_classes_of_nvidia():
    gpu = {"resource": "nvidia.com/gpu", "virtual": {"preset": "a30"}}
    classes, problems = made(gpu, gpu)
    assert [
        ("gpu.nvidia.com", "gpu", "nvidia.com/gpu"),
        ("mig.nvidia.com", "mig", ""),
        ("vfio.gpu.nvidia.com", "vfio", ""),
    ] == shown(classes)
    assert [] == problems
    assert {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {
            "selectors": [
                {
                    "cel": {
                        "expression": "device.driver == 'gpu.nvidia.com' && "
                        "device.attributes['gpu.nvidia.com'].type == 'gpu'"
                    }
                }
            ],
            "extendedResourceName": "nvidia.com/gpu",
        },
    } == classes["gpu.nvidia.com"].document


def test_class_of_amd():
    classes, _ = made({"resource": "amd.com/gpu", "virtual": {"preset": "mi300x"}})
    assert "device.driver == 'gpu.amd.com'" == classes["gpu.amd.com"].expression
    assert [("gpu.amd.com", "", "")] == shown(classes)


def test_other_vendors_have_a_class_for_each_resource():
    cut = {"partitioning": {"slices": 2, "profiles": {"half": {"slices": 1, "memory": 1}}}}
    classes, _ = made(
        {},
        {},
        {"resource": "acme.dev/Big_one", "virtual": cut, "dra": {"partitions": "dynamic", "extendedResource": True}},
    )
    assert [
        ("npu.acme.dev", "npu", ""),
        ("big-one.acme.dev", "Big_one", "acme.dev/Big_one"),
        ("big-one-partition.acme.dev", "Big_one-partition", ""),
    ] == shown(classes)


def test_an_option_adds_extended_resources_to_all_classes():
    classes, _ = made({}, extended=True)
    assert [("npu.acme.dev", "npu", "acme.dev/npu")] == shown(classes)


def test_entries_without_dra_have_no_class():
    assert ({}, []) == made({"advertise": "device-plugin"})


def test_one_class_for_two_resources_is_a_problem():
    driver = {"driver": "x.dev"}
    _, (said,) = made({"dra": driver}, {"resource": "other.dev/npu", "dra": driver}, extended=True)
    assert "the DeviceClass npu.x.dev of several entries stands for acme.dev/npu, and not for other.dev/npu" == said
