"""Whole label sets of AMD, Intel and Google."""

import pytest

HEAD = "node: {labels: true}\n"


def amd(mode="spx_nps1", *, count=1, memory=192, units=304, product="AMD_Instinct_MI300X", gpus=1):
    counted = {
        "family.AI": count,
        "device-id.74a1": gpus,
        f"product-name.{product}": count,
        f"vram.{memory}G": count,
        f"simd-count.{4 * units}": count,
        f"cu-count.{units}": count,
    }
    plain = {
        key: value
        for each in counted
        for kind, _, value in [each.partition(".")]
        for key in (f"amd.com/gpu.{kind}", f"beta.amd.com/gpu.{kind}")
    }
    return {
        **{f"beta.amd.com/gpu.{key}": str(number) for key, number in counted.items()},
        **plain,
        "amd.com/gpu.compute-memory-partition": mode,
        "amd.com/gpu.compute-partitioning-supported": "true",
        "amd.com/gpu.memory-partitioning-supported": "true",
    }


@pytest.mark.parametrize(
    ("strategy", "partitions", "expected"),
    [
        ("none", "{}", amd(count=8, gpus=8)),
        ("single", "{}", amd(count=8, gpus=8)),
        ("none", "{all: cpx_nps4}", amd(count=8, gpus=8)),
        ("single", "{all: cpx_nps4}", amd("cpx_nps4", count=64, memory=24, units=38, gpus=8)),
        ("mixed", "{all: dpx_nps2}", amd("dpx_nps2", count=16, memory=96, units=152, gpus=8)),
    ],
)
def test_amd_gpus_in_one_mode(labels, strategy, partitions, expected):
    """A partition counts as a device; only the PCI id belongs to the GPU."""
    text = (
        f"{HEAD}flags: {{migStrategy: {strategy}}}\n"
        f"devices: [{{name: a, resource: amd.com/gpu, virtual: {{preset: mi300x-8}}, partitions: {partitions}}}]"
    )
    found = labels(text)
    assert () == found.problems
    assert expected == dict(found.values)


def test_amd_gpus_in_two_modes(labels):
    """Every value is counted under both prefixes, and the node has no mode."""
    text = (
        f"{HEAD}flags: {{migStrategy: mixed}}\ndevices: [{{name: a, resource: amd.com/gpu, "
        "virtual: {preset: mi300x, count: 2}, partitions: {'1': cpx_nps4}}]"
    )
    one = amd(count=9, gpus=2)
    gone = {f"{prefix}amd.com/gpu.{kind}" for prefix in ("", "beta.") for kind in ("vram", "simd-count", "cu-count")}
    several = {
        f"{prefix}amd.com/gpu.{kind}": str(count)
        for prefix in ("", "beta.")
        for kind, count in {
            "vram.192G": 1,
            "vram.24G": 8,
            "simd-count.1216": 1,
            "simd-count.152": 8,
            "cu-count.304": 1,
            "cu-count.38": 8,
        }.items()
    }
    expected = {key: value for key, value in one.items() if key not in gone} | several
    del expected["amd.com/gpu.compute-memory-partition"]
    assert expected == dict(labels(text).values)


INTEL = """{name: a, resource: gpu.intel.com/i915, virtual: {count: 2, attributes: {product: Flex_140,
family: Flex_Series, pciClass: "0x0380", pciDeviceId: "0x56C1"}}}, {name: b, resource: qat.intel.com/cy, virtual: {}}"""


def tpu(preset, accelerator, topology):
    labels = {"accelerator": accelerator, "topology": topology}
    entry = f"{{name: a, resource: google.com/tpu, virtual: {{preset: {preset}}}}}"
    return entry, {f"cloud.google.com/gke-tpu-{key}": value for key, value in labels.items()}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (  # the labels follow from attributes; parentheses and spaces are removed from product names
            "{name: a, resource: amd.com/gpu, virtual: {memory: 15900Mi, attributes: {model: Radeon (tm) Pro}}}",
            {
                "amd.com/gpu.product-name": "Radeon_tm_Pro",
                "beta.amd.com/gpu.product-name": "Radeon_tm_Pro",
                "beta.amd.com/gpu.product-name.Radeon_tm_Pro": "1",
                "amd.com/gpu.vram": "16G",
                "beta.amd.com/gpu.vram": "16G",
                "beta.amd.com/gpu.vram.16G": "1",
                "amd.com/gpu.compute-partitioning-supported": "false",
                "amd.com/gpu.memory-partitioning-supported": "false",
            },
        ),
        (
            INTEL,
            {
                "intel.feature.node.kubernetes.io/gpu": "true",
                "intel.feature.node.kubernetes.io/qat": "true",
                "gpu.intel.com/device.count": "2",
                "gpu.intel.com/device-id.0380-56c1.present": "true",
                "gpu.intel.com/device-id.0380-56c1.count": "2",
                "gpu.intel.com/product": "Flex_140",
                "gpu.intel.com/family": "Flex_Series",
            },
        ),
        ("{name: a, resource: habana.ai/gaudi, virtual: {preset: gaudi3}}", {}),
        tpu("tpu-v5e-1", "tpu-v5-lite-podslice", "1x1"),
        tpu("tpu-v5e-4", "tpu-v5-lite-podslice", "2x2"),
        tpu("tpu-v5e-8", "tpu-v5-lite-podslice", "2x4"),
        tpu("tpu-v6e-8", "tpu-v6e-slice", "2x4"),
    ],
)
def test_labels_of_a_vendor(labels, entries, expected):
    assert expected == dict(labels(f"{HEAD}devices: [{entries}]").values)


def test_real_devices_have_no_labels_of_vdev(labels):
    text = f"{HEAD}devices: [{{name: a, resource: amd.com/gpu, glob: /dev/null}}]"
    assert {} == labels(text, found={}).values
