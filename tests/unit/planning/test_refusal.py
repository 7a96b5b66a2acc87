"""Facts of devices in templates: values that lead to another directory or have another meaning are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.specs import made_entry, made_spec
from vdev.errors import AllocationError
from vdev.model.device import DeviceNode, RawDevice
from vdev.model.entry import Action, Container, DeviceListStrategy
from vdev.model.sources import Usb
from vdev.model.spec import DEFAULT_FLAGS
from vdev.model.template import parse
from vdev.planning import allocation, cdi
from vdev.planning.allocation import cdi_documents, container_edits
from vdev.planning.inventory import arrange

NAME = "acme.dev/dongle"
CRI = (DeviceListStrategy.ENVVAR, DeviceListStrategy.CDI_CRI)


def usb(**keys):
    return {"usb": (Usb(vendor="1050", children=("hidraw",), **keys),)}


USB = usb()


def path(text):
    return Container(mounts=({"hostPath": parse(text), "containerPath": "/data"},))


def inside(text):
    return Container(mounts=({"hostPath": "/opt", "containerPath": parse(text)},))


def node(text):
    return Container(deviceNodes=({"hostPath": parse(text), "containerPath": "/dev/x"},))


def variable(text):
    return Container(env={"X": parse(text)})


def annotation(text):
    return Container(annotations={"x": parse(text)})


def raw(number, **changes):
    """A USB device, as discovery finds it."""
    facts = {"serial": f"S{number}", "port": f"1-{number}", "hidraw": "hidraw0,hidraw1"} | changes.pop("attributes", {})
    usb = f"/dev/bus/usb/001/00{number}"
    common = {"nodes": (DeviceNode(usb, usb),), "paths": (usb,), "attributes": facts}
    return RawDevice(id=f"e-{number}", entry="e", index=number, **common | changes)


def arranged(raws, source=USB, **changes):
    """The node with these devices."""
    entry = made_entry("e", NAME, **source, where="t.yaml:4:5: devices[0]", **changes)
    flags = DEFAULT_FLAGS.with_plugin(device_list_strategy=CRI)
    return arrange(made_spec(entry, flags=flags), "n", {"e": raws})


def reasons(stock):
    return {slot.id: slot.health.reason for slot in stock.resources[NAME].slots}


def test_a_device_with_such_a_serial_is_unhealthy_alone(subtests):
    """It is listed with the reason, not granted, and not in the CDI specification. The next device works."""
    cases = [
        (path, "../../../etc", "it would lead to another directory"),
        (path, "a/b", "it would lead to another directory"),
        (path, "..", "it would lead to another directory"),
        (path, "", "lacks a part"),
        (path, "a\nb", "a path must not have control characters"),
        (path, "a\x1b[2J", "a path must not have control characters"),
        (path, "a\u202eb", "a path must not have control characters"),
        (path, "a\udcffb", "a path must not have control characters"),
        (inside, "../../../etc", "it would lead to another directory"),
        (node, "../mem", "it would lead to another directory"),
        (variable, "A,B", "its comma would be read as two values"),
        (variable, "A\nLD_PRELOAD=/x", "a variable must not have control characters"),
        (variable, "A\udcffB", "a variable must not have control characters"),
        (annotation, "A\x00B", "an annotation must not have control characters"),
    ]
    for make, serial, said in cases:
        with subtests.test(make=make):
            text = "{attributes.serial}" if make in (variable, annotation) else "/srv/{attributes.serial}"
            stock = arranged([raw(1, attributes={"serial": serial}), raw(2)], container=make(text))
            found = reasons(stock)
            assert "" == found["e-2"]
            assert said in found["e-1"]
            assert found["e-1"].isprintable()
            assert frozenset({"e-1"}) == stock.left_out
            ((problem),) = stock.problems
            assert "t.yaml:4:5: devices[0]" == problem.where
            assert said in problem.message
            with pytest.raises(AllocationError, match="not handed out"):
                allocation.allocate(stock.resources[NAME], ["e-1"])
            container_edits(stock.resources[NAME], allocation.allocate(stock.resources[NAME], ["e-2"]))
            (document,) = cdi_documents(stock).values()
            assert ["e-2"] == [device["name"] for device in document["devices"]]


def test_valid_values(subtests):
    """Plain names, whole paths, lists from discovery, commas in the configuration, text in annotations."""
    cases = [
        path("/srv/{attributes.serial}"),
        path("/srv{path}/x"),
        inside("/run/{id}/{index}"),
        node("/srv{path}"),
        variable("{attributes.serial}:{attributes.hidraw},{numa}"),
        annotation("{attributes.maker}"),
        variable("a,b\nc"),
        path("/srv/dongle{attributes.nothing}"),
    ]
    for container in cases:
        with subtests.test(container=container):
            found = raw(1, attributes={"serial": "DN0:43-A_b.c #1", "maker": "Acme, Inc."})
            stock = arranged([found, raw(2)], container=container)
            assert {"e-1": "", "e-2": ""} == reasons(stock)
            assert () == stock.problems


def test_a_word_that_looks_like_an_option():
    """The serial number `-rf` is refused only at the beginning of a word."""
    for text, refused in (("{attributes.serial}", True), ("--of={attributes.serial}", False)):
        action = Action(command=(parse("wipe"), parse(text)))
        stock = arranged([raw(1, attributes={"serial": "-rf"})], on_release=(action,))
        assert refused == bool(reasons(stock)["e-1"])


def test_virtual_devices_are_trusted(build):
    """The user writes their attributes, so they may have commas, line breaks and directories."""
    facts = {"model": "Acme, Inc.\nX1", "where": "a/b", "away": "../x"}
    for text, refused in (
        ("/srv/{attributes.where}", False),
        ("/srv/{attributes.away}", True),
        ("/s/{profile}", False),
    ):
        entry = build.entry(container=path(text).model_copy(update={"env": variable("{attributes.model}").env}))
        stock = build.inventory(entry, found={"gpu": build.raws(entry, attributes=facts)})
        slots = stock.resources["nvidia.com/gpu"].slots
        assert [refused, refused] == [bool(slot.health.reason) for slot in slots]
        assert len(stock.problems) == refused


_TEXTS = st.text(max_size=12) | st.sampled_from(["..", ".", "a,b", "/", "-x", "\udcff", "../../etc", "x\n"])


@given(serial=_TEXTS, other=_TEXTS)
def test_facts_of_a_device_stay_in_their_place(serial, other):
    """Paths stay below the written directory, and each device has one value of a variable."""
    container = Container(
        env={"X": "{attributes.serial}"},
        mounts=({"hostPath": "/srv/{attributes.serial}/{attributes.other}x", "containerPath": "/data"},),
    )
    found = [raw(1, attributes={"serial": serial, "other": other})]
    stock = arranged(found, container=container)
    if reasons(stock)["e-1"]:
        return
    edits = container_edits(stock.resources[NAME], allocation.allocate(stock.resources[NAME], ["e-1"]))
    (mount,) = edits.mounts.values()
    assert ["", "srv", serial, f"{other}x"] == mount.host_path.split("/")
    assert [serial] == edits.env["X"].split(",")
    assert cdi.is_document(cdi_documents(stock)["k8s.device-plugin.acme.dev/dongle"])
    mount.host_path.encode()
