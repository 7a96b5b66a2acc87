"""The sensors of all devices of one node: who holds each device, how that loads it, and what it shows.

`Sensors` is told each situation with the instant from which it holds, and keeps one `SimulatedDevice` for each device
that is there. A device that goes away and comes back begins anew.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..faults.effects import HardwareErrorsFault, OverheatFault, SensorFault
from ..model.device import HEALTHY, Device, Health
from ..model.geometry import PIN, Geometry
from ..model.telemetry import NOTHING, EntryTelemetry, LoadPattern, Measured, PhysicsModel, Range, SmiTool
from ..planning.resources import Inventory, numbers
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
    counts. `geometry` is how the whole device can be cut. `users` are all containers that have it or a replica of it.
    """

    device: Device
    resource: str
    physics: PhysicsModel
    maker: SmiTool | None = None
    number: int = 0
    first: int = 0
    geometry: Geometry | None = None
    health: Health = HEALTHY
    users: tuple[User, ...] = ()

    @property
    def is_cut(self) -> bool:
        return self.device.is_partition

    @property
    def slices(self) -> int:
        """The memory slices of the whole device, 0 where it cannot be cut."""
        return self.geometry.slices if self.geometry else 0

    @property
    def compute(self) -> float:
        """The part of its device's compute that it is."""
        if self.geometry is None or not self.is_cut:
            return 1.0
        profile = self.geometry.profile(self.device.profile.partition(PIN)[0])
        if profile.compute is not None and self.geometry.compute is not None:
            return profile.compute / self.geometry.compute
        return profile.slices / self.geometry.slices


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


class Sensors:
    def __init__(self) -> None:
        self._devices: dict[str, SimulatedDevice] = {}  # by raw device id
        self._fixtures: dict[str, tuple[Fixture, ...]] = {}  # in the order in which they are shown

    def settle(self, situation: LoadSituation, at: float) -> None:
        """Let a situation hold from an instant on. Devices that are new have counted nothing."""
        before, self._devices, self._fixtures = self._devices, {}, {}
        fixtures = _fixtures(situation)
        place = {entry: position for position, entry in enumerate(situation.loads)}
        for raw in sorted(fixtures, key=lambda raw: (place[(it := fixtures[raw][0].device.raw).entry], it.index)):
            device = before.get(raw)
            conditions = _conditions(situation, fixtures[raw], device.conditions.parts if device else (), at)
            if device is None:
                device = SimulatedDevice(conditions, at)
            else:
                device.change(conditions, at)
            self._devices[raw], self._fixtures[raw] = device, fixtures[raw]

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


def _fixtures(situation: LoadSituation) -> dict[str, tuple[Fixture, ...]]:
    """What each raw device consists of now, by its id: its partitions, or itself."""
    numbers = _numbers(situation)
    found: dict[str, dict[str, Fixture]] = {}
    for resource in situation.devices.each_once.values():
        for slot in resource.slots:
            device, told = slot.device, situation.loads.get(slot.device.raw.entry)
            if told is None or device.id in found.get(device.raw.id, ()):
                continue
            entry = resource.entries.get(device.raw.entry)
            number, first = numbers.get(device.raw.id, (0, 0))
            found.setdefault(device.raw.id, {})[device.id] = Fixture(
                device=device,
                resource=entry.resource if entry else resource.name,
                physics=told.physics,
                maker=told.maker,
                number=number,
                first=first,
                geometry=entry.geometry if entry else None,
                health=slot.health,
                users=tuple(situation.users.get(device.id, ())),
            )
    for raw, devices in situation.claimed.items():
        if raw in found:
            whole = next(iter(found[raw].values()))
            for device in devices:
                users = tuple(situation.users.get(device.id, ()))
                found[raw][device.id] = replace(whole, device=device, users=users)
    return {
        raw: tuple(each for each in of.values() if each.is_cut) or tuple(of.values())[:1] for raw, of in found.items()
    }


def _conditions(
    situation: LoadSituation, fixtures: Sequence[Fixture], before: Sequence[Part], at: float
) -> DeviceConditions:
    """What loads a device from the instant `at` on, and what is wrong with it; `before` are its parts until then."""
    raw = fixtures[0].device.raw
    known = {part.id: part for part in before}
    ids = dict.fromkeys((raw.id, *(each.device.id for each in fixtures)))
    faults = list(dict.fromkeys(fault for each in ids for fault in situation.sensors.get(each, ())))
    errors = [fault for fault in faults if isinstance(fault, HardwareErrorsFault)]
    return DeviceConditions(
        physics=situation.loads[raw.entry].physics,
        memory=raw.memory,
        parts=tuple(_part(situation, each, known.get(each.device.id), at) for each in fixtures),
        xids=tuple(dict.fromkeys(number for each in ids for number in situation.xids.get(each, ()))),
        heat=next((fault for fault in reversed(faults) if isinstance(fault, OverheatFault)), None),
        errors=HardwareErrorsFault.model_construct(
            corrected_ecc=sum(each.corrected_ecc for each in errors),
            uncorrected_ecc=sum(each.uncorrected_ecc for each in errors),
            pcie_replays=sum(each.pcie_replays for each in errors),
            remapped_rows=sum(each.remapped_rows for each in errors),
        ),
    )


def _part(situation: LoadSituation, fixture: Fixture, before: Part | None, at: float) -> Part:
    device = fixture.device
    spec = situation.loads[device.raw.entry].load
    pods = frozenset(f"{user.namespace}/{user.pod}" for user in fixture.users)
    since = at if pods else 0.0
    if before is not None and before.pods == pods:  # they go on with what they do
        since = before.load.since
    return Part(
        id=device.id,
        is_partition=device.is_partition,
        compute=fixture.compute,
        memory=device.memory,
        load=_load(spec, pods, situation.wishes, since, f"{situation.seed}/{situation.node}/{device.id}"),
        pods=pods,
    )


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


def _numbers(situation: LoadSituation) -> dict[str, tuple[int, int]]:
    """The number of each raw device among those of its maker, and how many there are before it where each partition
    counts.
    """
    parts: dict[str, set[str]] = {}
    maker: dict[str, SmiTool | None] = {}
    for resource in situation.base.each_once.values():
        for device in resource.by_device.values():
            told = situation.loads.get(device.raw.entry)
            maker[device.raw.id] = told.maker if told else None
            parts.setdefault(device.raw.id, set()).update([device.id] if device.is_partition else ())
    counted = numbers(situation.base)
    found: dict[str, tuple[int, int]] = {}
    first: Counter[SmiTool | None] = Counter()
    for raw in sorted(parts, key=lambda raw: counted[raw]):
        found[raw] = (counted[raw], first[maker[raw]])
        first[maker[raw]] += len(parts[raw]) or 1
    return found
