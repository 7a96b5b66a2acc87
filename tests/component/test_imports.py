"""Imported configurations, run against the embedded kubelet, beside what the peer would have advertised.

The peers are read as they are in their sources: small models of them say what they list and hand out on the same host.
"""

import asyncio
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
