"""What a driver with a fault writes of a pool's slices, in the place of `publishing.changes`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...model.faults.fault_effects import SliceFault
from .publishing import Changes, Document, Made, Same, changes, generation_of

STALE = "vdev-stale"
"""The device of a slice that should be gone."""
_OLD, _NEW = 1, 2  # generations


def spoilt(
    fault: SliceFault, wanted: Sequence[Document], there: Sequence[Document], made: Made, *, same: Same
) -> Changes:
    """What leads to slices with this fault; without a change once they have it."""
    match fault:
        case SliceFault.INCOMPLETE:
            return changes(wanted, there, made, same=same, missing=1)
        case SliceFault.DUPLICATE_NAME:
            return changes([*wanted, *_again(wanted)], there, made, same=same)
        case SliceFault.OLD_GENERATION:
            return _beside_old(wanted, there, made, same)
        case SliceFault.LATE | SliceFault.WITHHELD | SliceFault.WIPED:
            return Changes()


def _again(wanted: Sequence[Document]) -> Sequence[Document]:
    """A slice with the pool's first device, which another slice has already: within one the server refuses that."""
    first = next((each for each in wanted if each.get("devices")), None)
    return [] if first is None else [_alone(first, _plain(first["devices"][0]))]


def _beside_old(wanted: Sequence[Document], there: Sequence[Document], made: Made, same: Same) -> Changes:
    """The pool as it should be, and a slice that an earlier generation has left."""
    latest = max((_NEW, *map(generation_of, there)))
    old = [each for each in there if generation_of(each) < latest]
    current = [each for each in there if generation_of(each) == latest]
    if there and not current:
        old, current = [], list(there)
    found = changes(wanted, current, made, same=same, least=_NEW)
    if old or not wanted:
        return found
    left = _alone(wanted[-1], {"name": STALE})
    left["pool"] = {**left["pool"], "generation": _OLD, "resourceSliceCount": 1}
    return replace(found, create=(*found.create, made(left, len(wanted))))


def _alone(spec: Document, device: Document) -> dict[str, Any]:
    """A slice of the same pool with nothing but this device."""
    return {**{key: value for key, value in spec.items() if key != "sharedCounters"}, "devices": [device]}


def _plain(device: Document) -> dict[str, Any]:
    """The device without what only its own slice can have."""
    return {key: value for key, value in device.items() if key != "consumesCounters"}
