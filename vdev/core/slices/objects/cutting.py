"""Pools as ResourceSlices, within the limits of resource.k8s.io/v1 (Kubernetes 1.36).

The order is that of preference: the scheduler takes the first device that fits, slices by name, devices as they stand.
Who publishes them fills in the pool's generation and the number of its slices.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from ...model.dra import Attribute, DeviceCapacity
from ...model.syntax.quantity import written
from ..devices.published import CounterSet, DraDevice, PublishedPool, Taint

Document = dict[str, Any]
_Item = TypeVar("_Item")

MOST_DEVICES = 128
MOST_TIGHT = 64
"""Devices of a slice, where one of them has taints or consumes counters."""
MOST_SETS = 8
_LONGEST_NAME = 253
API_VERSION = "resource.k8s.io/v1"
"""What servers have from 1.34 on."""


def specifications(pool: PublishedPool, node: str, *, split: bool = True) -> tuple[Document, ...]:
    """The `spec` of each slice of the pool; one without devices where there are none, which says that the driver is up.

    With `split`, counters are in slices of their own, as servers want them from 1.35 on; 1.34 wants them beside the
    devices that consume them.
    """
    sets = _batches(pool.counters if split else (), MOST_SETS)
    found = [{"sharedCounters": [_set(each) for each in some]} for some in sets]
    found += _devices(pool, split=split)
    return tuple(
        {"driver": pool.driver, "pool": {"name": node}, "nodeName": node, **content}
        for content in found or [{"devices": []}]
    )


def objects(pool: PublishedPool, node: str, *, split: bool = True, generation: int = 1) -> tuple[Document, ...]:
    """The slices as they are created the first time, without what only the server knows: the Node's uid."""
    specs = specifications(pool, node, split=split)
    return tuple(
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"generateName": generate_name(pool.driver, node, number)},
            "spec": {**spec, "pool": {"name": node, "generation": generation, "resourceSliceCount": len(specs)}},
        }
        for number, spec in enumerate(specs)
    )


def generate_name(driver: str, node: str, number: int) -> str:
    """The beginning of a slice's name, which keeps the slices of a pool in order; of long names the beginning only."""
    return f"{number:05x}-{driver}-{node}"[: _LONGEST_NAME - 1].rstrip(".-") + "-"


def _devices(pool: PublishedPool, *, split: bool) -> Iterator[Document]:
    """Devices that share counters are in one slice, as NVIDIA's driver has them; all others fill slices up.

    Counters beside their devices cannot be in a second slice: there, of devices beyond one slice the last are left out.
    """
    sets = {each.name: each for each in pool.counters}
    most = MOST_TIGHT if pool.tight else MOST_DEVICES
    for consumed, run in _runs(pool.devices):
        beside = {} if split or not consumed else {"sharedCounters": [_set(sets[name]) for name in consumed]}
        for devices in _batches(run[:most] if beside else run, most):
            yield {**beside, "devices": [device_document(each) for each in devices]}


def _batches(items: Sequence[_Item], most: int) -> Iterator[Sequence[_Item]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _runs(devices: Iterable[DraDevice]) -> list[tuple[tuple[str, ...], list[DraDevice]]]:
    """The devices in order, by the counters that they take from; those of one set are together."""
    runs: list[tuple[tuple[str, ...], list[DraDevice]]] = []
    of_sets: dict[tuple[str, ...], list[DraDevice]] = {}
    for consumed, run in groupby(devices, lambda device: tuple(each.counter_set for each in device.consumes)):
        if consumed in of_sets:
            of_sets[consumed] += run
            continue
        runs.append((consumed, list(run)))
        if consumed:
            of_sets[consumed] = runs[-1][1]
    return runs


def _set(counters: CounterSet) -> Document:
    return {"name": counters.name, "counters": _counters(counters.counters.items())}


def _counters(items: Iterable[tuple[str, int]]) -> Document:
    return {name: {"value": written(amount)} for name, amount in items}


def device_document(device: DraDevice) -> Document:
    found: Document = {
        "name": device.name,
        "attributes": {key: _value(each) for key, each in device.attributes.items()},
    }
    if device.capacity:
        found["capacity"] = {key: _capacity(each) for key, each in device.capacity.items()}
    if device.consumes:
        found["consumesCounters"] = [
            {"counterSet": each.counter_set, "counters": _counters(each.counters.items())} for each in device.consumes
        ]
    if device.taints:
        found["taints"] = _taints(device.taints)
    if device.shared:
        found["allowMultipleAllocations"] = True
    return found


def _value(attribute: Attribute) -> Document:
    return {attribute.kind.value: attribute.value}


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


def _taints(taints: Sequence[Taint]) -> list[Document]:
    return [
        {"key": each.key, **({"value": each.value} if each.value else {}), "effect": each.effect} for each in taints
    ]
