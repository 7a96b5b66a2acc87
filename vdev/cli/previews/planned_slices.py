"""What `vdev plan` says of Dynamic Resource Allocation: each driver's devices, the objects, and what changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.model.syntax.quantity import written
from ...core.slices.devices.published import DraDevice, Pools, PublishedPool
from ...core.slices.objects import cutting
from .. import common

_FIRST = ("memory", "slots", "shares")  # capacities that a table shows
_HEAD = ("DEVICE", "TYPE", "CAPACITY", "CONSUMES", "TAINTS")


def documents(pools: Pools, node: str) -> list[dict[str, Any]]:
    return [document for pool in pools.values() for document in cutting.objects(pool, node)]


def show(pools: Pools, node: str) -> None:
    for pool in pools.values():
        count, slices = len(pool.devices), len(cutting.specifications(pool, node))
        healthy = sum(device.health.healthy for device in pool.devices)
        of = f"{common.counted(count, 'device')} for claims in {common.counted(slices, 'ResourceSlice')}"
        print(f"\n{pool.driver}: {of}, {healthy} healthy")
        common.print_first(_HEAD, _row, pool.devices)


def _row(device: DraDevice) -> tuple[str, ...]:
    kind = device.attributes.get("type")
    words = (str(kind.value) if kind else "", device.device.profile)
    return (
        device.name,
        " ".join(filter(None, words)) or "-",
        _capacity(device) or "-",
        ", ".join(each.counter_set for each in device.consumes) + _slices(device) if device.consumes else "-",
        ", ".join(f"{each.key}{'=' if each.value else ''}{each.value}:{each.effect}" for each in device.taints) or "-",
    )


def _capacity(device: DraDevice) -> str:
    shown = [f"{name} {written(device.capacity[name].value)}" for name in _FIRST if name in device.capacity]
    more = len(device.capacity) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def _slices(device: DraDevice) -> str:
    covered = device.device.slices
    if not covered:
        return " (all)"
    first, last = covered[0], covered[-1]
    return f" (slice{'s' * (last > first)} {first}{f'-{last}' * (last > first)})"


@dataclass(frozen=True, slots=True)
class PoolChange:
    """What becomes of a driver's devices, by name; `before` and `after` are None where it has no pool."""

    driver: str
    before: PublishedPool | None
    after: PublishedPool | None

    @property
    def added(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._after if each.name not in self._names(self.before))

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._devices(self.before) if each.name not in self._names(self.after))

    @property
    def changed(self) -> tuple[str, ...]:
        """Devices of which something else is published."""
        old = self.before.by_name if self.before else {}
        return tuple(each.name for each in self._after if each.name in old and _is_other(old[each.name], each))

    @property
    def _after(self) -> Sequence[DraDevice]:
        return self._devices(self.after)

    @staticmethod
    def _devices(pool: PublishedPool | None) -> Sequence[DraDevice]:
        return pool.devices if pool else ()

    @staticmethod
    def _names(pool: PublishedPool | None) -> frozenset[str]:
        return frozenset(pool.by_name) if pool else frozenset()


def _is_other(one: DraDevice, other: DraDevice) -> bool:
    return cutting.device_document(one) != cutting.device_document(other)


def changes(before: Pools, after: Pools) -> tuple[PoolChange, ...]:
    found = (PoolChange(driver, before.get(driver), after.get(driver)) for driver in sorted({*before, *after}))
    return tuple(
        each
        for each in found
        if each.before is None or each.after is None or each.added or each.removed or each.changed
    )


def change_document(change: PoolChange) -> dict[str, Any]:
    return {
        "driver": change.driver,
        "added": list(change.added),
        "removed": list(change.removed),
        "changed": list(change.changed),
    }


def change_lines(change: PoolChange) -> Iterator[str]:
    if change.after is None:
        yield f"  - {change.driver}: no ResourceSlices any more; devices that claims have are kept"
        return
    count = common.counted(len(change.after.devices), "device")
    if change.before is None:
        yield f"  + {change.driver}: new, {count} for claims"
        return
    yield f"  ~ {change.driver}: {len(change.before.devices)} -> {count} for claims"
    for sign, names in (("+", change.added), ("-", change.removed), ("~", change.changed)):
        yield from common.signed_lines(sign, names)
