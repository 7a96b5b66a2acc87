"""The sensors of all devices of one node.

`Sensors` keeps one `SimulatedDevice` per device. It is updated with each plan and the time from which that holds, and
read at any time after that. The counters of a device that disappears and comes back start at zero.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ..model.device import Device, base_id, grouped
from ..model.entry import Entry
from ..model.telemetry import EntryTelemetry, LoadPattern, PhysicsModel, Range, SmiTool
from ..planning.in_use import Use
from ..planning.plan import DesiredState
from ..planning.resources import numbers
from .simulation import NO_LOAD, DeviceInfo, MeasuredDevice, SimulatedDevice

_LINK = 100  # the score of one NVLink between two devices


class Sensors:
    """The sensors of a node. The same seed and node name give the same values on each run."""

    def __init__(self) -> None:
        self._simulated: dict[str, SimulatedDevice] = {}  # by the id of the whole device, in the order of the output
        self._lock = threading.Lock()  # held while a thread updates or reads the sensors

    def update(self, plan: DesiredState, pod_loads: Mapping[str, Range], at: float) -> None:
        """Use this plan from `at` on, with the loads that pods ask for, by `namespace/name`. Blocks."""
        entries = {entry.name: entry for entry in plan.observed.spec.on_node(plan.observed.node) if entry.telemetry}
        xids = grouped((device, error.number) for (_, device), errors in plan.xids.items() for error in errors)
        faults = grouped((device, fault) for (_, device), each in plan.sensors.items() for fault in each)
        simulated: dict[str, SimulatedDevice] = {}
        with self._lock:
            for infos in _present(plan, entries) if entries else ():
                raw = infos[0].device.raw
                device = self._simulated.get(raw.id)
                known = {each.device.id: each for each in device.parts} if device else {}
                parts = []
                for info in infos:
                    last = known.get(info.device.id)
                    # A ramp goes on while the same pods use the device.
                    since = last.since if last and last.pods == info.pods else at if info.pods else 0.0
                    seed = f"{plan.observed.spec.faults.seed}/{plan.observed.node}/{info.device.id}"
                    spec = entries[raw.entry].telemetry or EntryTelemetry()
                    parts.append(replace(info, load=_load(spec, info.pods, pod_loads), since=since, seed=seed))
                # The Xids and faults of the device and of its partitions.
                ids = dict.fromkeys((raw.id, *(part.device.id for part in parts)))
                device = device or SimulatedDevice(at=at, parts=parts)
                device.change(
                    at,
                    parts,
                    tuple(dict.fromkeys(number for each in ids for number in xids.get(each, ()))),
                    tuple(dict.fromkeys(fault for each in ids for fault in faults.get(each, ()))),
                )
                simulated[raw.id] = device
            self._simulated = simulated

    def measured(self, at: float, only: Collection[str] | None = None) -> list[MeasuredDevice]:
        """Read the sensors of all devices and partitions, or of those with the ids `only`. Blocks."""
        found = []
        with self._lock:
            for device in self._simulated.values():
                if only is None or any(part.device.id in only for part in device.parts):
                    found += [each for each in device.measured(at) if only is None or each.info.device.id in only]
        return found


def device_infos(plan: DesiredState) -> dict[str, DeviceInfo]:
    """The devices that have sensors or a tool, by id, without users and load.

    Devices that faults removed, and partitions that claims can make, are included.
    """
    inventory = plan.observed.inventory
    measured = {entry.name for entry in plan.observed.spec.on_node(plan.observed.node) if entry.telemetry}
    found: dict[str, tuple[Entry, Device]] = {}
    for resource in inventory.everything.values():
        for device in resource.by_device.values():
            if device.raw.entry in measured or device.raw.tools:
                found.setdefault(device.id, (resource.entries[device.raw.entry], device))
    if not found:
        return {}
    number, links = numbers(inventory), _links(found.values())
    vendors = {device.raw.id: entry.vendor for entry, device in found.values()}
    partitions = Counter(
        device.raw.id
        for resource in inventory.each_once.values()
        for device in resource.by_device.values()
        if device.is_partition
    )
    first: dict[str, int] = {}
    before: Counter[SmiTool | None] = Counter()
    for raw in sorted(vendors, key=lambda raw: number[raw]):
        first[raw] = before[vendors[raw]]
        before[vendors[raw]] += partitions[raw] or 1
    counts = Counter(vendors.values())
    return {
        name: DeviceInfo(
            device=device,
            resource=entry.resource,
            physics=entry.virtual.physics if entry.virtual else PhysicsModel(),
            vendor=entry.vendor,
            number=number[device.raw.id],
            first=first[device.raw.id],
            count=counts[entry.vendor],
            peers=links.get(device.raw.id, {}),
            geometry=entry.geometry,
        )
        for name, (entry, device) in found.items()
    }


def _links(found: Iterable[tuple[Entry, Device]]) -> Mapping[str, Mapping[str, int]]:
    """The number of links between whole devices, by their ids."""
    entries = {entry.name: entry for entry, _ in found}
    ids = {(device.raw.entry, device.raw.index): device.raw.id for _, device in found}
    links: dict[str, dict[str, int]] = {}
    for name, entry in entries.items():
        pairs = entry.virtual.links if entry.virtual else {}
        for (one, other), score in pairs.items():
            ends = ids.get((name, one)), ids.get((name, other))
            if one != other and score >= _LINK and ends[0] is not None and ends[1] is not None:
                links.setdefault(ends[0], {})[ends[1]] = score // _LINK
                links.setdefault(ends[1], {})[ends[0]] = score // _LINK
    return links


def _present(plan: DesiredState, measured: Mapping[str, Entry]) -> list[list[DeviceInfo]]:
    """The partitions of each whole device, or the device itself if it has none, in the order of the file."""
    users, known = _users(plan), device_infos(plan)
    slots = [slot for resource in plan.devices.each_once.values() for slot in resource.slots]
    # Partitions that claims have made.
    claimable = (slot for resource in plan.devices.claimable.values() for slot in resource.slots)
    slots += (slot for slot in claimable if slot.device.is_partition and slot.device.id in users)
    found: dict[str, dict[str, DeviceInfo]] = {}
    for slot in slots:
        raw, name = slot.device.raw, slot.device.id
        if raw.entry in measured and name not in found.get(raw.id, ()):
            info = replace(known[name], health=slot.health, users=tuple(users.get(name, ())))
            found.setdefault(raw.id, {})[name] = info
    order = {name: place for place, name in enumerate(measured)}
    # A device that is offered both whole and in partitions counts as partitioned as soon as a partition exists.
    parts = (
        [each for each in infos.values() if each.device.is_partition] or [*infos.values()][:1]
        for infos in found.values()
    )
    return sorted(parts, key=lambda infos: (order[infos[0].device.raw.entry], infos[0].device.raw.index))


def _users(plan: DesiredState) -> dict[str, dict[Use, None]]:
    """The containers and claims that have each device, by its id."""
    found: dict[str, dict[Use, None]] = {}
    for key, holder in sorted(plan.observed.in_use.devices.items()):
        if holder.pod:
            found.setdefault(base_id(key[1]), {})[Use(holder.pod, holder.container)] = None
    for use in plan.observed.in_use.claims:
        pool = plan.pools.get(use.driver)
        published = pool.by_name.get(use.device) if pool and use.pool == plan.observed.node else None
        if published is not None:
            found.setdefault(published.device.id, {})[use] = None
    return found


def _load(spec: EntryTelemetry, pods: frozenset[str], pod_loads: Mapping[str, Range]) -> EntryTelemetry:
    """The sum of these pods' loads; all pods without a load annotation together add the load of the entry once."""
    if not (pods or spec.always):
        return NO_LOAD
    asked = [pod_loads[pod] for pod in pods if pod in pod_loads]
    if not asked:
        return spec
    if len(asked) < len(pods):
        asked.append(spec.gpu_load)
    gpu = Range(min(100.0, sum(each.low for each in asked)), min(100.0, sum(each.high for each in asked)))
    pattern = LoadPattern.STEADY if gpu.low == gpu.high else LoadPattern.BUSY
    new = {"pattern": pattern, "period": None, "gpu": gpu, "memory": spec.memory_load}
    return spec.model_copy(update=new)
