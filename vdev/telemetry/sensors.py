"""The sensors of all devices of one node.

`Sensors` keeps one `SimulatedDevice` per device. It is updated with each `LoadSituation` and the time from which that
holds, and is read at any time after that. The counters of a device that disappears and comes back start at zero.
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

_POD_LOAD_PERIOD = 10.0  # seconds from one level to the next within the range that pods ask for


@dataclass(frozen=True, slots=True)
class User:
    """A container that uses a device."""

    namespace: str
    pod: str
    container: str
    claim: str = ""  # empty for a device of a device plugin
    driver: str = ""  # with a claim: the driver that publishes the device
    pool: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What is known about a device or a partition besides its sensors."""

    device: Device
    resource: str
    physics: PhysicsModel
    maker: SmiTool | None = None
    number: int = 0  # of the whole device, among the maker's devices on the node
    first: int = 0  # the number of preceding devices of the maker, counting each partition
    geometry: Geometry | None = None  # how the whole device can be partitioned
    health: Health = HEALTHY
    users: tuple[User, ...] = ()  # all containers that use the device or a replica of it

    @property
    def slices(self) -> int:
        """The memory slices of the whole device, 0 if it cannot be partitioned."""
        return self.geometry.slices if self.geometry else 0

    @property
    def compute(self) -> float:
        """The fraction of the whole device's compute, 1 for the whole device."""
        if self.geometry is None or not self.device.is_partition:
            return 1.0
        profile = self.geometry.profile(self.device.profile.partition(PIN)[0])
        if profile.compute is not None and self.geometry.compute is not None:
            return profile.compute / self.geometry.compute
        return profile.slices / self.geometry.slices


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """The sensors of a device or a partition at one moment."""

    info: DeviceInfo
    whole: SensorReading  # of the whole device
    own: SensorReading  # of the partition; the same as `whole` for a whole device


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSituation:
    """Everything that loads the devices of a node, and their faults. Mappings are by the id of a device or partition.

    The same `seed` and `node` give the same values on each run.
    """

    devices: Inventory
    base: Inventory  # including devices that faults removed, which keep their numbers
    loads: Mapping[str, Measured]  # by entry
    users: Mapping[str, Sequence[User]] = field(default_factory=dict)
    claimed: Mapping[str, Sequence[Device]] = field(default_factory=dict)  # partitions made by claims, by whole device
    xids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sensors: Mapping[str, Sequence[SensorFault]] = field(default_factory=dict)
    pod_loads: Mapping[str, Range] = field(default_factory=dict)  # that pods ask for, by `namespace/name`
    seed: int = 0
    node: str = ""


class Sensors:
    def __init__(self) -> None:
        self._simulated: dict[str, SimulatedDevice] = {}  # by the id of the whole device
        self._infos: dict[str, tuple[DeviceInfo, ...]] = {}  # in the order of the output

    def update(self, situation: LoadSituation, at: float) -> None:
        """Use this situation from `at` on."""
        before, self._simulated, self._infos = self._simulated, {}, {}
        found = _device_infos(situation)
        entries = list(situation.loads)

        def order(raw: str) -> tuple[int, int]:
            device = found[raw][0].device.raw
            return entries.index(device.entry), device.index

        for raw in sorted(found, key=order):
            device = before.get(raw)
            conditions = _conditions(situation, found[raw], device.conditions.parts if device else (), at)
            if device is None:
                device = SimulatedDevice(conditions, at)
            else:
                device.change(conditions, at)
            self._simulated[raw], self._infos[raw] = device, found[raw]

    def measured(self, at: float, only: Collection[str] | None = None) -> Iterator[MeasuredDevice]:
        """Read the sensors of all devices and partitions, or of those with the ids `only`."""
        for raw, infos in self._infos.items():
            device = self._simulated[raw]
            parts = list(zip(infos, device.conditions.parts, strict=True))
            if only is not None:
                parts = [(info, part) for info, part in parts if part.id in only]
            if not parts:
                continue
            whole = device.read(at)
            for info, part in parts:
                yield MeasuredDevice(info, whole, device.read_part(part, at, whole) if part.is_partition else whole)


def _device_infos(situation: LoadSituation) -> dict[str, tuple[DeviceInfo, ...]]:
    """The partitions of each whole device, or the device itself if it has none, by the id of the whole device."""
    numbers = _numbers(situation)
    found: dict[str, dict[str, DeviceInfo]] = {}
    for resource in situation.devices.each_once.values():
        for slot in resource.slots:
            device, load = slot.device, situation.loads.get(slot.device.raw.entry)
            if load is None or device.id in found.get(device.raw.id, ()):
                continue
            entry = resource.entries.get(device.raw.entry)
            number, first = numbers.get(device.raw.id, (0, 0))
            found.setdefault(device.raw.id, {})[device.id] = DeviceInfo(
                device=device,
                resource=entry.resource if entry else resource.name,
                physics=load.physics,
                maker=load.maker,
                number=number,
                first=first,
                geometry=entry.geometry if entry else None,
                health=slot.health,
                users=tuple(situation.users.get(device.id, ())),
            )
    for raw, partitions in situation.claimed.items():
        if raw in found:
            whole = next(iter(found[raw].values()))
            for device in partitions:
                users = tuple(situation.users.get(device.id, ()))
                found[raw][device.id] = replace(whole, device=device, users=users)
    # A device that is offered both whole and in partitions counts as partitioned as soon as a partition exists.
    return {
        raw: tuple(each for each in infos.values() if each.device.is_partition) or tuple(infos.values())[:1]
        for raw, infos in found.items()
    }


def _conditions(
    situation: LoadSituation, infos: Sequence[DeviceInfo], before: Sequence[Part], at: float
) -> DeviceConditions:
    """The load and the faults of a device from `at` on; `before` are its parts until then."""
    raw = infos[0].device.raw
    known = {part.id: part for part in before}
    ids = dict.fromkeys((raw.id, *(each.device.id for each in infos)))
    faults = list(dict.fromkeys(fault for each in ids for fault in situation.sensors.get(each, ())))
    errors = [fault for fault in faults if isinstance(fault, HardwareErrorsFault)]
    return DeviceConditions(
        physics=situation.loads[raw.entry].physics,
        memory=raw.memory,
        parts=tuple(_part(situation, each, known.get(each.device.id), at) for each in infos),
        xids=tuple(dict.fromkeys(number for each in ids for number in situation.xids.get(each, ()))),
        heat=next((fault for fault in reversed(faults) if isinstance(fault, OverheatFault)), None),
        errors=HardwareErrorsFault.model_construct(
            corrected_ecc=sum(each.corrected_ecc for each in errors),
            uncorrected_ecc=sum(each.uncorrected_ecc for each in errors),
            pcie_replays=sum(each.pcie_replays for each in errors),
            remapped_rows=sum(each.remapped_rows for each in errors),
        ),
    )


def _part(situation: LoadSituation, info: DeviceInfo, before: Part | None, at: float) -> Part:
    device = info.device
    spec = situation.loads[device.raw.entry].load
    pods = frozenset(f"{user.namespace}/{user.pod}" for user in info.users)
    since = at if pods else 0.0
    if before is not None and before.pods == pods:  # a ramp goes on
        since = before.load.since
    return Part(
        id=device.id,
        is_partition=device.is_partition,
        compute=info.compute,
        memory=device.memory,
        load=_load(spec, pods, situation.pod_loads, since, f"{situation.seed}/{situation.node}/{device.id}"),
        pods=pods,
    )


def _load(spec: EntryTelemetry, pods: frozenset[str], pod_loads: Mapping[str, Range], since: float, seed: str) -> Load:
    """The sum of these pods' loads; all pods without a load annotation together add the load of the entry once."""
    if not (pods or spec.always):
        return Load(seed=seed)
    pattern, period, gpu = spec.pattern, spec.seconds, spec.gpu_load
    asked = [pod_loads[pod] for pod in pods if pod in pod_loads]
    if asked:
        if len(asked) < len(pods):
            asked.append(spec.gpu_load)
        gpu = Range(min(100.0, sum(each.low for each in asked)), min(100.0, sum(each.high for each in asked)))
        pattern, period = (LoadPattern.STEADY if gpu.low == gpu.high else LoadPattern.BUSY), _POD_LOAD_PERIOD
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
    """`DeviceInfo.number` and `DeviceInfo.first` of each whole device."""
    partitions: dict[str, set[str]] = {}
    maker: dict[str, SmiTool | None] = {}
    for resource in situation.base.each_once.values():
        for device in resource.by_device.values():
            load = situation.loads.get(device.raw.entry)
            maker[device.raw.id] = load.maker if load else None
            partitions.setdefault(device.raw.id, set()).update([device.id] if device.is_partition else ())
    number = numbers(situation.base)
    found: dict[str, tuple[int, int]] = {}
    before: Counter[SmiTool | None] = Counter()
    for raw in sorted(partitions, key=lambda raw: number[raw]):
        found[raw] = (number[raw], before[maker[raw]])
        before[maker[raw]] += len(partitions[raw]) or 1
    return found
