"""The sensors of all devices of one node: what drives them is kept up to date, and they are read at any instant.

`Sensors` is told each situation with the instant from which it holds, and remembers nothing but histories. What it is
asked for is a function of these and of the instant.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..inventory.resources import Inventory
from ..model.device import HEALTHY, Device, Health
from ..model.telemetry import Physics, SmiTool
from .drives import LoadSituation, OfferedPart, drives, pieces
from .history import History, begin, changed
from .sensor_readings import SensorReading, read, read_part


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
    physics: Physics
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


class Sensors:
    """The sensors of one node."""

    def __init__(self) -> None:
        self.histories: Mapping[str, History] = {}  # by raw device id; those that are away are kept
        self._fixtures: Mapping[str, tuple[Fixture, ...]] = {}

    def settle(self, situation: LoadSituation, base: Inventory, users: Mapping[str, Sequence[User]], at: float) -> None:
        """From the instant `at` on this is so. `base` has the devices that faults took away, too, which keep numbers.

        `users` are by the id of a device or partition. Devices that are new have counted nothing.
        """
        parts = pieces(situation)
        fresh = {raw: of for raw, of in parts.items() if raw not in self.histories}
        unused = replace(situation, pods={}, xids={}, sensors={})
        begun = {raw: begin(drive, at) for raw, drive in drives(unused, fresh, {}, at).items()}
        known = {**self.histories, **begun}
        before = {raw: history.now.drive for raw, history in known.items()}
        driven = drives(situation, parts, before, at)
        away = {raw: replace(drive, there=False) for raw, drive in before.items() if raw not in driven}
        self.histories = {raw: changed(known[raw], drive, at) for raw, drive in (driven | away).items()}
        numbers = _numbers(base, situation)
        place = {entry: position for position, entry in enumerate(situation.loads)}
        order = sorted(parts, key=lambda raw: (place[(it := parts[raw][0].device.raw).entry], it.index))
        self._fixtures = {
            raw: tuple(_fixture(piece, situation, numbers.get(raw, (0, 0)), users) for piece in parts[raw])
            for raw in order
        }

    def measured(self, at: float, only: Collection[str] | None = None) -> Iterator[MeasuredDevice]:
        """What all devices that are there show at an instant, or only those of these ids, one by one."""
        histories = self.histories
        for raw, fixtures in self._fixtures.items():
            wanted = [each for each in fixtures if only is None or each.device.id in only]
            if not wanted:
                continue
            history = histories[raw]
            whole = read(history, at, fixtures[0].device.raw.memory)
            for fixture in wanted:
                own = read_part(history, at, whole, fixture.device.id) if fixture.device.is_partition else whole
                yield MeasuredDevice(fixture, whole, own)


def _fixture(
    piece: OfferedPart, situation: LoadSituation, numbers: tuple[int, int], users: Mapping[str, Sequence[User]]
) -> Fixture:
    device = piece.device
    told = situation.loads[device.raw.entry]
    entry = piece.resource.entries.get(device.raw.entry)
    return Fixture(
        device=device,
        resource=entry.resource if entry else piece.resource.name,
        physics=told.physics,
        maker=told.maker,
        number=numbers[0],
        first=numbers[1],
        slices=entry.geometry.slices if entry and entry.geometry else 0,
        is_cut=device.is_partition,
        health=piece.health,
        users=tuple(users.get(device.id, ())),
    )


def _numbers(base: Inventory, situation: LoadSituation) -> dict[str, tuple[int, int]]:
    """The number of each raw device among those of its maker, entry after entry, and how many there are before it where
    each partition counts.
    """
    indices: dict[str, dict[str, int]] = {}
    cut: dict[str, set[str]] = {}
    for resource in base.each_once.values():
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
