"""One node of the host is one device: which of those that were found is kept."""

from hypothesis import given
from hypothesis import strategies as st

from vdev.model.device import RawDevice
from vdev.model.entry import EntrySpec
from vdev.model.sources import GlobSource
from vdev.planning import inventory

NODES = [f"char 188:{number}" for number in range(6)]


@st.composite
def findings(draw):
    """Some entries, in the order of the file, and what was found for each."""
    names = [f"e{number}" for number in range(draw(st.integers(1, 4)))]
    found = {}
    for name in names:
        raws = []
        for index in range(draw(st.integers(0, 3))):
            free = draw(st.permutations(NODES))
            cut = draw(st.integers(0, 1))
            owns, uses = (free.pop(),), tuple(free[:cut])
            raws.append(RawDevice(id=f"{name}-{index}", entry=name, index=index, owns=owns, uses=uses))
        found[name] = tuple(raws)
    return [EntrySpec(name=name, resource=f"a.b/{name}", source=GlobSource(paths=())) for name in names], found


@given(findings())
def test_no_device_is_there_twice(case):
    """What is left has no twin; what is left out has one that comes first, in its own entry or an earlier one."""
    entries, found = case
    settled = inventory.settle(entries, found)
    had = [raw for raws in settled.devices.values() for raw in raws]
    assert not [(one.id, other.id) for one in had for other in had if one is not other and inventory.same(one, other)]
    place = {entry.name: number for number, entry in enumerate(entries)}
    for raw in (raw for raws in found.values() for raw in raws if raw.id in settled.left_out):
        rank = place[raw.entry], raw.index
        assert any(inventory.same(raw, other) and (place[other.entry], other.index) < rank for other in had)
    assert {raw.id for raws in found.values() for raw in raws} == {raw.id for raw in had} | settled.left_out
    assert bool(settled.left_out) == bool(settled.problems)


@given(findings())
def test_the_order_of_the_scans_does_not_matter(case):
    """Only that of the entries does."""
    entries, found = case
    assert inventory.settle(entries, found) == inventory.settle(entries, dict(reversed(found.items())))
