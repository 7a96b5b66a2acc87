"""Prepared claims: the part for a driver, the configuration, the injected edits, and conflicts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.kit import dra
from vdev.dra import preparation as preparing
from vdev.dra.claim import PreparedClaim, PreparedDevice, read_claim
from vdev.dra.published_devices import empty_pool
from vdev.errors import AllocationError
from vdev.model.entry import Container
from vdev.model.spec import SharingKind

DRIVER = "gpu.nvidia.com"
JSON = TypeAdapter(PreparedClaim)
UID = "0c3c7f4e-8a1b-4a36-9d52-111111111111"
KIND = f"k8s.{DRIVER}/claim"


@pytest.fixture
def prepare(build):
    """Prepare a claim with these results on a node with two GPUs, gpu-0 and gpu-1."""

    def go(*results, config=(), shared=False, entry=None, kind=SharingKind.MPS, replicas=0, uid=UID, **more):
        entry = entry or build.entry()
        sharing = build.sharing({"name": entry.resource, "replicas": replicas}, kind=kind) if replicas else None
        resource = build.inventory(entry, sharing=sharing).resources[entry.resource]
        devices = {f"gpu-{each.ordinal}": each for each in resource.by_device.values()}
        pool = dra.pool(DRIVER, devices, resource, shared=devices if shared else ())
        document = dra.claim("c", *results, driver=DRIVER, uid=uid, config=config, pool="node-a", **more)
        return preparing.prepare(read_claim(document, DRIVER, uid=uid), pool, "node-a")

    return go


def env(claim, name):
    """The variables of a CDI device of the claim."""
    (found,) = [each for each in claim.document["devices"] if each["name"] == name]
    return dict(each.split("=", 1) for each in found["containerEdits"].get("env", ()))


def test_a_variable_that_lists_devices_is_set_once_per_request(prepare):
    """Each device has its own CDI device, and the request has one with the list."""
    claim = prepare(("r", "gpu-1"), ("r", "gpu-0"))
    assert {"NVIDIA_VISIBLE_DEVICES": "GPU-gggg1,GPU-gggg0"} == env(claim, f"{UID}_r")
    assert {"NVIDIA_COM_GPU_DEVICE_1": "GPU-gggg1"} == env(claim, f"{UID}-gpu-1")
    assert [(f"{KIND}={UID}-gpu-{number}", f"{KIND}={UID}_r") for number in (1, 0)] == [
        each.cdi for each in claim.devices
    ]
    assert "" == claim.together


@given(
    uid=st.uuids(),
    requests=st.lists(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True), min_size=2, max_size=2),
)
def test_every_claim_gives_a_valid_specification(uid, requests):
    """For any uid and names of requests, names are unique, no device is empty, and CDI's schema accepts the file."""
    devices = {"gpu-0": dra.device("GPU-0", 0), "gpu-1": dra.device("GPU-1", 1)}
    pool = dra.pool(DRIVER, devices, dra.resource(*devices.values()))
    document = dra.claim(
        "c", (requests[0], "gpu-0"), (requests[1], "gpu-1"), driver=DRIVER, uid=str(uid), pool="node-a"
    )
    claim = preparing.prepare(read_claim(document, DRIVER, uid=str(uid)), pool, "node-a")
    dra.CDI.validate(claim.document)
    names = [each["name"] for each in claim.document["devices"]]
    assert len(names) == len({*names})
    assert {*names} == {cdi.partition("=")[2] for each in claim.devices for cdi in (*each.cdi, claim.together) if cdi}
    assert claim == JSON.validate_json(JSON.dump_json(claim))


def test_a_device_has_its_nodes(build, prepare):
    """They are edits of the device, so a container gets those of its requests only."""
    node = {"hostPath": "/dev/null", "containerPath": "/dev/acme{index}"}
    entry = build.entry(container=Container(deviceNodes=[node]))
    claim = prepare(("r", "gpu-0"), ("r", "gpu-1"), entry=entry)
    paths = {
        each["name"]: [one["path"] for one in each["containerEdits"].get("deviceNodes", ())]
        for each in claim.document["devices"]
    }
    assert {f"{UID}-gpu-0": ["/dev/acme0"], f"{UID}-gpu-1": ["/dev/acme1"], f"{UID}_r": []} == paths


def test_one_container_path_for_two_nodes_is_refused(build, prepare):
    node = {"hostPath": "/dev/acme{index}", "containerPath": "/dev/acme"}
    entry = build.entry(container=Container(deviceNodes=[node]))
    with pytest.raises(AllocationError, match="the container path /dev/acme would be both"):
        prepare(("r", "gpu-0"), ("r", "gpu-1"), entry=entry)
    apart = prepare(("a", "gpu-0"), ("b", "gpu-1"), entry=entry)
    assert "" == apart.together


# --- the claim --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [None, {}, {"allocation": None}])
def test_an_unallocated_claim_is_refused(status):
    document = dra.claim("c", ("r", "gpu-0"), driver=DRIVER, uid=UID) | {"status": status}
    with pytest.raises(AllocationError, match="ResourceClaim default/c has no allocation"):
        read_claim(document, DRIVER, uid=UID)


def test_a_refused_device_is_not_prepared(build):
    device = dra.device("GPU-0", 0)
    device = replace(device, raw=replace(device.raw, refused="it is the node's own disk"))
    document = dra.claim("c", ("r", "gpu-0"), driver=DRIVER, uid=UID)
    pool = dra.pool(DRIVER, {"gpu-0": device}, dra.resource(device))
    with pytest.raises(AllocationError, match="cannot be prepared: it is the node's own disk"):
        preparing.prepare(read_claim(document, DRIVER, uid=UID), pool, "node-1")


def test_a_device_must_be_allocated_as_it_is_published(prepare):
    """After an edit, a shared device may be whole, or the other way round."""
    with pytest.raises(AllocationError, match="was allocated as a whole and is published in shares by now; delete"):
        prepare(("r", "gpu-0"), shared=True)
    with pytest.raises(AllocationError, match="was allocated as a share and is published as a whole by now"):
        prepare(("r", "gpu-0", {"shareID": "s"}))


# --- shares -----------------------------------------------------------------------------------------------------------


def test_a_share_takes_slots_of_mps(prepare):
    """Two of four replicas get half of the memory and of the threads, as in Allocate."""
    share = {"shareID": "s1", "consumedCapacity": {"slots": "2"}}
    claim = prepare(("r", "gpu-0", share), shared=True, replicas=4)
    assert (f"{KIND}={UID}-gpu-0-s1", f"{KIND}={UID}_r") == claim.devices[0].cdi
    got = env(claim, f"{UID}_r")
    assert "0=20480M" == got["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
    assert "50" == got["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]


def mounts(claim, name):
    """The mounts of a CDI device of the claim, by container path."""
    (found,) = [each for each in claim.document["devices"] if each["name"] == name]
    return {each["containerPath"]: each for each in found["containerEdits"].get("mounts", ())}


@pytest.mark.parametrize("uid", [UID, "a" + UID])
@pytest.mark.parametrize("by", ["configuration", "sharing"])
def test_mps_directories(prepare, by, uid):
    """They are at the paths of NVIDIA's driver. Because no daemon runs, they are empty file systems in memory."""
    if by == "sharing":
        share = {"shareID": "s1", "consumedCapacity": {"slots": "1"}}
        claim = prepare(("r", "gpu-0", share), shared=True, replicas=4, uid=uid)
    else:
        claim = prepare(("r", "gpu-0"), config=[dra.config(GPU | mps(), DRIVER)], uid=uid)
    assert "/tmp/nvidia-mps" == env(claim, f"{uid}_r")["CUDA_MPS_PIPE_DIRECTORY"]
    found = mounts(claim, f"{uid}_r")
    assert {"/tmp/nvidia-mps", "/dev/shm"} == found.keys()
    assert {"tmpfs"} == {each["type"] for each in found.values()}
    assert {("nosuid", "nodev", "rw")} == {tuple(each["options"]) for each in found.values()}
    assert claim.document["cdiVersion"] == "0.5.0"
    dra.CDI.validate(claim.document)


# --- configuration ----------------------------------------------------------------------------------------------------

OURS = {"apiVersion": "vdev.dev/v1alpha1", "kind": "DeviceConfig"}
GPU = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
MIG = GPU | {"kind": "MigDeviceConfig"}


def mps(**config):
    """A sharing block with MPS."""
    return {"sharing": {"strategy": "MPS", "mpsConfig": config}}


def test_the_claim_overrides_its_class(prepare):
    """In any order; of several configurations of the claim, the last counts."""
    config = [
        dra.config(OURS | {"env": {"WHO": "claim"}}, DRIVER),
        dra.config(OURS | {"env": {"WHO": "class", "MORE": "x"}}, DRIVER, source="FromClass"),
        dra.config(OURS | {"env": {"WHO": "other"}}, "other.example"),
    ]
    got = env(prepare(("r", "gpu-0"), config=config), f"{UID}_r")
    assert ("claim", False) == (got["WHO"], "MORE" in got)


def test_configuration_is_for_its_requests(prepare):
    """A configuration names a request or its selected subrequest."""
    config = [
        dra.config(OURS | {"env": {"WHO": "a"}}, DRIVER, "a"),
        dra.config(OURS | {"env": {"WHO": "b"}}, DRIVER, "b/large"),
        dra.config(OURS | {"env": {"WHO": "none"}}, DRIVER, "b/small"),
    ]
    claim = prepare(("a", "gpu-0"), ("b/large", "gpu-1"), config=config)
    assert ("a", "b") == (env(claim, f"{UID}_a")["WHO"], env(claim, f"{UID}_b")["WHO"])


def test_mps_of_nvidia(prepare):
    """Limits for all devices, and for single devices by id or position."""
    limits = mps(
        defaultActiveThreadPercentage=40,
        defaultPinnedDeviceMemoryLimit="10Gi",
        defaultPerDevicePinnedMemoryLimit={"1": "2Gi"},
    )
    got = env(prepare(("r", "gpu-0"), ("r", "gpu-1"), config=[dra.config(GPU | limits, DRIVER)]), f"{UID}_r")
    assert "0=10240M,1=2048M" == got["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
    assert "40" == got["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]


PIPE = {"CUDA_MPS_PIPE_DIRECTORY"}


@pytest.mark.parametrize(
    ("sharing", "more"),
    [
        (mps(defaultActiveThreadPercentage=0), PIPE),  # NVIDIA's driver accepts 0 per cent too
        (mps(multiUser=True), PIPE),
        (mps(), PIPE),
        *(
            ({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}}, set())
            for interval in ("Default", "Short", "Medium", "Long")
        ),
    ],
)
def test_sharing_of_nvidia_without_limits(prepare, sharing, more):
    """It sets no limit in the container."""
    got = env(prepare(("r", "gpu-0"), config=[dra.config(GPU | sharing, DRIVER)]), f"{UID}_r")
    assert {"NVIDIA_VISIBLE_DEVICES"} | more == got.keys()


CLAIM = "the configuration of the claim"


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {},
            "unknown kind, an object without apiVersion and kind; known are vdev.dev/v1alpha1 DeviceConfig",
        ),
        (GPU | {"kind": "VfioDeviceConfig"}, "unknown kind, resource.nvidia.com/v1beta1 VfioDeviceConfig"),
        (GPU | {"env": {}}, f"{CLAIM}: env: unknown key"),
        (OURS | {"enf": {}}, f"{CLAIM}: enf: unknown key"),
        (OURS | {"env": []}, f"{CLAIM}: env: Input should be a valid dictionary"),
        (OURS | {"env": {"1X": "a"}}, "'1X'"),
        (
            OURS | {"env": {"X": 1}},
            f"{CLAIM}: env.X: expected a string, and 1 unquoted is a number in YAML; write it in quotes",
        ),
        (
            OURS | {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
            "NVIDIA_VISIBLE_DEVICES, which the driver sets itself",
        ),
        (GPU | {"sharing": "MPS"}, "sharing: Input should be a valid dictionary"),
        (GPU | {"sharing": {}}, "sharing.strategy: Field required"),
        (
            GPU | {"sharing": {"strategy": "Timeslicing"}},
            "sharing.strategy: the string 'Timeslicing' is not allowed here; did you mean 'TimeSlicing'? expected",
        ),
        (
            GPU | {"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}},
            "sharing: mpsConfig is not for the strategy TimeSlicing",
        ),
        (
            GPU | {"sharing": {"strategy": "MPS", "timeSlicingConfig": {}}},
            "sharing: timeSlicingConfig is not for the strategy MPS",
        ),
        (
            GPU | {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Tiny"}}},
            "timeSlicingConfig.interval: the string 'Tiny' is not allowed here; expected Default, Short",
        ),
        (
            MIG | {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}},
            "sharing.timeSlicingConfig: unknown key",
        ),
        (GPU | mps(defaultActiveThreadPercentage=101), "101 is out of range; expected 0 to 100"),
        (GPU | mps(defaultActiveThreadPercentage=True), "expected a whole number, got the boolean True"),
        (GPU | mps(defaultActiveThreadPercentage=-1), "-1 is out of range"),
        (GPU | mps(multiUser="yes"), "multiUser: expected true or false, got the string 'yes'; write true"),
        (GPU | mps(defaultPinnedDeviceMemoryLimit="10GB"), "has the unknown suffix 'GB'; did you mean 'G'?"),
        (GPU | mps(defaultPinnedDeviceMemoryLimit="1k"), "1000 is out of range; expected at least 1048576"),
        (GPU | mps(defaultPerDevicePinnedMemoryLimit={"3": "1Gi"}), "'3', which is neither the id of a device of the"),
    ],
)
def test_configuration_is_decoded_strictly(prepare, parameters, text):
    """The error has the place and the cause."""
    with pytest.raises(AllocationError) as refused:
        prepare(("r", "gpu-0"), config=[dra.config(parameters, DRIVER)])
    assert text in str(refused.value)


FOREIGN = {"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", "sharing": {"strategy": "Spaces"}}


def test_configuration_of_an_unknown_driver_is_ignored_and_recorded(build):
    """The remaining configuration applies."""
    driver, gpus = "gpu.example.com", [dra.device("GPU-0", 0), dra.device("GPU-1", 1)]
    pool = dra.pool(driver, {each.id: each for each in gpus}, dra.resource(*gpus))
    config = [
        dra.config(OURS | {"env": {"WHO": "class"}}, driver, source="FromClass"),
        dra.config(FOREIGN, driver, "a"),
        dra.config({"any": "thing"}, driver, "a"),
    ]
    document = dra.claim("c", ("a", "GPU-0"), ("b", "GPU-1"), driver=driver, uid=UID, config=config)
    claim = preparing.prepare(read_claim(document, driver, uid=UID), pool, "node-1")
    kinds = ("gpu.resource.example.com/v1alpha1 GpuConfig", "an object without apiVersion and kind")
    assert [kinds, ()] == [each.ignored for each in claim.devices]
    assert "class" == env(claim, f"{UID}_a")["WHO"]
    assert claim == JSON.validate_json(JSON.dump_json(claim))


def test_an_unknown_kind_of_a_known_vendor_is_refused(subtests):
    """As in the vendor's driver; an unknown kind of vdev is refused for every driver."""
    cases = [
        ("gpu.nvidia.com", FOREIGN),
        ("gpu.amd.com", FOREIGN),
        ("gpu.example.com", OURS | {"kind": "DeviceConfg"}),
        ("gpu.example.com", OURS | {"apiVersion": "vdev.dev/v1"}),
        ("gpu.example.com", GPU | {"apiVersion": "resource.nvidia.com/v1beta2"}),
    ]
    for driver, parameters in cases:
        with subtests.test(driver=driver):
            document = dra.claim("c", ("r", "GPU-0"), driver=driver, uid=UID, config=[dra.config(parameters, driver)])
            with pytest.raises(AllocationError, match="is of an unknown kind"):
                preparing.prepare(read_claim(document, driver, uid=UID), empty_pool(driver), "node-1")


# --- conflicts --------------------------------------------------------------------------------------------------------


def had(device="gpu-0", *, pool="node-a", raw="GPU-0", slices=(0, 0), **more):
    """A prepared device."""
    return PreparedDevice(pool=pool, device=device, requests=("r",), cdi=(), raw=raw, slices=slices, **more)


def test_conflicts_of_prepared_devices(subtests):
    """Parts of one physical device conflict if they overlap; shares and admin access do not conflict."""
    cases = [
        (had(), had(), True),
        (had(), had("gpu-1", raw="GPU-1"), False),
        (had(), had(admin=True), False),
        (had(share_id="a"), had(share_id="b"), False),
        (had(share_id="a"), had(), True),
        (had(), had("gpu-0-mig", slices=(0, 1)), True),
        (had("a", slices=(0, 2)), had("b", slices=(2, 4)), False),
        (had("a", slices=(0, 2)), had("b", slices=(1, 2)), True),
        (had("a", slices=(0, 2)), had("a", slices=(0, 2)), True),
        (had(share_id="a"), had("gpu-0-mig", slices=(0, 1), share_id="b"), True),
        (had(raw=""), had("x", raw=""), False),
    ]
    for one, other, excludes in cases:
        with subtests.test(one=one):
            assert (excludes, excludes) == (one.excludes(other), other.excludes(one))
