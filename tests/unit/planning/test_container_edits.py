"""The edits of a container: those of NVIDIA, of other vendors, and of the entry itself."""

import itertools
from dataclasses import replace

import pytest

from vdev.errors import AllocationError, InvalidRequest
from vdev.model.device import DeviceNode, Mount
from vdev.model.entry import CDI_STRATEGIES, Container, DeviceIdStrategy, DeviceListStrategy, MigStrategy
from vdev.model.spec import SharingKind
from vdev.planning import allocation
from vdev.planning.allocation import cdi_documents, container_edits

ENVVAR, MOUNTS, ANNOTATIONS, CRI = DeviceListStrategy
GPU = "nvidia.com/gpu"
A, B = "GPU-gggg0", "GPU-gggg1"
KIND = "k8s.device-plugin.nvidia.com/gpu"


def edits(stock, name, *ids):
    return container_edits(stock.resources[name], allocation.allocate(stock.resources[name], ids))


@pytest.mark.parametrize("strategies", [(ENVVAR,), (MOUNTS,), (ANNOTATIONS,), (CRI,), (ENVVAR, CRI)])
def test_features_are_requested_with_every_strategy(build, strategies):
    """The variables for GPUDirect and similar features are for NVIDIA's devices only."""
    flags = {"gdrcopy_enabled": True, "gds_enabled": True, "mofed_enabled": True, "device_list_strategy": strategies}
    got = edits(build.inventory(build.entry(), **flags), GPU, A).env
    got.pop("NVIDIA_VISIBLE_DEVICES", None)
    assert {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled"} == got
    other = build.entry("npu", "acme.dev/npu", nvidia=False)
    assert "enabled" not in edits(build.inventory(other, **flags), "acme.dev/npu", "npu-0").env.values()
    assert "enabled" not in edits(build.inventory(build.entry()), GPU, A).env.values()


@pytest.mark.parametrize("prefix", ["cdi.k8s.io/", "cdi.acme.dev/"])
def test_cdi_annotations(build, prefix):
    """One key of the plugin has all names; the same request gives the same key."""
    stock = build.inventory(build.entry(), device_list_strategy=(ANNOTATIONS,), cdi_annotation_prefix=prefix)
    got = edits(stock, GPU, A, B)
    ((key, value),) = got.annotations.items()
    assert f"{KIND}={A},{KIND}={B}" == value
    assert key.startswith(f"{prefix}nvidia-device-plugin_")
    assert len(key.partition("/")[2]) <= 63
    assert ({}, got.annotations) == (got.env, edits(stock, GPU, A, B).annotations)


def test_replicas_of_one_device_give_it_once(build):
    sharing = build.sharing({"name": GPU, "replicas": 2})
    stock = build.inventory(build.entry(), sharing=sharing, device_list_strategy=(ENVVAR, CRI))
    got = edits(stock, GPU, f"{B}::1", f"{A}::0", f"{B}::0")
    assert f"{B},{A}" == got.env["NVIDIA_VISIBLE_DEVICES"]
    assert [f"{KIND}={B}", f"{KIND}={A}"] == got.cdi_devices


def test_partitions_by_index_and_their_kind(build):
    """Partitions have NVIDIA's two-part index, and the CDI class of whole devices."""
    stock = build.inventory(
        build.entry(count=1, partitions={0: ("1g.5gb", "1g.5gb")}),
        mig_strategy=MigStrategy.MIXED,
        device_id_strategy=DeviceIdStrategy.INDEX,
        device_list_strategy=(ENVVAR, CRI),
    )
    name = "nvidia.com/mig-1g.5gb"
    got = edits(stock, name, *build.ids(stock, name))
    assert ({"NVIDIA_VISIBLE_DEVICES": "0:0,0:1"}, [f"{KIND}=0:0", f"{KIND}=0:1"]) == (got.env, got.cdi_devices)


def test_names_of_other_vendors(build):
    """They are made from the resource's name."""
    entry = build.entry("acme", "acme.dev/npu", nvidia=False)
    got = edits(build.inventory(entry, device_list_strategy=(ENVVAR, CRI)), "acme.dev/npu", "acme-0")
    assert {"ACME_DEV_NPU_VISIBLE_DEVICES": "acme-0"} == got.env
    assert ["k8s.device-plugin.acme.dev/npu=acme-0"] == got.cdi_devices
    got = edits(build.inventory(entry, device_list_strategy=(MOUNTS,)), "acme.dev/npu", "acme-0")
    assert ["/var/run/vdev-container-devices/acme-0"] == list(got.mounts)


def node(path, container=None, permissions="rw"):
    return {"hostPath": path, "containerPath": container or path, "permissions": permissions}


@pytest.mark.parametrize(
    "strategies", [(ENVVAR,), (MOUNTS,), (ENVVAR, CRI), (CRI,), (ANNOTATIONS,), (ANNOTATIONS, CRI)]
)
def test_real_nodes_reach_the_container_under_every_strategy(build, strategies):
    """A node is in the answer; with CDI strategies only, it is in the CDI specification."""
    entry = build.entry("uart", "example.com/uart", nvidia=False, geometry=None, count=1)
    (raw,) = build.raws(entry)
    real = DeviceNode("/dev/ttyUSB0", "/dev/ttyUSB0")
    found = {"uart": (replace(raw, nodes=(real,), paths=("/dev/ttyUSB0",)),)}
    stock = build.inventory(entry, found=found, device_list_strategy=strategies)
    got = edits(stock, "example.com/uart", "uart-0")
    only_cdi = CDI_STRATEGIES.issuperset(strategies)
    assert ([] if only_cdi else [real]) == list(got.nodes.values())
    if not CDI_STRATEGIES.isdisjoint(strategies):
        ((_, document),) = cdi_documents(stock).items()
        assert {"path": "/dev/ttyUSB0", "permissions": "rw"} in document["devices"][0]["containerEdits"]["deviceNodes"]


@pytest.mark.parametrize("root", ["nvidia_dev_root", "nvidia_driver_root"])
def test_pass_device_specs_hands_out_the_drivers_nodes_once(build, root):
    """`passDeviceSpecs` adds the driver's nodes below the device root, without duplicates."""
    entry = build.entry()
    control = DeviceNode("/dev/nvidiactl", "/dev/nvidiactl")
    found = {
        "gpu": tuple(
            replace(raw, driver_nodes=(control, DeviceNode(own, own)))
            for raw, own in zip(build.raws(entry), ("/dev/nvidia0", "/dev/nvidia1"), strict=True)
        )
    }
    stock = build.inventory(entry, found=found, pass_device_specs=True, **{root: "/run/driver"})
    got = edits(stock, GPU, A, B)
    assert [
        ("/run/driver/dev/nvidiactl", "/dev/nvidiactl"),
        ("/run/driver/dev/nvidia0", "/dev/nvidia0"),
        ("/run/driver/dev/nvidia1", "/dev/nvidia1"),
    ] == [(each.host_path, each.container_path) for each in got.nodes.values()]
    stock = build.inventory(entry, found=found)
    assert {} == edits(stock, GPU, A).nodes


def container(**parts):
    return Container.model_validate({"deviceNodes" if key == "nodes" else key: each for key, each in parts.items()})


def test_values_are_joined_and_constants_appear_once(build):
    """Rendered values are joined with commas in allocation order."""
    block = container(
        env={"MEM": "{memory.mib}", "WHO": "{name}/{index}", "MODE": "fast"}, annotations={"acme.dev/ids": "{id}"}
    )
    entry = build.entry("acme", "acme.dev/npu", nvidia=False, container=block)
    got = edits(build.inventory(entry), "acme.dev/npu", "acme-1", "acme-0")
    assert {"MEM": "40960,40960", "WHO": "acme/1,acme/0", "MODE": "fast"}.items() <= got.env.items()
    assert {"acme.dev/ids": "acme-1,acme-0"} == got.annotations


@pytest.mark.parametrize(
    ("nodes", "ids", "both"),
    [
        ([node("/dev/a{index}", "/dev/acme")], ["acme-0", "acme-1"], "/dev/a0 and /dev/a1"),
        ([node("/dev/null", "/dev/acme"), node("/dev/zero", "/dev/acme")], ["acme-0"], "/dev/null and /dev/zero"),
    ],
)
def test_two_nodes_with_one_container_path_are_refused(build, nodes, ids, both):
    """They may be of two devices, or of one."""
    entry = build.entry("acme", "acme.dev/npu", nvidia=False, container=container(nodes=nodes))
    with pytest.raises(AllocationError, match=f"container path /dev/acme would be both {both}"):
        edits(build.inventory(entry), "acme.dev/npu", *ids)


def test_one_node_of_several_devices_appears_once_with_all_permissions(build):
    entry = build.entry("acme", "acme.dev/npu", nvidia=False, container=container(nodes=(node("/dev/kfd"),)))
    got = edits(build.inventory(entry), "acme.dev/npu", "acme-0", "acme-1")
    assert [DeviceNode("/dev/kfd", "/dev/kfd")] == list(got.nodes.values())


def test_mps_gives_each_container_its_share(build):
    """N replicas get n parts of the memory and of the threads."""
    sharing = build.sharing({"name": GPU, "replicas": 4}, kind=SharingKind.MPS)
    stock = build.inventory(build.entry(), sharing=sharing)
    got = edits(stock, GPU, f"{A}::0").env
    assert ("0=10240M", "25") == (got["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], got["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
    got = edits(stock, GPU, f"{A}::0", f"{A}::1").env
    assert ("0=20480M", "50") == (got["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], got["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])


def test_mounts_of_mps_come_before_the_device_list(build):
    """The order of the mounts is that of NVIDIA's plugin. The default mpsRoot is that of NVIDIA's Helm chart."""
    sharing = build.sharing({"name": GPU, "replicas": 4}, kind=SharingKind.MPS)
    stock = build.inventory(build.entry(), sharing=sharing, device_list_strategy=(MOUNTS,))
    got = edits(stock, GPU, f"{A}::0").mounts
    assert f"/run/nvidia/mps/{GPU}/pipe" == got[f"/mps/{GPU}/pipe"].host_path
    assert [f"/mps/{GPU}/pipe", "/dev/shm", f"/var/run/nvidia-container-devices/{A}"] == list(got)


def test_shared_requests_above_one_can_be_refused(build):
    """The error has NVIDIA's text, and concerns requests for replicas only."""
    rule = {"name": GPU, "replicas": 2, "devices": ("0",)}
    stock = build.inventory(build.entry(count=3), sharing=build.sharing(rule, fail_requests_greater_than_one=True))
    text = (
        'invalid allocation request for "nvidia.com/gpu": invalid request: '
        "maximum request size for shared resources is 1; found 2"
    )
    with pytest.raises(InvalidRequest) as refused:
        edits(stock, GPU, f"{A}::0", f"{A}::1")
    assert text == str(refused.value)
    assert f"{B},GPU-gggg2" == edits(stock, GPU, B, "GPU-gggg2").env["NVIDIA_VISIBLE_DEVICES"]


ROWS = list(
    itertools.product(
        [(ENVVAR,), (MOUNTS,), (ANNOTATIONS,), (CRI,), (ENVVAR, MOUNTS), (ENVVAR, CRI), (MOUNTS, ANNOTATIONS)],
        DeviceIdStrategy,
        [False, True],
        [None, 3],
        [MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED],
    )
)


def test_every_combination_is_consistent(subtests, build):
    """Strategy x id strategy x passDeviceSpecs x sharing x MIG: each part names the same devices in order."""
    for strategies, ids, specs, replicas, mig in ROWS:
        with subtests.test(strategies=strategies, ids=ids, specs=specs, replicas=replicas, mig=mig):
            entry = build.entry(partitions={0: ("2g.10gb",) * 3, 1: ("2g.10gb",) * 3})
            name = "nvidia.com/mig-2g.10gb" if mig is MigStrategy.MIXED else GPU
            sharing = build.sharing({"name": name, "replicas": replicas}) if replicas else None
            control = DeviceNode("/dev/nvidiactl", "/dev/nvidiactl")
            found = {"gpu": build.raws(entry, driver_nodes=(control,), partition_nodes=(control,))}
            stock = build.inventory(
                entry,
                found=found,
                sharing=sharing,
                device_list_strategy=strategies,
                device_id_strategy=ids,
                pass_device_specs=specs,
                mig_strategy=mig,
            )
            slots = stock.resources[name].slots
            assert (6 if mig is not MigStrategy.NONE else 2) * (replicas or 1) == len(slots)
            picked = (slots[-1], slots[0])
            got = edits(stock, name, *(slot.id for slot in picked))
            shown = [slot.device.ordinal if ids is DeviceIdStrategy.INDEX else slot.device.id for slot in picked]
            names = [f"{KIND}={each}" for each in shown]
            root = "/var/run/nvidia-container-devices"
            if MOUNTS in strategies:
                assert root == got.env["NVIDIA_VISIBLE_DEVICES"]
            elif ENVVAR in strategies:
                assert ",".join(shown) == got.env["NVIDIA_VISIBLE_DEVICES"]
            else:
                assert "NVIDIA_VISIBLE_DEVICES" not in got.env
            mounts = [Mount("/dev/null", f"{root}/{each}") for each in shown]
            assert (mounts if MOUNTS in strategies else []) == list(got.mounts.values())
            assert (names if CRI in strategies else []) == got.cdi_devices
            assert ([",".join(names)] if ANNOTATIONS in strategies else []) == list(got.annotations.values())
            handed = specs and not CDI_STRATEGIES.issuperset(strategies)
            assert ([control] if handed else []) == list(got.nodes.values())
            if not CDI_STRATEGIES.isdisjoint(strategies):
                (document,) = cdi_documents(stock).values()
                listed = {device["name"] for device in document["devices"]}
                assert listed >= {*shown}
                assert not any("::" in each for each in listed)
