"""Whole label sets like those of GPU Feature Discovery: by strategy, layout, sharing and model."""

import pytest

from vdev.config.presets import preset_names
from vdev.node.vendor_labels import Machine

NODE = {
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.driver-version.minor": "95",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.driver.major": "580",
    "nvidia.com/cuda.driver.minor": "95",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/cuda.runtime-version.major": "13",
    "nvidia.com/cuda.runtime-version.minor": "0",
    "nvidia.com/cuda.runtime.major": "13",
    "nvidia.com/cuda.runtime.minor": "0",
    "nvidia.com/gpu.machine": "Model-7",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
}
AMPERE = {
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
}
MIG = {"nvidia.com/mig.capable": "true"}
A100 = "NVIDIA-A100-SXM4-40GB"
POOL = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}


def whole(product=A100, *, count=2, replicas=1, strategy="none", memory=40960):
    return {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": strategy,
        "nvidia.com/gpu.memory": str(memory),
    }


def partition(profile, count, *, resource="gpu", replicas=1, strategy="none", shared=""):
    memory, slices, processors, copy, decoder, jpeg, ofa = {
        "1g.5gb": (4864, 1, 14, 1, 0, 0, 0),
        "1g.5gb.me": (4864, 1, 14, 1, 1, 1, 1),
        "2g.10gb": (9856, 2, 28, 2, 1, 0, 0),
        "3g.20gb": (19968, 3, 42, 3, 2, 0, 0),
    }[profile]
    key = f"nvidia.com/{resource}"
    return {
        f"{key}.product": f"{A100}-MIG-{profile}{shared}",
        f"{key}.count": str(count),
        f"{key}.replicas": str(replicas),
        f"{key}.sharing-strategy": strategy,
        f"{key}.memory": str(memory),
        f"{key}.multiprocessors": str(processors),
        f"{key}.slices.gi": str(slices),
        f"{key}.slices.ci": str(slices),
        f"{key}.engines.copy": str(copy),
        f"{key}.engines.decoder": str(decoder),
        f"{key}.engines.encoder": "0",
        f"{key}.engines.jpeg": str(jpeg),
        f"{key}.engines.ofa": str(ofa),
    }


def mig(profile, count, **more):
    return partition(profile, count, resource=f"mig-{profile}", **more)


def strategy(name):
    return {"nvidia.com/mig.strategy": name}


INVALID = {
    "nvidia.com/gpu.product": f"{A100}-MIG-INVALID",
    "nvidia.com/gpu.count": "0",
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/gpu.sharing-strategy": "",
    "nvidia.com/gpu.memory": "0",
}
CUT = whole(replicas=0)
UNIFORM = '{all: ["2g.10gb", "2g.10gb", "2g.10gb"]}'
VARIED = '{"0": ["1g.5gb", "1g.5gb+me", "3g.20gb"], "1": ["1g.5gb"]}'
HALF = '{"0": ["3g.20gb", "3g.20gb"]}'
EMPTY = '{"0": []}'
NONE, SLICED, RENAMED, DEFAULT, MPS = (
    "{}",
    "{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
    "{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, rename: nvidia.com/gpu.part}]}}",
    "{timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
    "{mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
)
OF_1G = "{timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 3}]}}"
TIME = POOL | {
    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
}
SHARED = whole(f"{A100}-SHARED", replicas=4, strategy="time-slicing")
RENAMED_LABELS = whole(replicas=4, strategy="time-slicing")


def size(profile):
    return POOL | {"cloud.google.com/gke-gpu-partition-size": profile}


@pytest.mark.parametrize(
    ("flag", "partitions", "sharing", "expected"),
    [
        # none: whole devices, partitioned or not
        ("none", "{}", NONE, whole() | POOL),
        ("none", "{}", SLICED, SHARED | TIME),
        ("none", "{}", RENAMED, RENAMED_LABELS | TIME),
        ("none", "{}", DEFAULT, RENAMED_LABELS | TIME),
        (
            "none",
            "{}",
            MPS,
            whole(f"{A100}-SHARED", replicas=4, strategy="mps")
            | {"nvidia.com/mps.capable": "true"}
            | TIME
            | {"cloud.google.com/gke-gpu-sharing-strategy": "mps"},
        ),
        ("none", UNIFORM, NONE, CUT | size("2g.10gb")),
        ("none", UNIFORM, SLICED, CUT | size("2g.10gb")),
        ("none", HALF, SLICED, SHARED | POOL),  # an unpartitioned device determines the labels of its model
        ("none", EMPTY, NONE, whole() | POOL),
        # single: partitions count as devices, unless the layouts are invalid
        ("single", "{}", NONE, whole() | POOL | strategy("single")),
        ("single", "{}", SLICED, SHARED | TIME | strategy("single")),
        ("single", UNIFORM, NONE, partition("2g.10gb", 6) | size("2g.10gb") | strategy("single")),
        (
            "single",
            UNIFORM,
            SLICED,
            partition("2g.10gb", 6, replicas=4, strategy="time-slicing", shared="-SHARED")
            | size("2g.10gb")
            | TIME
            | strategy("single"),
        ),
        (
            "single",
            UNIFORM,
            RENAMED,
            partition("2g.10gb", 6, replicas=4, strategy="time-slicing") | size("2g.10gb") | TIME | strategy("single"),
        ),
        ("single", VARIED, NONE, INVALID | POOL | strategy("single")),
        ("single", HALF, NONE, INVALID | POOL | strategy("single")),
        ("single", '{"0": [], "1": ["2g.10gb"]}', SLICED, INVALID | POOL | strategy("single")),
        ("single", "{all: []}", NONE, INVALID | POOL | strategy("single")),
        # mixed: partitions in addition to devices
        ("mixed", "{}", NONE, whole() | POOL | strategy("mixed")),
        ("mixed", "{}", SLICED, SHARED | TIME | strategy("mixed")),
        ("mixed", UNIFORM, NONE, CUT | mig("2g.10gb", 6) | size("2g.10gb") | strategy("mixed")),
        ("mixed", HALF, NONE, whole() | mig("3g.20gb", 2) | POOL | strategy("mixed")),
        ("mixed", HALF, SLICED, SHARED | mig("3g.20gb", 2) | POOL | strategy("mixed")),
        (
            "mixed",
            VARIED,
            OF_1G,
            CUT
            | mig("1g.5gb", 2, replicas=3, strategy="time-slicing", shared="-SHARED")
            | mig("1g.5gb.me", 1)
            | mig("3g.20gb", 1)
            | POOL
            | strategy("mixed"),
        ),
        ("mixed", "{all: []}", NONE, CUT | POOL | strategy("mixed")),
    ],
)
def test_one_model(labels, flag, partitions, sharing, expected):
    text = f"""
node: {{labels: true}}
flags: {{migStrategy: {flag}, mpsRoot: /run/mps}}
sharing: {sharing}
devices:
- name: a
  resource: nvidia.com/gpu
  virtual: {{preset: a100-sxm4-40gb, count: 2, attributes: {{gkeAccelerator: nvidia-tesla-a100}}}}
  partitions: {partitions}
"""
    found = labels(text)
    assert () == found.problems
    assert NODE | MIG | AMPERE | expected == dict(found.values)


def test_labels_of_gke_need_an_attribute(subtests, labels):
    """With such labels, an autoscaler would treat the node as one of GKE."""
    for preset in [name for name in preset_names() if not name.startswith("tpu")]:
        with subtests.test(preset=preset):
            entry = f"{{name: a, resource: nvidia.com/gpu, virtual: {{preset: {preset}}}}}"
            found = labels(f"node: {{labels: true}}\ndevices: [{entry}]").values
            assert not [key for key in found if key.startswith("cloud.google.com")]


TWO = """
node: {{labels: true}}
flags: {{migStrategy: {flag}}}
devices:
- {{name: {names[0]}, resource: nvidia.com/gpu, virtual: {{preset: {presets[0]}, count: {counts[0]}}}{more[0]}}}
- {{name: {names[1]}, resource: nvidia.com/gpu, virtual: {{preset: {presets[1]}, count: {counts[1]}}}{more[1]}}}
"""


def two(flag, *entries):
    presets, counts, more = zip(*entries, strict=True)
    return TWO.format(flag=flag, names="ab", presets=presets, counts=counts, more=more)


def test_single_with_two_models(labels):
    """The same profile on two models counts together, under the name of the first. Two profiles are invalid."""
    cut = ', partitions: {all: ["1g.10gb"]}'
    found = labels(two("single", ("a100-sxm4-80gb", 1, cut), ("h100-sxm5-80gb", 1, cut))).values
    assert ("2", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb") == (
        found["nvidia.com/gpu.count"],
        found["nvidia.com/gpu.product"],
    )
    found = labels(two("single", ("a100-sxm4-40gb", 1, ', partitions: {all: ["1g.5gb"]}'), ("t4", 1, ""))).values
    assert f"{A100}-MIG-INVALID" == found["nvidia.com/gpu.product"]


ONE = "node: {labels: true}\ndevices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: t4, count: 3%s}}]"


def test_timestamp_and_machine(labels):
    found = labels(ONE % "", machine=Machine("  ACME (R) Server\t9 ", 1700000000)).values
    assert ("1700000000", "ACME-R-Server9") == (found["nvidia.com/gfd.timestamp"], found["nvidia.com/gpu.machine"])
    assert "unknown" == labels(ONE % "", machine=Machine()).values["nvidia.com/gpu.machine"]
    dgx = labels("node: {labels: true}\ndevices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: dgx-h100}}]")
    assert "DGXH100" == dgx.values["nvidia.com/gpu.machine"]


FAMILIES = {
    "3.5": "kepler",
    "7.0": "volta",
    "7.5": "turing",
    "8.6": "ampere",
    "8.9": "ada-lovelace",
    "9.0": "hopper",
    "10.0": "blackwell",
    "12.0": "blackwell",
    "13.0": "rubin",
    "11.0": "undefined",
}
MODES = {"0x0300": "graphics", "0x030200": "compute", "0x1200": "unknown"}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("machine: My Box", {"gpu.machine": "My-Box"}),
        (
            'driverVersion: "570.86", cudaVersion: "12.8"',
            {
                "cuda.driver-version.full": "570.86",
                "cuda.driver-version.revision": "",
                "cuda.driver.rev": "",
                "cuda.runtime.minor": "8",
            },
        ),
        (
            'driverVersion: "570.86.10"',
            {"cuda.driver.major": "570", "cuda.driver.rev": "10", "cuda.runtime-version.full": "13.0"},
        ),
        *((f'computeCapability: "{version}"', {"gpu.family": family}) for version, family in FAMILIES.items()),
        pytest.param(
            "computeCapability: '7." + 5000 * "9" + "'", {"gpu.family": None}, id="a version with many digits"
        ),
        *((f'pciClass: "{number}"', {"gpu.mode": mode}) for number, mode in MODES.items()),
    ],
)
def test_labels_of_attributes(labels, attributes, expected):
    found = labels(ONE % f", attributes: {{{attributes}}}")
    assert () == found.problems
    assert expected == {key: found.values.get(f"nvidia.com/{key}") for key in expected}
