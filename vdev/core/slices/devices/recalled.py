"""What of a published device is written down with the claim that has it, so that the next process can go on publishing
it though it is away by then.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...model.device import GONE, Device, RawDevice
from ...model.dra import Attribute, AttributeKind, DeviceCapacity, RequestPolicy
from .published import Consumption, CounterSet, DraDevice, Taint

Record = Mapping[str, Any]


def record(device: DraDevice, counters: tuple[CounterSet, ...], lost: tuple[Taint, ...]) -> Record:
    """The record, as JSON has it. `lost` are the taints that the device gets when it is away."""
    core = device.device
    used = {consumed.counter_set for consumed in device.consumes}
    return {
        "id": core.id,
        "raw": core.raw.id,
        "entry": core.raw.entry,
        "index": core.raw.index,
        "ordinal": core.ordinal,
        "profile": core.profile,
        "slices": [core.slices.start, core.slices.stop],
        "facts": {
            "numa": list(core.raw.numa),
            "memory": core.raw.memory,
            "paths": list(core.raw.paths),
            "attributes": dict(core.raw.attributes),
        },
        "attributes": {name: [each.kind.value, each.value] for name, each in device.attributes.items()},
        "capacity": {name: [each.value, _policy(each.policy)] for name, each in device.capacity.items()},
        "consumes": {each.counter_set: dict(each.counters) for each in device.consumes},
        "counters": {each.name: dict(each.counters) for each in counters if each.name in used},
        "shared": device.shared,
        "lost": [[each.key, each.effect, each.value] for each in lost],
    }


def _policy(policy: RequestPolicy | None) -> list[Any] | None:
    return None if policy is None else [policy.default, policy.least, policy.most, policy.step, [*policy.values]]


def recalled(name: str, written: Record) -> tuple[DraDevice, tuple[CounterSet, ...]] | None:
    """The device as it is published while it is away, and the counters that it takes from; None without a record."""
    if not written:
        return None
    try:
        return _device(name, written), tuple(CounterSet(key, each) for key, each in written["counters"].items())
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # not of this version


def _policy_of(
    default: int, least: int | None, most: int | None, step: int | None, values: Sequence[int] = ()
) -> RequestPolicy:
    """An older version wrote down no values."""
    return RequestPolicy(default, least, most, step, tuple(values))


def _device(name: str, written: Record) -> DraDevice:
    facts = written.get("facts") or {}  # what an older version wrote down has none
    raw = RawDevice(
        id=written["raw"],
        entry=written["entry"],
        index=written["index"],
        numa=tuple(facts.get("numa", ())),
        memory=facts.get("memory", 0),
        paths=tuple(facts.get("paths", ())),
        attributes=facts.get("attributes", {}),
    )
    core = Device(
        id=written["id"],
        raw=raw,
        ordinal=written["ordinal"],
        profile=written["profile"],
        slices=range(*written["slices"]),
    )
    return DraDevice(
        name=name,
        device=core,
        attributes={key: Attribute(AttributeKind(kind), value) for key, (kind, value) in written["attributes"].items()},
        capacity={
            key: DeviceCapacity(value, None if policy is None else _policy_of(*policy))
            for key, (value, policy) in written["capacity"].items()
        },
        consumes=tuple(Consumption(key, each) for key, each in written["consumes"].items()),
        shared=written["shared"],
        taints=tuple(Taint(*each) for each in written["lost"]),
        health=GONE,
        lost=True,
    )
