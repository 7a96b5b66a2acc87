"""USB devices: ids by serial number or port, children, classes."""

from tests.kit.fakehost import FakeHost
from tests.kit.specs import made_entry
from vdev import discovery
from vdev.discovery import Found, Numbering
from vdev.model.sources import GroupBy, Usb

BUS = "pci0000:00/0000:00:14.0/usb1"


def find(
    fake: FakeHost, *sticks: Usb, numbering: Numbering | None = None, group_by: GroupBy = GroupBy.POSITION
) -> Found:
    entry = made_entry("e", "example.com/e", usb=sticks, group_by=group_by)
    return discovery.discover(entry, fake.host, node="n", numbering=numbering)


def nodes(found: Found) -> dict[str, list[str]]:
    return {device.id: [node.host_path for node in device.nodes] for device in found.devices}


def stick(fake: FakeHost, port: str, number: int, serial: str = "A1", product: str = "2838") -> None:
    """Plug an SDR stick into a port, as device `number` of bus 1."""
    fake.plug(
        f"{BUS}/{port}",
        bus="usb",
        idVendor="0bda",
        idProduct=product,
        serial=serial,
        busnum=1,
        devnum=number,
        node={"path": f"bus/usb/001/{number:03}", "number": f"189:{number - 1}"},
    )


SDR = Usb(vendor="0bda", product="2838")


def test_selectors(subtests, desk):
    """Ids, serial number, port, and the class of the device or of an interface."""
    cases = [
        (Usb(vendor="1050"), ["1-2"]),
        (Usb(vendor="1a86", product="7523"), ["1-1.1", "1-1.2"]),
        (Usb(vendor="1a86", product="0000"), []),
        (Usb(serial="8ad5*"), ["1-1.3"]),
        (Usb(port="1-1.[12]"), ["1-1.1", "1-1.2"]),
        (Usb(**{"class": "0e"}), ["1-4"]),
        (Usb(**{"class": "0x3"}), ["1-2"]),
        (Usb(**{"class": "09"}), ["1-1", "usb1"]),
        (Usb(vendor="1050", serial="*"), []),
    ]
    for source, ports in cases:
        with subtests.test(source=source):
            assert ports == [device.attributes["port"] for device in find(desk, source).devices]


def test_a_device_has_the_nodes_of_its_children(desk: FakeHost) -> None:
    found = find(desk, Usb(vendor="1050", product="0407", children=("hidraw", "input")))
    assert {"e_1-2": ["/dev/bus/usb/001/007", "/dev/hidraw1", "/dev/input/event3"]} == nodes(found)


def test_every_match_is_a_separate_device(desk: FakeHost) -> None:
    """Two adapters with the same serial number differ by port."""
    found = find(desk, Usb(vendor="1a86", children=("tty",), containerPath="/dev/ttyV{index}"))
    assert {
        "e_1-1.1": ["/dev/bus/usb/001/010", "/dev/ttyUSB0"],
        "e_1-1.2": ["/dev/bus/usb/001/011", "/dev/ttyUSB1"],
    } == nodes(found)
    assert ["/dev/ttyV0", "/dev/ttyV1"] == [device.nodes[1].container_path for device in found.devices]


def test_a_replug_keeps_the_id_by_serial_number(fake: FakeHost) -> None:
    """Port and device number change."""
    stick(fake, "1-3", 5)
    before = find(fake, SDR)
    fake.unplug(f"{BUS}/1-3")
    stick(fake, "1-6", 9)
    assert ({"e-A1": ["/dev/bus/usb/001/005"]}, {"e-A1": ["/dev/bus/usb/001/009"]}) == (
        nodes(before),
        nodes(find(fake, SDR)),
    )


def test_a_replug_without_serial_number_keeps_the_id_by_port(desk: FakeHost) -> None:
    """The device number changes."""
    assert ["e_1-2"] == list(nodes(find(desk, Usb(vendor="1050"))))
    desk.unplug(f"{BUS}/1-2")
    desk.plug(
        f"{BUS}/1-2", bus="usb", idVendor="1050", idProduct="0407", node={"path": "bus/usb/001/033", "number": "189:32"}
    )
    assert {"e_1-2": ["/dev/bus/usb/001/033"]} == nodes(find(desk, Usb(vendor="1050")))


def test_a_missing_bus_node_is_unhealthy(fake: FakeHost) -> None:
    """Sysfs is briefly ahead of /dev, or /dev/bus/usb is not mounted."""
    stick(fake, "1-3", 5)
    fake.remove("/dev/bus/usb/001/005")
    found = find(fake, SDR)
    assert "/dev/bus/usb/001/005 is missing" == found.devices[0].health.reason
    assert {"/sys/bus/usb/devices", "/dev/bus/usb/001"} == found.watch


def test_each_candidate_has_its_reasons(desk: FakeHost) -> None:
    """The camera's vendor matches, its product does not."""
    found = find(desk, Usb(vendor="046d", product="0825"))
    camera = next(each for each in found.candidates if each.path.endswith("/1-4"))
    assert ("ok: vendor = 046d", "no: product = 0825, found 082d") == camera.why
    assert ["e: warning: usb vendor 046d product 0825 matches no device on this node"] == [
        str(problem) for problem in found.problems
    ]
    assert 7 == len(found.candidates)


def test_a_host_without_usb_is_a_warning(fake: FakeHost) -> None:
    found = find(fake, SDR)
    assert ((), 1) == (found.devices, len(found.problems))


def test_control_characters_of_a_device_are_not_shown(fake: FakeHost) -> None:
    """The reason has one line without escape sequences."""
    stick(fake, "1-1", 1, serial="A\x1b[2J\nok: all")
    (candidate,) = find(fake, Usb(vendor="0bda", serial="B*")).candidates
    assert "no: serial = B*, found A [2J ok: all" in candidate.why


# --- devices of several USB devices -----------------------------------------------------------------------------------


def bus(*numbers: int) -> list[str]:
    return [f"/dev/bus/usb/001/{number:03}" for number in numbers]


DONGLE = Usb(vendor="0bda", product="4711")


def test_a_device_has_one_match_of_each_selector(fake: FakeHost) -> None:
    """Its id is that of the first. A match without a partner is no device."""
    stick(fake, "1-1", 11, "A1")
    stick(fake, "1-2", 12, "D1", product="4711")
    stick(fake, "1-3", 13, "A2")
    stick(fake, "1-4", 14, "D2", product="4711")
    stick(fake, "1-5", 15, "A3")

    found = find(fake, SDR, DONGLE)

    assert {"e-A1": bus(11, 12), "e-A2": bus(13, 14)} == nodes(found)
    assert [("char 189:10", "char 189:11"), ("char 189:12", "char 189:13")] == [device.owns for device in found.devices]
    assert not found.problems
