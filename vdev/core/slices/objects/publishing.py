"""What must be written so that the ResourceSlices of a pool are the wanted ones: as Kubernetes' own helper does it.

    wanted specifications ─┐
    slices that are there ─┴─► changes ─► delete, update, create, in this order

The scheduler goes by the slices of the highest generation, and by none of them while there are fewer than they say. So
a change of more than one slice gets a new generation; one slice alone is updated in place (source: Kubernetes 1.36,
k8s.io/dynamic-resource-allocation/resourceslice).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
Made = Callable[[Document, int], Document]
Same = Callable[[Document, Document], bool]

_POOL = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Slices to delete (as they are there), to update (as they shall be), and to create."""

    delete: tuple[Document, ...] = ()
    update: tuple[Document, ...] = ()
    create: tuple[Document, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def content(spec: Document) -> dict[str, Any]:
    """What of a slice is wanted: all but its pool's bookkeeping, and but the times that taints were added."""
    plain = {key: value for key, value in spec.items() if key != _POOL}
    if "devices" in plain:
        plain["devices"] = [_timeless(device) for device in plain["devices"] or ()]
    return plain


def changes(
    wanted: Sequence[Document],
    there: Sequence[Document],
    made: Made,
    *,
    same: Same = lambda wanted, there: content(wanted) == content(there),
    missing: int = 0,
    least: int = 0,
) -> Changes:
    """What leads from the slices of the pool that are `there` to the `wanted` specifications.

    `made` makes a new object of a specification with its number. `same` compares a wanted specification with one that
    is there, where the server stores it otherwise than it was sent. The pool says that it has so many slices more as
    are `missing`, and its generation is at `least` this one.
    """
    count = len(wanted) + missing
    latest = max(map(generation_of, there), default=0)
    current = [each for each in there if generation_of(each) == latest]
    pairs = _paired(wanted, current, same)
    kept = {id(each) for each in pairs if each is not None}
    obsolete = tuple(each for each in there if id(each) not in kept)
    differs = [each is not None and not same(spec, each["spec"]) for spec, each in zip(wanted, pairs, strict=True)]
    counts = {each["spec"][_POOL].get("resourceSliceCount") for each in pairs if each is not None}
    is_small = None not in pairs and sum(differs) <= 1 and counts <= {count} and latest >= least
    generation = latest if is_small else max(latest + 1, least)
    update, create = [], []
    for number, (spec, each, is_other) in enumerate(zip(wanted, pairs, differs, strict=True)):
        pool = {**spec[_POOL], "generation": generation, "resourceSliceCount": count}
        if each is None:
            create.append(made({**spec, _POOL: pool}, number))
        elif is_other or not is_small:
            update.append({**each, "spec": {**_with_times(spec, each["spec"]), _POOL: pool}})
    return Changes(delete=obsolete, update=tuple(update), create=tuple(create))


def generation_of(slice_: Document) -> int:
    return int(slice_["spec"][_POOL].get("generation") or 0)


def _paired(wanted: Sequence[Document], there: Sequence[Document], same: Same) -> list[Document | None]:
    """For each wanted specification the slice that it is, or the one with most of its devices; each slice once."""
    free = sorted(there, key=lambda each: str(each["metadata"].get("name", "")))
    pairs: list[Document | None] = [None] * len(wanted)
    for number, spec in enumerate(wanted):
        pairs[number] = next((each for each in free if same(spec, each["spec"])), None)
        free = [each for each in free if each is not pairs[number]]
    for number, spec in enumerate(wanted):
        if pairs[number] is None and free:
            names = _names(spec)
            best = max(free, key=lambda each: len(names & _names(each["spec"])))
            pairs[number] = best
            free = [each for each in free if each is not best]
    return pairs


def _names(spec: Document) -> frozenset[str]:
    return frozenset(each["name"] for key in ("devices", "sharedCounters") for each in spec.get(key) or ())


def _timeless(device: Document) -> dict[str, Any]:
    if not device.get("taints"):
        return {key: value for key, value in device.items() if key != "taints"}
    taints = [{key: value for key, value in each.items() if key != "timeAdded"} for each in device["taints"]]
    return {**device, "taints": taints}


def _with_times(wanted: Document, there: Document) -> Document:
    """The wanted specification, in which a taint that was there already keeps the time at which it was added."""
    if "devices" not in wanted:
        return wanted
    times = {
        (device["name"], each["key"], each.get("value", ""), each["effect"]): each["timeAdded"]
        for device in there.get("devices") or ()
        for each in device.get("taints") or ()
        if "timeAdded" in each
    }
    return {**wanted, "devices": [_with_time(device, times) for device in wanted["devices"]]}


def _with_time(device: Document, times: Mapping[tuple[str, str, str, str], str]) -> Document:
    if not device.get("taints"):
        return device
    taints = []
    for each in device["taints"]:
        key = (device["name"], each["key"], each.get("value", ""), each["effect"])
        taints.append({**each, "timeAdded": times[key]} if key in times else each)
    return {**device, "taints": taints}
