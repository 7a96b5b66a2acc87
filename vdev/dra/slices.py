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
    new = changes(specifications(pool, node), ()).create
    return tuple({"apiVersion": API_VERSION, "kind": "ResourceSlice", **each} for each in new)


def _new(number: int, spec: Written) -> Document:
    """A slice to create. Its name begins with the number of its specification, and is cut to the allowed length."""
    name = f"{_number(number)}-{spec['driver']}-{spec['nodeName']}"
    return {"metadata": {"generateName": name[: _LONGEST_NAME - 1].rstrip(".-") + "-"}, "spec": spec}


def _number(number: int) -> str:
    return f"{number:05x}"


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
    """Slices to delete, to update (in their new form), and to create."""

    delete: tuple[Written, ...] = ()
    update: tuple[Written, ...] = ()
    create: tuple[Written, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def without(value: Any, fields: Collection[str]) -> Any:
    """A specification without these fields, also of its devices and their capacities."""
    if isinstance(value, list):
        return [without(each, fields) for each in value]
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if key not in fields}
        return {key: each if key == "attributes" else without(each, fields) for key, each in kept.items()}
    return value


def changes(
    wanted: Sequence[Written],
    present: Sequence[Written],
    *,
    missing: int = 0,
    least: int = 0,
) -> Changes:
    """Return the changes from the present slices of the pool to the `wanted` specifications.

    The name of a slice begins with the number of its specification. For faults, the slice count of the pool is too high
    by `missing`, and its generation is at least `least`.
    """
    latest = max(map(generation_of, present), default=0)
    pool = {"generation": latest, "resourceSliceCount": len(wanted) + missing}
    numbered = {each["metadata"]["name"].partition("-")[0]: each for each in sorted(present, key=generation_of)}
    pairs: list[tuple[Written, Written | None]] = []
    for number, spec in enumerate(wanted):
        each = numbered.get(_number(number))
        spec = _with_times(spec, each["spec"]) if each else spec
        pairs.append(({**spec, "pool": {**spec["pool"], **pool}}, each))

    # One slice may change in place. Several changes need a new generation, so that the scheduler waits for all slices.
    is_current = all(each and each["spec"]["pool"] == spec["pool"] for spec, each in pairs)
    changed = [(spec, each) for spec, each in pairs if each and not _is_same(spec, each["spec"])]
    if not is_current or len(changed) > 1 or latest < least:
        pool["generation"] = max(latest + 1, least)
        pairs = [({**spec, "pool": {**spec["pool"], **pool}}, each) for spec, each in pairs]
        changed = [(spec, each) for spec, each in pairs if each]
    kept = {id(each) for _, each in pairs}
    return Changes(
        delete=tuple(each for each in present if id(each) not in kept),
        update=tuple({**each, "spec": spec} for spec, each in changed),
        create=tuple(_new(number, spec) for number, (spec, each) in enumerate(pairs) if each is None),
    )


def _is_same(wanted: Written, present: Written) -> bool:
    """Whether two specifications are equal, except for the pool. The server does not store empty lists."""
    one, other = ({key: each for key, each in spec.items() if each and key != "pool"} for spec in (wanted, present))
    return one == other


def generation_of(slice_: Written) -> int:
    return int(slice_["spec"]["pool"].get("generation") or 0)


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


def spoilt(fault: str, wanted: Sequence[Written], present: Sequence[Written]) -> Changes:
    """Return the changes that inject this fault into the slices; empty if they already have it."""
    match fault:
        case "incomplete":
            return changes(wanted, present, missing=1)
        case "duplicateName":  # in an additional slice, because the server refuses duplicates within one slice
            again = [{**spec, "devices": spec["devices"][:1]} for spec in wanted if spec.get("devices")]
            return changes([*wanted, *again[:1]], present)
        case "oldGeneration" if wanted:
            old = [each for each in present if each["spec"].get("devices") == [{"name": STALE}]]
            found = changes(wanted, [each for each in present if each not in old], least=2)
            if old:
                return found
            pool = {**wanted[-1]["pool"], "generation": 1, "resourceSliceCount": 1}
            obsolete = {**wanted[-1], "pool": pool, "devices": [{"name": STALE}]}
            return replace(found, create=(*found.create, _new(len(wanted), obsolete)))
        case "oldGeneration":
            return changes(wanted, present)
        case _:  # nothing is written
            return Changes()
