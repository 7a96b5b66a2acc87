"""Imported configurations, run against the embedded kubelet, beside what the peer would have advertised.

The peers are read as they are in their sources: small models of them say what they list and hand out on the same host.
"""

import asyncio
import json
import re
from fnmatch import fnmatchcase

import pytest
import yaml

from tests.kit.fakehost import FakeHost
from vdev import loading
from vdev.errors import ConfigError
from vdev.importers import Wishes, imported
from vdev.sim import manifest

NODES = ("ttyUSB0", "ttyUSB1", "ttyACM0", "fuse", "video0", "video1", "video1x", "snd/controlC0", "snd/pcmC0D0c")
TREE = ("snd", "net", *NODES, "net/tun", "gpio.1")


@pytest.fixture
def host(directory):
    fake = FakeHost(directory / "host")
    for number, path in enumerate((*NODES, "net/tun", "gpio.1")):
        fake.node(path, f"240:{number}")
    for number, (port, product) in enumerate((("1-1", "000f"), ("1-2", "7523"), ("1-3", "000f")), start=10):
        fake.plug(
            f"pci0000:00/0000:00:14.0/usb1/{port}",
            bus="usb",
            idVendor="1209",
            idProduct=product,
            busnum=1,
            devnum=number,
            node={"path": f"bus/usb/001/{number:03}", "number": f"189:{number}"},
        )
    return fake


# --- what generic-device-plugin does (deviceplugin/path.go, usb.go) --------------------------------------------------


def matched(pattern):
    return sorted(
        f"/dev/{path}"
        for path in TREE
        if fnmatchcase(f"/dev/{path}", pattern) and pattern.count("/") == path.count("/") + 2
    )


def group_devices(group, usb):
    """For each device the nodes that a container gets: path on the host, path in the container, permissions."""
    paths = group.get("paths", [])
    if not paths:
        hits = [
            path
            for want in group.get("usb", [])
            for product, path in usb
            if product == want["product"].lower().zfill(4)
        ]
        return [[(path, path, "rw") for path in hits]] if hits else []
    lists = [(path, matched(path["path"]) * path.get("limit", 1)) for path in paths]
    lists = [(path, found) for path, found in lists if found or not path.get("optional")]
    natural = max((len(found) // path.get("limit", 1) for path, found in lists), default=0)
    made = []
    for place in range(min([natural, *(len(found) for _, found in lists)])):
        nodes = []
        for path, found in lists:
            inside = path.get("mountPath") or found[place]
            inside += found[place].rpartition("/")[2] if inside.endswith("/") else ""
            nodes.append((found[place], inside, path.get("permissions", "mrw")))
        made.append(nodes)
    return made


def generic(text, usb):
    """By resource, what each of its devices hands out; a device that is offered n times is there n times."""
    tree = yaml.safe_load(text)
    return {
        f"{tree.get('domain', 'squat.ai')}/{device['name']}": [
            nodes
            for group in device["groups"]
            for nodes in group_devices(group, usb)
            for _ in range(group.get("count", 1))
        ]
        for device in tree["devices"]
    }


def expanded(nodes):
    """The runtime hands out the nodes of a directory."""
    for host, inside, permissions in nodes:
        below = [f"/dev/{path}" for path in NODES if f"/dev/{path}".startswith(f"{host}/")]
        for path in below or [host]:
            yield path, inside + path.removeprefix(host), "".join(sorted(permissions))


GENERIC = [
    "devices: [{name: serial, groups: [{paths: [{path: /dev/ttyUSB*}]}, {paths: [{path: /dev/ttyACM*}]}]}]",
    "devices: [{name: fuse, groups: [{count: 10, paths: [{path: /dev/fuse}]}]}]",
    """
domain: example.com
devices: [{name: tty, groups: [{paths: [{path: /dev/ttyUSB*, mountPath: /dev/s/, permissions: r}]}]}]
""",
    'devices: [{name: pair, groups: [{paths: [{path: "/dev/video?"}, {path: /dev/fuse, limit: 5}]}]}]',
    'devices: [{name: short, groups: [{paths: [{path: "/dev/video?"}, {path: /dev/fuse}]}]}]',
    'devices: [{name: none, groups: [{paths: [{path: "/dev/video?"}, {path: /dev/nothing}]}]}]',
    "devices: [{name: maybe, groups: [{paths: [{path: /dev/fuse, optional: true}, {path: /dev/x, optional: true}]}]}]",
    "devices: [{name: gone, groups: [{paths: [{path: /dev/x, optional: true}, {path: /dev/y, optional: true}]}]}]",
    """
devices:
  - {name: audio, groups: [{count: 3, paths: [{path: /dev/snd}]}]}
  - {name: capture, groups: [{paths: [{path: /dev/snd/controlC0, mountPath: /dev/c}, {path: /dev/snd/pcmC0D0c}]}]}
""",
    """
devices: [{name: sticks, groups: [{count: 2, usb: [{vendor: "1209", product: 000F}, {vendor: "1209", product: "9"}]}]}]
""",
    "devices: [{name: mixed, groups: [{count: 2, paths: [{path: /dev/fuse}]}, {paths: [{path: /dev/video0}]}]}]",
    """
devices:
  - {name: twice, groups: [{paths: [{path: /dev/video*}]}]}
  - {name: again, groups: [{paths: [{path: /dev/video0}]}]}
""",
]


@pytest.mark.parametrize("text", GENERIC)
async def test_generic_device_plugin(text, host, kubelet, start_agent):
    """The same resources with as many devices, and a container with one gets the same nodes."""
    usb = [("000f", "/dev/bus/usb/001/010"), ("7523", "/dev/bus/usb/001/011"), ("000f", "/dev/bus/usb/001/012")]
    wanted = generic(text, usb)
    (made,) = await asyncio.to_thread(imported, text, "f", Wishes())

    await start_agent(made.text, host=host.host)

    assert {name: len(devices) for name, devices in wanted.items() if devices} == capacity(kubelet)
    for name, devices in wanted.items():
        got = [await nodes_of(kubelet, name, number) for number, _ in enumerate(devices)]
        assert sorted(sorted(expanded(nodes)) for nodes in devices) == sorted(got)


# --- what smarter-device-manager does (main.go) ----------------------------------------------------------------------


def smarter(text):
    """By resource, the node and how many times it is offered."""
    found = {}
    for item in yaml.safe_load(text):
        for path in TREE:
            if re.search(item["devicematch"], path):
                found[f"smarter-devices/{re.sub('[^A-Za-z0-9_-]', '_', path)}"] = (
                    f"/dev/{path}",
                    item["nummaxdevices"],
                )
    return found


@pytest.mark.parametrize(
    "text",
    [
        "- {devicematch: '^video[0-9]*$', nummaxdevices: 3}\n- {devicematch: ^fuse$, nummaxdevices: 1}",
        "- {devicematch: ^net/tun$, nummaxdevices: 2}\n- {devicematch: '^gpio\\.1$', nummaxdevices: 2}",
        "- {devicematch: '^tty(USB|ACM)[0-9]+$', nummaxdevices: 1}",
        "- {devicematch: ^snd$, nummaxdevices: 4}",
        "- {devicematch: ^snd, nummaxdevices: 2}",
    ],
)
async def test_smarter_device_manager(text, host, kubelet, start_agent):
    """A resource for each node, as many times as it says; a container gets the node."""
    wanted = smarter(text)
    (made,) = await asyncio.to_thread(imported, text, "f", Wishes())

    await start_agent(made.text, host=host.host)

    assert {name: count for name, (_, count) in wanted.items()} == capacity(kubelet)
    for name, (path, _) in wanted.items():
        assert sorted(expanded([(path, path, "rw")])) == await nodes_of(kubelet, name, 0)


# --- what the SR-IOV network device plugin does (pkg/netdevice, pkg/resources) ---------------------------------------

FUNCTIONS = [("eth0", n, "iavf" if n < 3 else "vfio-pci") for n in range(5)] + [("eth1", n, "iavf") for n in range(2)]


@pytest.fixture
def network(directory):
    """Two cards with virtual functions, of which some are bound to VFIO, and one without."""
    fake = FakeHost(directory / "host")
    fake.node("vfio/vfio", "10:196")
    for number, name in enumerate(("eth0", "eth1", "eth2")):
        functions = [each for each in FUNCTIONS if each[0] == name]
        card = f"pci0000:00/0000:0{number}:00.0"
        fake.plug(card, bus="pci", vendor="0x8086", device="0x1572", driver="i40e", sriov_numvfs=len(functions))
        (directory / "host/sys/devices" / card / "class").write_text("0x020000\n")
        fake.plug(f"{card}/net/{name}", **{"class": "net"})
        for _, index, driver in functions:
            place = f"pci0000:00/{address(name, index)}"
            fake.plug(place, bus="pci", vendor="0x8086", device="0x154c", driver=driver, numa_node=number)
            inside = directory / "host/sys/devices" / place
            (inside / "class").write_text("0x020000\n")
            (inside / "uevent").write_text(f"DRIVER={driver}\nPCI_SLOT_NAME={address(name, index)}\n")
            (inside / "physfn").symlink_to(f"../0000:0{number}:00.0")
            (directory / "host/sys/devices" / card / f"virtfn{index}").symlink_to(f"../{address(name, index)}")
            if driver == "vfio-pci":
                group = directory / f"host/sys/kernel/iommu_groups/{40 + index}"
                group.mkdir(parents=True, exist_ok=True)
                (inside / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{40 + index}")
                fake.node(f"vfio/{40 + index}", f"240:{index}")
    return fake


def address(name, index):
    return f"0000:0{name[-1]}:02.{index}"


def sriov(selectors):
    """The functions and cards that a pool of these selectors has, by PCI address."""
    found = []
    for selector in selectors:
        hosts = [(f"0000:0{n}:00.0", "", -1, "i40e", "1572") for n in range(3) if n == 2]  # others have functions
        hosts += [(address(name, index), name, index, driver, "154c") for name, index, driver in FUNCTIONS]
        for place, card, index, driver, device in hosts:
            wanted = {item.partition("#")[0]: item.partition("#")[2] for item in reversed(selector.get("pfNames", []))}
            fits = device in selector.get("devices", [device]) and driver in selector.get("drivers", [driver])
            fits = fits and place in selector.get("pciAddresses", [place])
            fits = fits and (not wanted or (card in wanted and in_range(index, wanted[card])))
            if fits and place not in found:
                found.append(place)
    return sorted(found)


def in_range(index, ranges):
    pairs = [part.split("-") for part in ranges.split(",")] if ranges else [["0", "99"]]
    return any(int(first) <= index <= int((last or [first])[0]) for first, *last in pairs)


@pytest.mark.parametrize(
    "selectors",
    [
        [{"vendors": ["8086"], "devices": ["154c"], "drivers": ["iavf"]}],
        [{"drivers": ["vfio-pci"], "pfNames": ["eth0"]}],
        [{"drivers": ["iavf"], "pfNames": ["eth0#0,2-4", "eth1#1"]}],
        [{"vendors": ["8086"]}],
        [{"drivers": ["iavf"], "pfNames": ["eth1"]}, {"devices": ["154c"], "drivers": ["iavf", "vfio-pci"]}],
        [{"pciAddresses": ["0000:00:02.1", "0000:01:02.0"], "drivers": ["iavf"]}],
    ],
)
async def test_sriov(selectors, network, kubelet, start_agent):
    """The same functions, whose addresses a container is told, with the node of VFIO where they are bound to it."""
    tree = {"resourceList": [{"resourceName": "vf", "resourcePrefix": "a.org", "selectors": selectors}]}
    (made,) = await asyncio.to_thread(imported, json.dumps(tree), "f", Wishes())

    await start_agent(made.text, host=network.host)

    wanted = sriov(selectors)
    assert {"a.org/vf": len(wanted)} == capacity(kubelet)
    pod = await kubelet.run_pod(manifest("all", {"a.org/vf": len(wanted)}))
    edits = pod.container().edits
    assert wanted == sorted(edits.envs["PCIDEVICE_A_ORG_VF"].split(","))
    vfio = [(address(name, n), f"/dev/vfio/{40 + n}") for name, n, driver in FUNCTIONS if driver == "vfio-pci"]
    bound = [node for place, node in vfio if place in wanted]
    assert sorted([*bound, *(["/dev/vfio/vfio"] if bound else [])]) == sorted(each.host_path for each in edits.devices)


# --- virtual ones ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wishes", "wanted"),
    [
        (
            "nodePools: {p: {gpuProduct: K80, gpuCount: 2, gpuMemory: 11441, otherDevices: [{name: a.b/c, count: 3}]}}",
            {},
            {"nvidia.com/gpu": 2, "a.b/c": 3},
        ),
        (
            "mig-configs: {x: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 3g.20gb: 1}}]}",
            {"count": 2},
            {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 2},
        ),
        (
            "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}",
            {"preset": "t4", "count": 2},
            {"nvidia.com/gpu.shared": 8},
        ),
    ],
)
async def test_virtual_devices(text, wishes, wanted, kubelet, start_agent):
    """What the peer would list for as many GPUs."""
    (made,) = await asyncio.to_thread(imported, text, "f", Wishes(**wishes))

    await start_agent(made.text)

    assert wanted == capacity(kubelet)


def test_loading_a_peers_file_says_what_it_is(directory):
    """In one sentence, with the command; other files' errors stand beside it."""
    theirs, ours = directory / "conf.yaml", directory / "vdev.yaml"
    theirs.write_text("- {devicematch: ^fuse$, nummaxdevices: 1}")
    ours.write_text("devices: 1")
    with pytest.raises(ConfigError) as refused:
        loading.load([theirs])
    told = (
        f"{theirs}: this is a configuration of smarter-device-manager; `vdev import {theirs}` makes one of vdev of it"
    )
    assert [told] == [str(problem) for problem in refused.value.problems]
    with pytest.raises(ConfigError) as refused:
        loading.load([ours])
    assert "devices: expected a list" in str(refused.value)


# --- what the kubelet has --------------------------------------------------------------------------------------------


def capacity(kubelet):
    """Resources that have a device, as allocatable."""
    return {name: each for name, each in kubelet.node().allocatable.items() if each}


async def nodes_of(kubelet, resource, number):
    """What a pod with one more of these devices gets: path on the host, path in the container, permissions."""
    name = f"{re.sub('[^a-z0-9]', '-', resource.lower())}-{number}"
    pod = await kubelet.run_pod(manifest(name, {resource: 1}))
    devices = pod.container().edits.devices
    return sorted((each.host_path, each.container_path, "".join(sorted(each.permissions))) for each in devices)
