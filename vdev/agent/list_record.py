"""What the kubelet was last told, in a form that outlives the process: an inventory to JSON and back.

With it the first list after any start is an edit of the last one, by the same code as an edit of the file. It keeps,
for every listed id, what is needed to know which hardware it stands for, and not the configuration that it came from:
ids and slices mean the same to every version, whatever became of the file, the flags, the presets and the rules that
name resources.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from ..aio.clock import Timing
from ..errors import HostError
from ..model.device import UNKNOWN_ENTRY, Device, RawDevice, Slot, replica_id
from ..model.dra import DraPartitions
from ..model.geometry import Parts
from ..model.problem import Problem, warning
from ..planning.plan import Plan
from ..planning.repartition import Progress, Progresses, RepartitionState
from ..planning.resources import EMPTY, Inventory, Resource
from .applier import Output, Stage
from .state_file import Owner, RecordError, StateFile, StateKeeper

VERSION = 1
MAX_REPLICAS = 100_000  # more than any list holds


@dataclass(frozen=True, slots=True)
class _Row:
    """A device as it stands in the record. `of` is the hardware's id, empty where that is the device's own."""

    id: str
    of: str = ""
    profile: str = ""
    slices: tuple[int, int] = (0, 0)
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | tuple[int, ...] | None = None
    owns: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


LISTED: TypeAdapter[dict[str, list[str | _Row]]] = TypeAdapter(dict[str, list[str | _Row]])
_LAYOUTS: TypeAdapter[dict[str, tuple[str | None, RepartitionState, str]]] = TypeAdapter(
    dict[str, tuple[str | None, RepartitionState, str]]
)
_CUTS: TypeAdapter[dict[str, dict[str, dict[int, Parts]]]] = TypeAdapter(dict[str, dict[str, dict[int, Parts]]])


def _rows(resource: Resource) -> list[str | dict[str, Any]]:
    """One resource's devices; see `_row`.

    A device that is listed whole and in replicas has two rows: it was shared, or no longer is, while a pod had it.
    """
    rows: list[str | dict[str, Any]] = []
    replicas: dict[str, list[int]] = {}
    devices: dict[str, Device] = {}
    for slot in resource.slots:
        if slot.replica is None:
            rows.append(_row(slot.device, []))
        else:
            devices[slot.device.id] = slot.device
            replicas.setdefault(slot.device.id, []).append(slot.replica)
    return rows + [_row(device, replicas[device.id]) for device in devices.values()]


def _row(device: Device, replicas: list[int]) -> str | dict[str, Any]:
    """A device that is whole and alone is its id; of others, what differs from that."""
    raw = device.raw
    if not (device.slices or replicas or raw.owns or raw.uses) and raw.id == device.id:
        return device.id
    row: dict[str, Any] = {}
    if raw.id != device.id:
        row["of"] = raw.id
    if device.slices:
        row["profile"], row["slices"] = device.profile, [device.slices.start, device.slices.stop]
    if replicas:
        row["replicas"] = len(replicas) if replicas == list(range(len(replicas))) else replicas
    if raw.owns:
        row["owns"] = raw.owns
    if raw.uses:
        row["uses"] = raw.uses
    return {"id": device.id, **row}


def document(inventory: Inventory, choices: Progresses, claimable: Collection[str] = ()) -> dict[str, str]:
    """The record's fields, as JSON; `choices` are what became of chosen layouts.

    How the devices of entries that are `claimable` are cut is no list's to tell.
    """
    fields = {
        "listed": {name: _rows(resource) for name, resource in inventory.resources.items()},
        "layouts": _told(choices),
        "cuts": _cuts(choices, claimable),
    }
    return {name: json.dumps(each, separators=(",", ":")) for name, each in fields.items() if each or name == "listed"}


def _told(choices: Progresses) -> dict[str, list[str | None]]:
    """What the record keeps of them."""
    return {each.label: [each.value, each.state.value, each.sentence] for each in choices.values()}


def _cuts(choices: Progresses, claimable: Collection[str]) -> dict[str, dict[str, dict[int, Parts]]]:
    """How the devices of these entries are cut, by label and entry, where a label chose that."""
    found = {
        each.label: {entry: dict(parts) for entry, parts in each.parts.items() if entry in claimable and parts}
        for each in choices.values()
    }
    return {label: entries for label, entries in found.items() if entries}


def read_choices(found: Mapping[str, Any]) -> Progresses:
    """What had become of the layouts that labels chose. Raises RecordError."""
    try:
        layouts = _LAYOUTS.validate_python(found.get("layouts", {}))
        cut = _CUTS.validate_python(found.get("cuts", {}))
    except ValidationError as wrong:
        raise RecordError("the file is damaged") from wrong
    return {
        label: Progress(label=label, value=value, state=state, sentence=sentence, parts=cut.get(label, {}))
        for label, (value, state, sentence) in layouts.items()
    }


def read(found: Mapping[str, Any], boot: str) -> Inventory:
    """The inventory that a record tells of, all of it Healthy. Raises RecordError.

    The numbers of device nodes are forgotten with the boot that gave them: another device may have them now.
    """
    try:
        listed = LISTED.validate_python(found.get("listed"))
    except ValidationError as wrong:
        raise RecordError("the file is damaged") from wrong
    before = found.get("boot")
    numbers = not (before and boot) or before == boot
    return Inventory({name: Resource(name, tuple(_slots(rows, numbers=numbers))) for name, rows in listed.items()})


def _slots(rows: Iterable[str | _Row], *, numbers: bool) -> Iterator[Slot]:
    for row in rows:
        each = _Row(id=row) if isinstance(row, str) else row
        owns, uses = (each.owns, each.uses) if numbers else ((), ())
        raw = RawDevice(id=each.of or each.id, entry=UNKNOWN_ENTRY, index=-1, owns=owns, uses=uses)
        device = Device(id=each.id, raw=raw, ordinal="-1", profile=each.profile, slices=range(*each.slices))
        if each.replicas is None:
            yield Slot(each.id, device)
            continue
        for number in range(each.replicas) if isinstance(each.replicas, int) else each.replicas:
            yield Slot(replica_id(each.id, number), device, number)


log = structlog.get_logger(__name__)


class ListRecord(StateKeeper, Output):
    """One node's record in a directory; None: there is none, and nothing is written."""

    name = "recording what is listed"
    stage = Stage.PREPARE

    def __init__(self, directory: Path | None, owner: Owner, timing: Timing) -> None:
        super().__init__(StateFile.within(directory, "listed", owner, version=VERSION, timing=timing))
        self.problem: Problem | None = None
        self.choices: Progresses = {}  # what had become of layouts that labels chose, once it was read
        self._recorded: Mapping[str, str] | None = None  # what is on disk

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why what an earlier process listed is not known."""
        return (self.problem,) if self.problem else ()

    async def read(self) -> Inventory:
        """What an earlier process listed; empty where that cannot be known. For the process that serves the node."""
        if self._file is None:
            return EMPTY
        try:
            found = await self._file.read(alone=True)
            if found is not None:
                inventory = await asyncio.to_thread(read, found, self._file.owner.boot)
                self.choices = read_choices(found)
                return inventory
        except (HostError, RecordError) as wrong:
            self._doubt(str(wrong))
        return EMPTY

    def _doubt(self, why: str) -> None:
        self.problem = warning(
            str(self.path),
            f"the record of what was listed is not used: {why}",
            "what pods hold is known from the kubelet and from device ids alone; the next list replaces the record",
        )
        log.warning("record not used", file=str(self.path), reason=why)

    async def settle(self, plan: Plan) -> None:
        """Write down what is about to be listed, where it is new or the file is gone. Raises HostError."""
        if self._file is None:
            return
        wanted = await asyncio.to_thread(document, plan.inventory, plan.choices, _claimable(plan))
        if wanted == self._recorded and await self._file.stands():
            return
        self._recorded = None
        await asyncio.to_thread(self._file.write, wanted)
        self.problem, self._recorded = None, wanted
        self._file.sync_soon()  # so that it survives a power cut


def _claimable(plan: Plan) -> frozenset[str]:
    """The entries whose devices claims get as layouts cut them."""
    entries = [entry for offered in plan.base.claimable.values() for entry in offered.entries.values()]
    return frozenset(each.name for each in entries if each.dra and each.dra.block.partitions is DraPartitions.STATIC)
