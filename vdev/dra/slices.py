"""ResourceSlices: divides the pool of a driver into slices, and compares these with the slices in the API server."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.dra import DeviceCapacity
from ..model.quantity import written
from .published_devices import DraDevice, PublishedPool

Document = dict[str, Any]
Written = Mapping[str, Any]

MOST_DEVICES = 64
"""The maximum of devices in a slice with taints or counters. It is used for all, as any device may get taints."""
MOST_SETS = 8
_LONGEST_NAME = 253
API_VERSION = "resource.k8s.io/v1"
"""The version of API servers from 1.34 on."""


def specifications(pool: PublishedPool, node: str) -> tuple[Document, ...]:
    """The `spec` of each slice of the pool. An empty pool has one empty slice, which shows that the driver runs.

    Counters are in separate slices, as API servers require since 1.35.
    """
    sets = [{"name": name, "counters": _counters(each)} for name, each in pool.counters.items()]
    devices = [device_document(each) for each in pool.devices]
    found = [{"sharedCounters": some} for some in _batches(sets, MOST_SETS)]
    found += [{"devices": some} for some in _batches(devices, MOST_DEVICES)]
    return tuple(
        {"driver": pool.driver, "pool": {"name": node}, "nodeName": node, **content}
        for content in found or [{"devices": []}]
    )


def objects(pool: PublishedPool, node: str) -> tuple[Document, ...]:
    """The slices of a new pool, without the Node's uid, which only the server knows."""
    return tuple(
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"generateName": generate_name(pool.driver, node, number)},
            "spec": spec,
        }
        for number, spec in changes(specifications(pool, node), ()).create
    )


def generate_name(driver: str, node: str, number: int) -> str:
    """The prefix of a slice's name, cut to the allowed length. The number sorts the slices of a pool."""
    return f"{number:05x}-{driver}-{node}"[: _LONGEST_NAME - 1].rstrip(".-") + "-"


def _batches(items: list[Document], most: int) -> Iterator[list[Document]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _counters(amounts: Mapping[str, int]) -> Document:
    return {name: {"value": written(amount)} for name, amount in amounts.items()}


def device_document(device: DraDevice) -> Document:
    found: Document = {
        "name": device.name,
        "attributes": {key: {each.kind.value: each.value} for key, each in device.attributes.items()},
    }
    if device.capacity:
        found["capacity"] = {key: _capacity(each) for key, each in device.capacity.items()}
    if device.consumes:
        found["consumesCounters"] = [
            {"counterSet": name, "counters": _counters(each)} for name, each in device.consumes.items()
        ]
    if device.taints:
        found["taints"] = [
            {"key": each.key, **({"value": each.value} if each.value else {}), "effect": each.effect}
            for each in device.taints
        ]
    if device.shared:
        found["allowMultipleAllocations"] = True
    return found


def _capacity(capacity: DeviceCapacity) -> Document:
    found: Document = {"value": written(capacity.value)}
    if policy := capacity.policy:
        found["requestPolicy"] = {"default": written(policy.default)}
        limits = {"min": policy.least, "max": policy.most, "step": policy.step}
        if valid := {key: written(amount) for key, amount in limits.items() if amount is not None}:
            found["requestPolicy"]["validRange"] = valid
        if policy.values:
            found["requestPolicy"]["validValues"] = [written(amount) for amount in policy.values]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Slices to delete, to update (in their new form), and to create (the number of each and its specification)."""

    delete: tuple[Written, ...] = ()
    update: tuple[Written, ...] = ()
    create: tuple[tuple[int, Written], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def content(spec: Written) -> Document:
    """The part of a slice's specification that comparisons use.

    It leaves out the pool's generation and slice count, the times of taints, and empty fields, which the server does
    not store.
    """
    return without({**spec, "pool": None}, {"timeAdded"})


def without(spec: Written, fields: Collection[str]) -> Document:
    """The specification without these fields, also of its devices and their capacities, and without empty ones."""
    kept = {key: each for key, each in spec.items() if key not in fields and each not in (None, [], {})}
    return {key: each if key == "attributes" else _without(each, fields) for key, each in kept.items()}


def _without(value: Any, fields: Collection[str]) -> Any:
    if isinstance(value, list):
        return [_without(each, fields) for each in value]
    return without(value, fields) if isinstance(value, Mapping) else value


def changes(
    wanted: Sequence[Written],
    present: Sequence[Written],
    *,
    missing: int = 0,
    least: int = 0,
) -> Changes:
    """Return the changes from the present slices of the pool to the `wanted` specifications.

    For faults, the slice count of the pool is too high by `missing`, and its generation is at least `least`.
    """
    count = len(wanted) + missing
    latest = max(map(generation_of, present), default=0)
    pairs = _paired(wanted, [each for each in present if generation_of(each) == latest])
    kept = {id(each) for each, _ in pairs if each is not None}
    obsolete = tuple(each for each in present if id(each) not in kept)
    counts = {each["spec"]["pool"].get("resourceSliceCount") for each, _ in pairs if each is not None}
    # One slice may change in place. Several changes need a new generation, so that the scheduler waits for all slices.
    is_small = sum(not is_same for _, is_same in pairs) <= 1 and counts <= {count} and latest >= least
    is_small = is_small and all(each is not None for each, _ in pairs)
    generation = latest if is_small else max(latest + 1, least)
    update, create = [], []
    for number, (spec, (each, is_same)) in enumerate(zip(wanted, pairs, strict=True)):
        pool = {**spec["pool"], "generation": generation, "resourceSliceCount": count}
        if each is None:
            create.append((number, {**spec, "pool": pool}))
        elif not (is_same and is_small):
            update.append({**each, "spec": {**_with_times(spec, each["spec"]), "pool": pool}})
    return Changes(delete=obsolete, update=tuple(update), create=tuple(create))


def generation_of(slice_: Written) -> int:
    return int(slice_["spec"]["pool"].get("generation") or 0)


def _paired(wanted: Sequence[Written], present: Sequence[Written]) -> list[tuple[Written | None, bool]]:
    """Assign an existing slice to each wanted specification, if one is left; and whether its content is the same."""
    in_order = sorted(present, key=lambda each: each["metadata"]["name"])
    free = [(each, content(each["spec"])) for each in in_order]
    pairs: list[tuple[Written | None, bool]] = []
    for spec in wanted:
        asked = content(spec)
        same = next((number for number, (_, has) in enumerate(free) if has == asked), None)
        pairs.append((None, False) if same is None else (free.pop(same)[0], True))
    return [(free.pop(0)[0], False) if each is None and free else (each, is_same) for each, is_same in pairs]


def _with_times(wanted: Written, present: Written) -> Written:
    """The wanted specification, in which existing taints keep their time."""
    times = {
        (device["name"], *_taint(each)): each.get("timeAdded")
        for device in present.get("devices") or ()
        for each in device.get("taints") or ()
    }

    def with_time(device: Written) -> Written:
        taints = [
            {**each, "timeAdded": at} if (at := times.get((device["name"], *_taint(each)))) else each
            for each in device["taints"]
        ]
        return {**device, "taints": taints}

    devices = [with_time(each) if each.get("taints") else each for each in wanted.get("devices", ())]
    return {**wanted, "devices": devices} if devices else wanted


def _taint(taint: Written) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


STALE = "vdev-stale"
"""The device of an obsolete slice."""
_OLD, _NEW = 1, 2  # generations


def spoilt(fault: str, wanted: Sequence[Written], present: Sequence[Written]) -> Changes:
    """Return the changes that inject this fault into the slices; empty if they already have it."""
    match fault:
        case "incomplete":
            return changes(wanted, present, missing=1)
        case "duplicateName":
            return changes([*wanted, *_again(wanted)], present)
        case "oldGeneration":
            return _beside_old(wanted, present)
        case _:  # nothing is written
            return Changes()


def _again(wanted: Sequence[Written]) -> Sequence[Written]:
    """An additional slice with the pool's first device, because the server refuses duplicates within one slice."""
    first = next((each for each in wanted if each.get("devices")), None)
    return [] if first is None else [{**first, "devices": first["devices"][:1]}]


def _beside_old(wanted: Sequence[Written], present: Sequence[Written]) -> Changes:
    """The changes to the correct pool and an additional slice of an earlier generation."""
    latest = max((_NEW, *map(generation_of, present)))
    old = [each for each in present if generation_of(each) < latest]
    current = [each for each in present if generation_of(each) == latest]
    if present and not current:
        old, current = [], list(present)
    found = changes(wanted, current, least=_NEW)
    if old or not wanted:
        return found
    pool = {**wanted[-1]["pool"], "generation": _OLD, "resourceSliceCount": 1}
    node = wanted[-1]["nodeName"]
    obsolete = {"driver": wanted[-1]["driver"], "nodeName": node, "pool": pool, "devices": [{"name": STALE}]}
    return replace(found, create=(*found.create, (len(wanted), obsolete)))
