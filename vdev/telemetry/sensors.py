"""The sensors of all devices of one node: who holds each device, how that loads it, and what it shows.

`Sensors` is told each situation with the instant from which it holds, and keeps one `SimulatedDevice` for each device
that is there. A device that goes away and comes back begins anew.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..faults.effects import HardwareErrorsFault, OverheatFault, SensorFault
from ..model.device import HEALTHY, Device, Health
from ..model.geometry import PIN
from ..model.telemetry import NOTHING, EntryTelemetry, LoadPattern, Measured, PhysicsModel, Range, SmiTool
from ..planning.resources import Inventory, Resource
from .simulation import DeviceConditions, Load, Part, SensorReading, SimulatedDevice

_HUNDRED = 100.0
_CHANGES = 10.0  # seconds from one level of a range that pods ask for to the next


@dataclass(frozen=True, slots=True)
class User:
    """A container that has a device. `claim` is empty for a device of a device plugin; else `driver`, `pool` and `name`
    are what it is published under.
    """

    namespace: str
    pod: str
    container: str
    claim: str = ""
    driver: str = ""
    pool: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """What is known of a device or partition beside its sensors.

    `number` counts the devices of the maker on the node, `first` what comes before this one where each partition
    counts. `slices` are the memory slices of the whole device, 0 where it cannot be cut; `is_cut`: it is cut now.
    `users` are all containers that have it or a replica of it.
    """

    device: Device
    resource: str
    physics: PhysicsModel
    maker: SmiTool | None = None
    number: int = 0
    first: int = 0
    slices: int = 0
    is_cut: bool = False
    health: Health = HEALTHY
    users: tuple[User, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """What one device or partition shows: `whole` are the sensors of the device, `own` those of the partition of it, or
    the same.
    """

    fixture: Fixture
    whole: SensorReading
    own: SensorReading


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSituation:
    """All that loads the devices of a node, and what is wrong with them.

    `base` has the devices that faults took away, too, which keep their numbers. `loads` are by entry, everything else
    by the id of a device or partition. `claimed` are partitions that claims cut from devices which are offered whole,
    by raw device. `xids` and `sensors` are what faults do. `wishes` are the loads that pods ask for, by
    `namespace/name`. The same `seed` and `node` give the same run.
    """

    devices: Inventory
    base: Inventory
    loads: Mapping[str, Measured]
    users: Mapping[str, Sequence[User]] = field(default_factory=dict)
    claimed: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    xids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sensors: Mapping[str, Sequence[SensorFault]] = field(default_factory=dict)
    wishes: Mapping[str, Range] = field(default_factory=dict)
    seed: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True)
class _Offered:
    """A device, or a partition of one, under the name of a resource or of a driver."""

    device: Device
    resource: Resource
    health: Health


class Sensors:
    def __init__(self) -> None:
        self._devices: dict[str, SimulatedDevice] = {}  # by raw device id
        self._fixtures: dict[str, tuple[Fixture, ...]] = {}  # in the order in which they are shown

    def settle(self, situation: LoadSituation, at: float) -> None:
        """Let a situation hold from an instant on. Devices that are new have counted nothing."""
        offered = _offered(situation)
        numbers = _numbers(situation)
        before, self._devices, self._fixtures = self._devices, {}, {}
        place = {entry: position for position, entry in enumerate(situation.loads)}
        for raw in sorted(offered, key=lambda raw: (place[(it := offered[raw][0].device.raw).entry], it.index)):
            device = before.get(raw)
            conditions = _conditions(situation, offered[raw], device.conditions.parts if device else (), at)
            if device is None:
                device = SimulatedDevice(conditions, at)
            else:
                device.change(conditions, at)
            self._devices[raw] = device
            self._fixtures[raw] = tuple(_fixture(each, situation, *numbers.get(raw, (0, 0))) for each in offered[raw])

    def measured(self, at: float, only: Collection[str] | None = None) -> Iterator[MeasuredDevice]:
        """Yield what all devices that are there show at an instant, or only those of these ids."""
        for raw, fixtures in self._fixtures.items():
            device = self._devices[raw]
            parts = list(zip(fixtures, device.conditions.parts, strict=True))
            if only is not None:
                parts = [(fixture, part) for fixture, part in parts if part.id in only]
            if not parts:
                continue
            whole = device.read(at)
            for fixture, part in parts:
                yield MeasuredDevice(fixture, whole, device.read_part(part, at, whole) if part.is_partition else whole)


def _offered(situation: LoadSituation) -> dict[str, tuple[_Offered, ...]]:
    """What each raw device consists of now, by its id: its partitions, or itself."""
    found: dict[str, dict[str, _Offered]] = {}
    for resource in situation.devices.each_once.values():
        for slot in resource.slots:
            device = slot.device
            if device.raw.entry in situation.loads:
                found.setdefault(device.raw.id, {}).setdefault(device.id, _Offered(device, resource, slot.health))
    for raw, devices in situation.claimed.items():
        if raw in found:
            whole = next(iter(found[raw].values()))
            found[raw] |= {device.id: _Offered(device, whole.resource, whole.health) for device in devices}
    return {
        raw: tuple(each for each in of.values() if each.device.is_partition) or tuple(of.values())[:1]
        for raw, of in found.items()
    }


def _conditions(
    situation: LoadSituation, offered: Sequence[_Offered], before: Sequence[Part], at: float
) -> DeviceConditions:
    """What loads a device from the instant `at` on, and what is wrong with it; `before` are its parts until then."""
    raw = offered[0].device.raw
    known = {part.id: part for part in before}
    ids = dict.fromkeys((raw.id, *(each.device.id for each in offered)))
    faults = list(dict.fromkeys(fault for each in ids for fault in situation.sensors.get(each, ())))
    errors = [fault for fault in faults if isinstance(fault, HardwareErrorsFault)]
    return DeviceConditions(
        physics=situation.loads[raw.entry].physics,
        memory=raw.memory,
        parts=tuple(_part(situation, each, known.get(each.device.id), at) for each in offered),
        xids=tuple(dict.fromkeys(number for each in ids for number in situation.xids.get(each, ()))),
        heat=next((fault for fault in reversed(faults) if isinstance(fault, OverheatFault)), None),
        errors=HardwareErrorsFault.model_construct(
            corrected_ecc=sum(each.corrected_ecc for each in errors),
            uncorrected_ecc=sum(each.uncorrected_ecc for each in errors),
            pcie_replays=sum(each.pcie_replays for each in errors),
            remapped_rows=sum(each.remapped_rows for each in errors),
        ),
    )


def _part(situation: LoadSituation, offered: _Offered, before: Part | None, at: float) -> Part:
    device = offered.device
    spec = situation.loads[device.raw.entry].load
    pods = frozenset(f"{user.namespace}/{user.pod}" for user in situation.users.get(device.id, ()))
    since = at if pods else 0.0
    if before is not None and before.pods == pods:  # they go on with what they do
        since = before.load.since
    return Part(
        id=device.id,
        is_partition=device.is_partition,
        compute=_compute(offered),
        memory=device.memory,
        load=_load(spec, pods, situation.wishes, since, f"{situation.seed}/{situation.node}/{device.id}"),
        pods=pods,
    )


def _compute(offered: _Offered) -> float:
    """The part of its device's compute that a device is."""
    entry = offered.resource.entries.get(offered.device.raw.entry)
    if not offered.device.is_partition or entry is None or entry.geometry is None:
        return 1.0
    geometry = entry.geometry
    profile = geometry.profile(offered.device.profile.partition(PIN)[0])
    if profile.compute is not None and geometry.compute is not None:
        return profile.compute / geometry.compute
    return profile.slices / geometry.slices


def _load(spec: EntryTelemetry, pods: frozenset[str], wishes: Mapping[str, Range], since: float, seed: str) -> Load:
    """The load of these pods together, or none; pods that ask for no load have that of the entry."""
    if not (pods or spec.always):
        return Load(seed=seed)
    pattern, period, gpu = spec.pattern, spec.seconds, spec.gpu_load
    if any(pod in wishes for pod in pods):
        asked = [wishes[pod] for pod in pods if pod in wishes]
        if len(asked) < len(pods):
            asked.append(spec.gpu_load)
        gpu = Range(min(_HUNDRED, sum(each.low for each in asked)), min(_HUNDRED, sum(each.high for each in asked)))
        pattern, period = (LoadPattern.STEADY if gpu.low == gpu.high else LoadPattern.BUSY), _CHANGES
    return Load(
        pattern=pattern,
        period=period,
        gpu=gpu,
        memory=spec.memory_load,
        encoder=spec.encoder or NOTHING,
        decoder=spec.decoder or NOTHING,
        since=since,
        seed=seed,
    )


def _fixture(offered: _Offered, situation: LoadSituation, number: int, first: int) -> Fixture:
    device = offered.device
    told = situation.loads[device.raw.entry]
    entry = offered.resource.entries.get(device.raw.entry)
    return Fixture(
        device=device,
        resource=entry.resource if entry else offered.resource.name,
        physics=told.physics,
        maker=told.maker,
        number=number,
        first=first,
        slices=entry.geometry.slices if entry and entry.geometry else 0,
        is_cut=device.is_partition,
        health=offered.health,
        users=tuple(situation.users.get(device.id, ())),
    )


def _numbers(situation: LoadSituation) -> dict[str, tuple[int, int]]:
    """The number of each raw device among those of its maker, entry after entry, and how many there are before it where
    each partition counts.
    """
    indices: dict[str, dict[str, int]] = {}
    cut: dict[str, set[str]] = {}
    for resource in situation.base.each_once.values():
        for device in resource.by_device.values():
            indices.setdefault(device.raw.entry, {})[device.raw.id] = device.raw.index
            if device.is_partition:
                cut.setdefault(device.raw.id, set()).add(device.id)
    found: dict[str, tuple[int, int]] = {}
    least: dict[SmiTool | None, int] = {}
    first: dict[SmiTool | None, int] = {}
    for entry, told in situation.loads.items():
        mine = indices.get(entry, {})
        offset = least.get(told.maker, 0)
        for raw in sorted(mine, key=mine.__getitem__):
            found[raw] = (offset + mine[raw], first.get(told.maker, 0))
            first[told.maker] = found[raw][1] + len(cut.get(raw, (raw,)))
        least[told.maker] = offset + max(mine.values(), default=-1) + 1
    return found
