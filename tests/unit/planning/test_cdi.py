"""CDI specifications: valid kinds, the lowest sufficient version, and no device without edits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.model import names
from vdev.model.device import DeviceNode, Mount
from vdev.model.entry import DeviceListStrategy
from vdev.planning import allocation, cdi


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu"),
        ("acme.dev/a-device", "k8s.device-plugin.acme.dev/a-device"),
        ("acme.dev/a", "k8s.device-plugin.acme.dev/device-a-8c1b73c6"),
        ("acme.dev/3d", "k8s.device-plugin.acme.dev/device-3d-9cdd3438"),
        ("acme.dev/7", "k8s.device-plugin.acme.dev/device-7-48dcca8b"),
    ],
)
def test_kinds(resource, kind):
    """Containerd crashes on a class of one letter, and a class must not start with a digit: both get a prefix."""
    assert kind == cdi.kind(resource)


@given(
    st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z]{2,3})?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,10}[A-Za-z0-9])?", fullmatch=True)
)
def test_every_resource_name_has_a_valid_kind(resource):
    """Vendor and class start with a letter and have at least two characters."""
    assert "" == names.resource_name_problem(resource)
    vendor, _, cls = cdi.kind(resource).partition("/")
    assert all(len(part) > 1 and part[0].isalpha() and part[-1].isalnum() for part in (vendor, cls))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("acme.dev/a", "acme.dev/a-device"),
        ("acme.dev/7", "acme.dev/device-7"),
        ("acme.dev/3d", "acme.dev/device-3d"),
        ("acme/my-npu", "acme-my/npu"),
        ("acme.dev/x-y.z-npu", "acme.dev-x/y.z-npu"),
        (f"{'a' * 244}/{'b' * 60}1", f"{'a' * 244}/{'b' * 60}2"),
    ],
)
def test_two_resources_share_neither_kind_nor_file(one, other):
    """Both have a device 0 if ids are indices, so one file would replace the other."""
    kinds = [cdi.kind(each) for each in (one, other)]
    assert kinds[0] != kinds[1]
    files = [cdi.file_name(each) for each in kinds]
    assert files[0] != files[1]
    assert all(len(f".{file}.123456789abc.tmp") <= 255 for file in files)
    assert all(cdi.is_document(cdi.document(kind, [cdi.cdi_device("0", env={"A": "1"})])) for kind in kinds)


@pytest.mark.parametrize(
    ("kind", "device", "version"),
    [
        ("v.x/gpu", cdi.cdi_device("0", env={"A": "1"}), "0.5.0"),
        ("v.x/gpu", cdi.cdi_device("a", nodes=(DeviceNode("/dev/x", "/dev/y"),)), "0.5.0"),
        ("v.x/mig-1g.5gb", cdi.cdi_device("a", env={"A": "1"}), "0.6.0"),
    ],
)
def test_the_version_is_the_lowest_sufficient_one(kind, device, version):
    """A runtime ignores a file with a version that is too low, and an old one rejects a newer version."""
    assert version == cdi.document(kind, [device])["cdiVersion"]


def test_a_virtual_device_is_not_empty(build):
    """A CDI device without edits is invalid, so each has a variable with its name."""
    stock = build.inventory(build.entry(count=1), device_list_strategy=(DeviceListStrategy.CDI_CRI,))
    (document,) = allocation.cdi_documents(stock).values()
    assert "NVIDIA_COM_GPU_DEVICE_0=GPU-gggg0" in document["devices"][0]["containerEdits"]["env"]


def test_nvidias_runtime_injects_nothing_beside_cdi(build):
    """A variable of each device prevents it. Other vendors do not have it."""
    strategies = (DeviceListStrategy.ENVVAR, DeviceListStrategy.CDI_CRI)
    npu = build.entry("acme", "acme.dev/npu", nvidia=False)
    documents = allocation.cdi_documents(build.inventory(build.entry(), npu, device_list_strategy=strategies))
    nvidias, acmes = documents["k8s.device-plugin.nvidia.com/gpu"], documents["k8s.device-plugin.acme.dev/npu"]
    assert all(map(cdi.is_document, documents.values()))
    assert ["NVIDIA_COM_GPU_DEVICE_0=GPU-gggg0", "NVIDIA_VISIBLE_DEVICES=void"] == nvidias["devices"][0][
        "containerEdits"
    ]["env"]
    assert "GPU-gggg0" == cdi.device_id(nvidias["devices"][0])
    assert all(len(device["containerEdits"]["env"]) == 1 for device in acmes["devices"])
    left = cdi.with_leftovers({}, [nvidias], {(nvidias["kind"], "GPU-gggg1")})
    assert nvidias["devices"][1:] == left[nvidias["kind"]]["devices"]


def test_edits_for_all_devices_are_not_ours():
    """A file of vdev has edits for each device only."""
    whole = cdi.document("v.x/gpu", [cdi.cdi_device("a", env={"A": "1"})])
    assert cdi.is_document(whole)
    assert not cdi.is_document(whole | {"containerEdits": {"env": ["A=1"]}})


def test_variables_are_texts():
    """One of them contains the id of the device."""
    device = {"name": "a", "containerEdits": {"env": [{"a": "b"}]}}
    assert not cdi.is_document({"cdiVersion": "0.6.0", "kind": "v.x/gpu", "devices": [device]})


@pytest.mark.parametrize(("read_only", "access"), [(False, "rw"), (True, "ro")])
def test_mounts_allow_devices(read_only, access):
    """A serial line or a directory of device nodes is mounted without `nodev`, so that it can be opened."""
    mount = Mount("/dev/pts/3", "/dev/ttyUSB0", read_only=read_only)
    device, *_ = cdi.document("v.x/uart", [cdi.cdi_device("a", mounts=(mount,))])["devices"]
    assert ["rbind", "nosuid", access] == device["containerEdits"]["mounts"][0]["options"]
