"""Devices by path patterns: matches, groups, and refused paths."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.specs import made_entry
from vdev import discovery
from vdev.discovery import Found, Numbering
from vdev.model.device import DeviceNode
from vdev.model.sources import GlobItem, GroupBy, NodeKind
from vdev.model.template import parse


def find(
    fake: FakeHost,
    *paths: str | GlobItem,
    numbering: Numbering | None = None,
    exclude: tuple[str, ...] = (),
    group_by: GroupBy = GroupBy.POSITION,
    allow_dangerous: bool = False,
) -> Found:
    """Discover the devices of an entry `e` with these patterns."""
    items = tuple(GlobItem(path=each) if isinstance(each, str) else each for each in paths)
    fields = {"exclude": exclude, "group_by": group_by, "allow_dangerous": allow_dangerous}
    entry = made_entry("e", "example.com/e", glob=items, **fields)
    return discovery.discover(entry, fake.host, node="n", numbering=numbering)


def nodes(found: Found) -> list[list[str]]:
    return [[node.host_path for node in device.nodes] for device in found.devices]


def ids(found: Found) -> list[str]:
    return [device.id for device in found.devices]


def messages(found: Found) -> list[str]:
    return [str(problem) for problem in found.problems]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/dev/ttyUSB*", ["/dev/ttyUSB0", "/dev/ttyUSB2", "/dev/ttyUSB10"]),
        ("/dev/ttyUSB?", ["/dev/ttyUSB0", "/dev/ttyUSB2"]),
        ("/dev/ttyUSB[0-1]", ["/dev/ttyUSB0"]),
        ("/dev/ttyUSB[!0]", ["/dev/ttyUSB2"]),
        ("/dev/ttyUSB[02]", ["/dev/ttyUSB0", "/dev/ttyUSB2"]),
        ("/dev/*/ttyUSB1", ["/dev/pts/ttyUSB1"]),
        ("/dev/**/ttyUSB?", ["/dev/pts/ttyUSB1", "/dev/ttyUSB0", "/dev/ttyUSB2"]),
        ("/dev/**", ["/dev/odd[1]", "/dev/pts/ttyUSB1", "/dev/ttyUSB0", "/dev/ttyUSB2", "/dev/ttyUSB10"]),
        ("/dev/ttyUSB2", ["/dev/ttyUSB2"]),
        ("/dev/odd[[]1]", ["/dev/odd[1]"]),
        ("/d*/ttyUSB2", ["/dev/ttyUSB2"]),
        ("/dev/TTY*", []),
    ],
)
def test_what_a_pattern_matches(fake: FakeHost, pattern: str, expected: list[str]) -> None:
    """Wildcards, sets and `**` match in natural order, without hidden files."""
    for name in ("ttyUSB10", "ttyUSB2", "ttyUSB0", "pts/ttyUSB1", "odd[1]", ".hidden"):
        fake.node(name)
    assert [[path] for path in expected] == nodes(find(fake, pattern))


@pytest.mark.parametrize(
    ("links", "pattern", "words"),
    [
        (10, "/d/*/*/*/*/*/*", "given up: it would have to look at more than 200000 directory entries"),
        (40, "/d/*/*/*", "given up: more than 50000 matches"),
    ],
)
def test_a_pattern_with_too_many_matches_is_an_error(fake: FakeHost, links: int, pattern: str, words: str) -> None:
    (fake.root / "d").mkdir()
    for number in range(links):
        fake.link(f"/d/l{number}", ".")
    found = find(fake, pattern)
    assert () == found.devices
    (message,) = messages(found)
    assert words in message
    assert found.problems[0].is_error
    if "entries" in words:  # only the pattern's own directory is watched: it may get fewer entries
        assert {"/d"} == found.watch
        both = find(fake, pattern, "/dev/*")
        assert [words in message for message in messages(both)] == [True, True]


def test_no_match_is_a_warning_and_no_device(fake: FakeHost) -> None:
    found = find(fake, "/dev/ttyUSB*")
    assert (["e: warning: glob /dev/ttyUSB* matches nothing on this node"], ()) == (messages(found), found.devices)


def test_a_link_names_the_device_and_its_target_is_the_node(desk: FakeHost) -> None:
    """With /dev/serial/by-id, the id and the path in the container are the link's; the runtime gets the real node."""
    link = "/dev/serial/by-id/usb-ITead_Sonoff_Zigbee_3.0_USB_Dongle_Plus_8ad5b4c2-if00-port0"
    first = find(desk, "/dev/serial/by-id/*Zigbee*")
    assert (DeviceNode("/dev/ttyUSB2", link, "rw"),) == first.devices[0].nodes
    desk.unplug("pci0000:00/0000:00:14.0/usb1/1-1/1-1.3")
    desk.remove(link)
    assert () == find(desk, "/dev/serial/by-id/*Zigbee*").devices
    desk.node("ttyUSB7", "188:7")
    desk.link(link, "/dev/ttyUSB7")
    again = find(desk, "/dev/serial/by-id/*Zigbee*")
    assert ids(first) == ids(again)
    assert [["/dev/ttyUSB7"]] == nodes(again)


def test_several_names_of_one_node_are_one_device(fake: FakeHost) -> None:
    """The node's own name takes precedence over those of links."""
    fake.node("video0", "81:0")
    fake.link("/dev/video", "video0")
    fake.link("/dev/video-front", "/dev/video0")
    assert [["/dev/video0"]] == nodes(find(fake, "/dev/video*"))


def test_excluded_paths_are_left_out(fake: FakeHost) -> None:
    """By their own name, or by that of a link's target."""
    for name in ("ttyUSB0", "ttyUSB1", "ttyUSB2"):
        fake.node(name)
    fake.link("/dev/modem", "ttyUSB1")
    found = find(fake, "/dev/[tm]*", exclude=("/dev/ttyUSB[01]",))
    assert [["/dev/ttyUSB2"]] == nodes(found)
    refused = {candidate.path for candidate in found.candidates if not candidate.matched}
    assert {"/dev/ttyUSB0", "/dev/ttyUSB1", "/dev/modem"} == refused


# --- groups ----------------------------------------------------------------------------------------------------------


MEDIA = GlobItem(path="/dev/media*")


@pytest.mark.parametrize(
    ("second", "devices"),
    [
        (MEDIA, [["/dev/video0", "/dev/media0"]]),
        (
            MEDIA.model_copy(update={"limit": 2}),  # each node pairs with up to two others
            [["/dev/video0", "/dev/media0"], ["/dev/video1", "/dev/media0"]],
        ),
        (GlobItem(path="/dev/missing"), []),
    ],
    ids=["shortest pattern", "limit", "no match"],
)
def test_the_ith_matches_form_a_device(fake: FakeHost, second: GlobItem, devices: list[list[str]]) -> None:
    """The shortest required pattern determines the number of devices."""
    for number in range(3):
        fake.node(f"video{number}", f"81:{number}")
    fake.node("media0", "235:0")
    found = find(fake, "/dev/video*", second)
    assert devices == nodes(found)
    unused = f"{3 - len(devices)} of 3 matches of /dev/video*"
    assert any(unused in message for message in messages(found))


def test_members_with_equal_wildcards_form_a_device(fake: FakeHost) -> None:
    """Card 2 gets control 2, not the first control. A card without its control is unhealthy, with the reason."""
    for name in ("pcmC0D0c", "pcmC2D0c", "controlC2", "controlC1", "timer"):
        fake.node(f"snd/{name}")
    found = find(
        fake, "/dev/snd/pcmC*D0c", "/dev/snd/controlC*", GlobItem(path="/dev/snd/timer", limit=9), group_by=GroupBy.NAME
    )
    assert [
        ["/dev/snd/pcmC0D0c", "/dev/snd/timer"],
        ["/dev/snd/pcmC2D0c", "/dev/snd/controlC2", "/dev/snd/timer"],
    ] == nodes(found)
    assert ["nothing matches /dev/snd/controlC* for 0", ""] == [device.health.reason for device in found.devices]


# --- ids and indices --------------------------------------------------------------------------------------------------


def test_ids_are_paths_below_the_literal_directory(fake: FakeHost) -> None:
    """Directories that match a wildcard are part of the id."""
    fake.node("bus/usb/001/004")
    fake.node("bus/usb/002/004")
    found = find(fake, "/dev/bus/usb/*/*")
    assert 2 == len(set(ids(found)))
    assert all(each.startswith(("e-001-004-", "e-002-004-")) for each in ids(found))


def test_a_device_keeps_its_index(fake: FakeHost) -> None:
    """A new device gets the lowest unused index, and a device that returns gets its own again."""
    numbering = Numbering()

    def indices() -> dict[str, int]:
        return {device.id: device.index for device in find(fake, "/dev/ttyUSB*", numbering=numbering).devices}

    fake.node("ttyUSB1")
    fake.node("ttyUSB2")
    assert {"e-ttyUSB1": 0, "e-ttyUSB2": 1} == indices()
    fake.remove("/dev/ttyUSB1")
    fake.node("ttyUSB0")
    assert {"e-ttyUSB0": 2, "e-ttyUSB2": 1} == indices()
    fake.node("ttyUSB1")
    assert {"e-ttyUSB0": 2, "e-ttyUSB1": 0, "e-ttyUSB2": 1} == indices()
    fake.remove("/dev/ttyUSB1")
    numbering.retain({"e-ttyUSB0", "e-ttyUSB2"})
    fake.node("ttyUSB3")
    assert {"e-ttyUSB0": 2, "e-ttyUSB2": 1, "e-ttyUSB3": 0} == indices()


# --- into the container -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", "/dev/video3"),
        ("/dev/cam/", "/dev/cam/video3"),
        ("/dev/camera", "/dev/camera"),
        ("/dev/camera{index}", "/dev/camera0"),
        ("/dev/{attributes.match}/{attributes.target}", "/dev/3/video3"),
        ("/x{path}-{{x}}", "/x/dev/video3-{x}"),
    ],
)
def test_container_path(fake: FakeHost, wanted: str, expected: str) -> None:
    """As on the host, in a directory, or renamed with placeholders."""
    fake.node("video3", "81:3")
    item = GlobItem(path="/dev/video*", permissions="r", containerPath=parse(wanted) if wanted else None)
    found = find(fake, item)
    assert (DeviceNode("/dev/video3", expected, "r"),) == found.devices[0].nodes


def test_a_directory_of_nodes_can_be_one_device(fake: FakeHost) -> None:
    """The device has all nodes in it, below the container's directory."""
    fake.node("snd/controlC0")
    fake.node("snd/seq/x")
    fake.file("/dev/snd/readme", "")
    found = find(fake, GlobItem(path="/dev/snd", kinds=(NodeKind.DIRECTORY,), containerPath="/dev/sound"))
    expected = [("/dev/snd/controlC0", "/dev/sound/controlC0"), ("/dev/snd/seq/x", "/dev/sound/seq/x")]
    assert expected == [(node.host_path, node.container_path) for node in found.devices[0].nodes]


@pytest.mark.parametrize("optional", [False, True])
def test_a_directory_without_nodes_is_an_unhealthy_device(fake: FakeHost, optional: bool) -> None:
    """It becomes healthy when a node appears."""
    (fake.root / "dev/snd").mkdir()
    item = GlobItem(path="/dev/snd", kinds=(NodeKind.DIRECTORY,), optional=optional)
    others = [GlobItem(path="/dev/other", optional=True)] if optional else []
    reason = "none of its directories has a device node" if optional else "/dev/snd has no device node"
    assert [reason] == [device.health.reason for device in find(fake, item, *others).devices]
    assert "/dev/snd" in find(fake, item).watch
    fake.node("snd/timer")
    assert [""] == [device.health.reason for device in find(fake, item).devices]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.touch(), "e: /dev/x is not a device node (plain file); use type: mount"),
        (os.mkfifo, "e: /dev/x is not a device node (fifo); use type: mount"),
        (
            os.mkdir,
            "e: /dev/x is not a device node (directory); use type: mount, or kinds: [directory] for all nodes in it",
        ),
    ],
)
def test_other_files_are_refused_with_a_hint(fake: FakeHost, make: Callable[[Path], object], message: str) -> None:
    """A runtime would fail the pod forever with `not a device node`."""
    make(fake.root / "dev/x")
    found = find(fake, "/dev/x")
    assert ([message], ()) == (messages(found), found.devices)


def test_kinds_filter_matches(fake: FakeHost) -> None:
    fake.node("sdz", "8:400", kind="block")
    fake.node("sdx", "1:3")
    assert [["/dev/sdz"]] == nodes(find(fake, GlobItem(path="/dev/sd*", kinds=(NodeKind.BLOCK,))))


# --- dangerous devices -----------------------------------------------------------------------------------------------


def test_disks_in_use_and_raw_memory_are_refused(server: FakeHost) -> None:
    """A disk is in use if a partition of it, or a device built on it, is mounted."""
    found = find(server, "/dev/[sm]*")
    assert [["/dev/sdb"]] == nodes(found)
    told = " ".join(messages(found))
    assert "/dev/sda is not handed out because it is a disk in use: /dev/sda1 is mounted at /" in told
    assert "/dev/sdc is not handed out because it is a disk in use: /dev/dm-0 is mounted at /data" in told
    assert "/dev/mem is not handed out because it gives access to the machine's physical memory" in told


# --- NUMA and watched directories ------------------------------------------------------------------------------------


def test_numa_comes_from_the_nearest_ancestor_with_a_value(server: FakeHost) -> None:
    """The second GPU has -1, and its bridge 1. A device with both nodes has both NUMA nodes."""
    both = find(server, "/dev/dri/renderD128", "/dev/dri/renderD129").devices[0]
    assert (0, 1) == both.numa
    assert [(0,), (1,)] == [device.numa for device in find(server, "/dev/dri/renderD*").devices]
    assert () == find(server, "/dev/vfio/vfio").devices[0].numa


# --- optional paths alone, and all matches together -------------------------------------------------------------------


def optional(*paths: str) -> tuple[GlobItem, ...]:
    return tuple(GlobItem(path=path, optional=True) for path in paths)


@pytest.mark.parametrize("here", [("ttyS0",), ("ttyUSB0",), ("ttyS0", "ttyUSB0"), ()])
def test_a_device_with_optional_paths_needs_one_of_them(fake: FakeHost, here: tuple[str, ...]) -> None:
    """Its id is the same for all of them."""
    for name in here:
        fake.node(name)

    found = find(fake, *optional("/dev/ttyS0", "/dev/ttyUSB0"))

    assert ([[f"/dev/{name}" for name in here]] if here else []) == nodes(found)
    assert (["e-0"] if here else []) == ids(found)
    assert ([] if here else ["e: warning: glob matches nothing on this node: none of its optional paths is there"]) == (
        messages(found)
    )


def test_watched_directories(fake: FakeHost) -> None:
    """Listed directories, parents of literal paths, and directories of links' targets."""
    fake.node("ttyUSB0")
    fake.link("/dev/serial/by-id/x", "../../ttyUSB0")
    assert {"/dev", "/dev/serial/by-id"} == find(fake, "/dev/serial/by-id/*").watch
    assert {"/dev/missing"} == find(fake, "/dev/missing/*").watch
    assert {"/dev/net"} == find(fake, "/dev/net/tun").watch
