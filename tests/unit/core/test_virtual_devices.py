"""Devices of an entry that was edited: those that are the same are the same objects, and no others."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vdev.core.inventory import virtual_devices
from vdev.core.model.device import IdStyle
from vdev.core.model.syntax import names
from vdev.core.spec import EntrySpec, VirtualSource


@st.composite
def entries(draw):
    """An entry of a few devices."""
    count = draw(st.integers(0, 5))
    numa = draw(st.sampled_from([(), (0,), (1,), (0, 1, 0, 1, 0)[:count], (0, 1, 1, 1, 1)[:count]]))
    ids = draw(st.sampled_from([(), ("a", "b", "c", "d", "e")[:count], ("a", "b", "x", "y", "z")[:count]]))
    source = VirtualSource(
        count=count,
        ids=ids,
        numa=numa,
        memory=draw(st.sampled_from([0, 1])),
        attributes=draw(st.sampled_from([{}, {"k": "v"}])),
        id_style=draw(st.sampled_from(IdStyle)),
    )
    name, hidden = draw(st.sampled_from(["n", "m"])), draw(st.booleans())
    return EntrySpec(name=name, resource="acme.dev/r", source=source, exclude_topology=hidden)


def made(entry, known=(), ids=()):
    """Its devices."""
    return tuple(virtual_devices.devices(entry, entry.source, "node", known, ids))


@given(entries(), entries())
def test_the_same_devices(before, entry):
    """Made with what is known or without, they are equal."""
    old = made(before)
    known, ids = virtual_devices.known_of(entry, before, old), virtual_devices.ids_of(entry, before, old)
    assert made(entry) == made(entry, known) == made(entry, known, ids) == made(entry, (), ids)
    assert all(one is other for one, other in zip(old, made(entry, known)[: len(known)], strict=False))


@given(entries())
def test_ids_are_not_made_twice(before):
    """Where the same devices are made with something else about them, their ids are the same objects."""
    entry = replace(before, source=replace(before.source, memory=7))
    old = made(before)
    new = made(entry, (), virtual_devices.ids_of(entry, before, old))
    assert all(one.id is other.id for one, other in zip(old, new, strict=True))


@given(entries(), st.integers(0, 5))
def test_more_of_them(before, count):
    """Another count, and nothing else, leaves the devices that there are."""
    source = replace(before.source, count=count, ids=(), numa=before.source.numa[:1])
    before = replace(before, source=replace(source, count=3))
    entry = replace(before, source=source)
    assert min(3, count) == len(virtual_devices.known_of(entry, before, made(before)))


def test_many_devices_with_a_long_name_have_ids_of_their_own():
    """Their ids are shortened, and of so many, two would share a fingerprint; the later one has a longer one."""
    entry = EntrySpec(name="n" * 50, resource="acme.dev/r", source=VirtualSource(count=70_000))
    fewer = replace(entry, source=VirtualSource(count=60_000))
    ids = [device.id for device in made(entry)]
    assert 70_000 == len(set(ids))
    assert ids[:60_000] == [device.id for device in made(fewer)]
    assert ids == [device.id for device in made(entry, ids=ids[:60_000])]
    assert max(map(len, ids)) <= names.MAX_ID - len("::200000")
