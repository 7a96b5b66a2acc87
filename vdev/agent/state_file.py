"""The file of the state directory: one JSON document that tells the next process what this one knew.

    listed      what the kubelet was told, and how labels cut devices: the first list after a start is an edit of it
    config      the texts of the last good configuration, for a start that finds the files bad
    handovers   who holds devices that have actions, and which actions are still to be done

The file has a version, a checksum, and the name of its node and kubelet directory. It is always replaced as a whole,
before what it describes is advertised. A file that cannot be used is one log line: the directory may have been copied
with a machine's image, or be that of another version. The agent then knows what ids and the kubelet's checkpoint tell.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, Self, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..aio.clock import Timing
from ..config import Text, Texts
from ..errors import ConfigError, HostError
from ..hostfs import read_plain, remove_unfinished, write_atomic
from ..hostfs.files import Stamp, stamp
from ..model.device import UNKNOWN_ENTRY, Device, RawDevice, Slot, replica_id
from ..model.geometry import Parts
from ..model.problem import Problem, error, warning
from ..planning import handovers
from ..planning.handovers import Handover, Ledger, Tenant
from ..planning.plan import DesiredState
from ..planning.repartition import Progress, Progresses, RepartitionState
from ..planning.resources import EMPTY, Inventory, Resource
from .applier import Applier, Stage

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
MAX_REPLICAS = 100_000  # more than any list holds

_HINT = "is --state-dir right, and writable?"
_DAMAGED = "the file is damaged"


class StateError(ValueError):
    """A file that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose file it is: the node's name, and the directory of the kubelet that was told.

    `boot` tells one boot of the machine from another; empty where that is unknown.
    """

    node: str
    plugin_dir: str
    boot: str = ""


# --- the sections -----------------------------------------------------------------------------------------------------


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListedDevice(_Section):
    """A device in a list. `of` is the hardware's id, empty where that is the device's own.

    It has what is needed to know which hardware an id stands for, and not the configuration that it came from: ids and
    slices mean the same to every version, whatever became of the file, the flags, the presets and the naming rules.
    """

    id: str
    of: str = ""
    profile: str = ""
    slices: tuple[int, int] = (0, 0)
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | tuple[int, ...] | None = None
    owns: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


class ChosenLayout(_Section):
    """What became of the layout that a label chose; `parts` are those in force, by entry and device index."""

    value: str | None
    state: RepartitionState
    sentence: str
    parts: dict[str, dict[int, Parts]] = {}


class Listed(_Section):
    """The devices of each resource (an id alone where that says all), and the layouts, by label."""

    resources: dict[str, tuple[str | ListedDevice, ...]] = {}
    layouts: dict[str, ChosenLayout] = {}

    @classmethod
    def of(cls, plan: DesiredState) -> Self:
        return cls(
            resources={name: tuple(_rows(each)) for name, each in plan.advertised.resources.items()},
            layouts=_layouts(plan),
        )

    def inventory(self, *, numbers: bool) -> Inventory:
        """What was listed, all of it Healthy; with the `numbers` of device nodes only if they still mean the same."""
        return Inventory(
            {name: Resource(name, tuple(_slots(rows, numbers=numbers))) for name, rows in self.resources.items()}
        )

    @property
    def choices(self) -> Progresses:
        return {
            label: Progress(label=label, value=each.value, state=each.state, sentence=each.sentence, parts=each.parts)
            for label, each in self.layouts.items()
        }


class KeptConfig(_Section):
    """The last good configuration, as texts; the next vdev reads them as it reads files, under its own flags.

    `given` are the paths of --config-file: other ones ask for another configuration. `at` is since when it was in force
    (seconds since the epoch).
    """

    given: tuple[str, ...]
    at: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    files: Annotated[tuple[Text, ...], Field(min_length=1)]
    presets: dict[str, Text]
    layouts: dict[str, Text]

    @property
    def texts(self) -> Texts:
        return Texts(self.files, self.presets, self.layouts)


class _Held(NamedTuple):
    resource: str
    slot: str
    holder: int
    pod: str


class KeptHandovers(_Section):
    """The ledger of `planning.handovers`."""

    tenants: tuple[_Held, ...] = ()
    granted: tuple[tuple[str, str], ...] = ()
    owed: tuple[_Held, ...] = ()
    arriving: tuple[_Held, ...] = ()
    last: int = 0

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        return cls(
            tenants=tuple(_Held(*key, each.holder, each.pod) for key, each in sorted(ledger.tenants.items())),
            granted=tuple(sorted(ledger.granted)),
            owed=tuple(_Held(*each[:4]) for each in ledger.owed),
            arriving=tuple(_Held(*each[:4]) for each in ledger.arriving),
            last=ledger.last,
        )

    @property
    def ledger(self) -> Ledger:
        return Ledger(
            tenants={(each.resource, each.slot): Tenant(each.holder, each.pod) for each in self.tenants},
            granted=frozenset(self.granted),
            owed=tuple(Handover(*each) for each in self.owed),
            arriving=tuple(Handover(*each) for each in self.arriving),
            last=self.last,
        )


class State(_Section):
    """The whole document."""

    version: int
    node: str
    plugin_dir: str
    boot: str
    listed: Listed = Listed()
    config: KeptConfig | None = None
    handovers: KeptHandovers = KeptHandovers()


def _rows(resource: Resource) -> Iterator[str | ListedDevice]:
    """One resource's devices.

    A device that is listed whole and in replicas has two rows: it was shared, or no longer is, while a pod had it.
    """
    replicas: dict[str, list[int]] = {}
    devices: dict[str, Device] = {}
    for slot in resource.slots:
        if slot.replica is None:
            yield _row(slot.device, None)
        else:
            devices[slot.device.id] = slot.device
            replicas.setdefault(slot.device.id, []).append(slot.replica)
    for device in devices.values():
        yield _row(device, replicas[device.id])


def _row(device: Device, replicas: list[int] | None) -> str | ListedDevice:
    raw = device.raw
    if not (device.slices or replicas or raw.owns or raw.uses) and raw.id == device.id:
        return device.id
    in_order = replicas is not None and replicas == list(range(len(replicas)))
    return ListedDevice(
        id=device.id,
        of=raw.id if raw.id != device.id else "",
        profile=device.profile,
        slices=(device.slices.start, device.slices.stop),
        replicas=len(replicas) if replicas and in_order else tuple(replicas) if replicas else None,
        owns=raw.owns,
        uses=raw.uses,
    )


def _slots(rows: Iterable[str | ListedDevice], *, numbers: bool) -> Iterator[Slot]:
    for row in rows:
        each = ListedDevice(id=row) if isinstance(row, str) else row
        owns, uses = (each.owns, each.uses) if numbers else ((), ())
        raw = RawDevice(id=each.of or each.id, entry=UNKNOWN_ENTRY, index=-1, owns=owns, uses=uses)
        device = Device(id=each.id, raw=raw, ordinal="-1", profile=each.profile, slices=range(*each.slices))
        if each.replicas is None:
            yield Slot(each.id, device)
            continue
        for number in range(each.replicas) if isinstance(each.replicas, int) else each.replicas:
            yield Slot(replica_id(each.id, number), device, number)


def _layouts(plan: DesiredState) -> dict[str, ChosenLayout]:
    return {
        each.label: ChosenLayout(
            value=each.value,
            state=each.state,
            sentence=each.sentence,
            parts={entry: dict(parts) for entry, parts in each.parts.items()},
        )
        for each in plan.observed.layouts.values()
    }


# --- the text ---------------------------------------------------------------------------------------------------------


def encoded(state: State) -> bytes:
    """The document as a line of text; the second line is the checksum of the first."""
    body = state.model_dump_json(exclude_defaults=True).encode()
    return b"".join((body, b"\n", _sum(body), b"\n"))  # one copy of megabytes


def decoded(text: bytes, owner: Owner) -> State:
    """The document that `encoded` made. Raises StateError where it is another one's, of another version, or damaged."""
    body, _, rest = text.partition(b"\n")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise StateError(_DAMAGED)
    if found["version"] != VERSION:
        raise StateError(f"it has version {found['version']}, and this vdev knows version {VERSION}")
    if _sum(body) != rest.strip():
        raise StateError(f"{_DAMAGED}: its checksum does not fit")
    try:
        state = State.model_validate(found)
    except ValidationError as wrong:
        raise StateError(_DAMAGED) from wrong
    if (state.node, state.plugin_dir) != (owner.node, owner.plugin_dir):
        raise StateError(f"it is of node {state.node!r} and kubelet directory {state.plugin_dir!r}")
    return state


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


# --- the file ---------------------------------------------------------------------------------------------------------


class StateFile(Applier):
    """One node's file in `directory`; None: there is none, and nothing is written.

    `given` are the paths of --config-file, and `good` returns the texts of the configuration in force, or None if that
    is not good as a whole.
    """

    name = "writing the state file"
    stage = Stage.PREPARE

    def __init__(
        self,
        directory: Path | None,
        owner: Owner,
        given: Sequence[Path],
        *,
        good: Callable[[], Texts | None],
        timing: Timing,
    ) -> None:
        # One file per kubelet: agents of two kubelets on one machine may share the directory.
        suffix = hashlib.sha256(os.fsencode(owner.plugin_dir)).hexdigest()[:8]
        self.path = directory / f"state-{suffix}.json" if directory else None
        self.problem: Problem | None = None
        self._owner = owner
        self._given = tuple(str(path.absolute()) for path in given)
        self._good = good
        self._intervals, self._clock = timing
        self._state = self._empty()
        self._is_current = True  # whether the file says the same
        self._written = b""  # the checksum of the text on disk
        self._stamp: Stamp | None = None  # of the file with that text
        self._writing = threading.Lock()  # held by the thread that writes
        self._syncs = False  # whether the file will soon be brought to the disk itself

    def _empty(self) -> State:
        return State(version=VERSION, node=self._owner.node, plugin_dir=self._owner.plugin_dir, boot=self._owner.boot)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (self.problem,) if self.problem else ()

    @property
    def directories(self) -> frozenset[Path]:
        return frozenset({self.path.parent}) if self.path and self._written else frozenset()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def take_over(self) -> tuple[Listed, Inventory, Ledger]:
        """What an earlier process left, for the process that serves the node from now on; empty if that is not known.

        No other process writes the file any more, so what killed ones left half-written is removed.
        """
        try:
            if self.path is not None:
                await self._within(functools.partial(remove_unfinished, self.path.parent, [self.path.name]))
            found = await self._read()
        except (HostError, StateError) as wrong:
            what = "what pods hold is known from the kubelet and from device ids alone; the next list replaces it"
            self._doubt("record not used", f"the record of what was listed is not used: {wrong}", what)
            found = None
        if found is None:
            return Listed(), EMPTY, handovers.EMPTY
        # Device nodes get their numbers at each boot: another device may have them now.
        numbers = not (found.boot and self._owner.boot) or found.boot == self._owner.boot
        inventory = await asyncio.to_thread(found.listed.inventory, numbers=numbers)
        self._state = found.model_copy(update={"boot": self._owner.boot})
        return found.listed, inventory, found.handovers.ledger

    async def kept_config(self) -> KeptConfig | None:
        """The configuration that an earlier process kept, if any. Raises ConfigError where it is of no use."""
        try:
            found = await self._read()
        except (HostError, StateError) as wrong:
            raise self._no_use(str(wrong)) from wrong
        kept = found.config if found else None
        if kept and kept.given != self._given:
            raise self._no_use(f"it was kept for --config-file {', '.join(kept.given)}")
        return kept

    def _no_use(self, why: str) -> ConfigError:
        return ConfigError((error(str(self.path), f"the last good configuration is not used instead: {why}"),))

    async def kept_files(self) -> frozenset[Path]:
        """The configuration files that an earlier process read; none where that is not known."""
        try:
            kept = await self.kept_config()
        except ConfigError:  # said where it is needed
            return frozenset()
        return frozenset(Path(each.file) for each in kept.files) if kept else frozenset()

    async def _read(self) -> State | None:
        """Raises HostError and StateError."""
        return await self._within(functools.partial(self._read_now, self.path)) if self.path else None

    def _read_now(self, path: Path) -> State | None:
        found, text = stamp(path), read_plain(path, limit=MAX_BYTES)
        if text is None:
            return None
        state = decoded(text, self._owner)
        self._stamp, self._written = found, _sum(text)
        return state

    async def _within(self, work: Callable[[], _T]) -> _T:
        """Read in a thread, and wait no longer than a moment: no list must wait for a dead file server."""
        patience = self._intervals.state_file
        try:
            async with self._clock.timeout(patience):
                return await asyncio.to_thread(work)
        except TimeoutError:
            raise HostError(f"it could not be read within {patience:g} s") from None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def apply(self, plan: DesiredState) -> None:
        """Write down what is about to be listed, and the configuration that is in force. Raises HostError."""
        if self.path is None:
            return
        listed = await asyncio.to_thread(Listed.of, plan)
        self._state = self._state.model_copy(update={"listed": listed, "config": self._config()})
        await asyncio.to_thread(self._write, self.path)
        self._is_written()

    async def record(self, ledger: Ledger) -> None:
        """Write down who holds what. A failure is a problem, and stops nothing."""
        kept = KeptHandovers.of(ledger)
        if self.path is None or (self._is_current and kept == self._state.handovers):
            return
        self._state, self._is_current = self._state.model_copy(update={"handovers": kept}), False
        patience = self._intervals.state_file
        try:
            async with self._clock.timeout(patience):
                await asyncio.to_thread(self._write, self.path)
        except TimeoutError:
            self._not_recorded(f"it took longer than {patience:g} s")
        except HostError as failed:
            self._not_recorded(str(failed))
        else:
            self._is_written()

    def _config(self) -> KeptConfig | None:
        """The configuration in force, if that is good as a whole; else the last one that was."""
        texts, before = self._good(), self._state.config
        if texts is None or (before and (before.given, before.texts) == (self._given, texts)):
            return before
        return KeptConfig(
            given=self._given,
            at=self._clock.wall(),
            files=texts.files,
            presets=dict(texts.presets),
            layouts=dict(texts.layouts),
        )

    def _write(self, path: Path) -> None:
        """Replace the file if it says something else, or is not the one that was written. Raises HostError."""
        with self._writing:  # one that was given up may still be at it; what is written is always the newest
            text = encoded(self._state)
            checksum = _sum(text)
            if self._written == checksum:
                if stamp(path) == self._stamp:
                    return
                log.warning("deleted or changed by something else; writing it again", file=str(path))
            if len(text) > MAX_BYTES:
                raise HostError(f"cannot write {path}: it would have more than {MAX_BYTES} bytes")
            self._written, self._is_current = b"", False
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
                write_atomic(path, text, mode=0o600)
            except OSError as failed:
                raise HostError(f"cannot make {path.parent}: {failed.strerror}; {_HINT}") from failed
            except HostError as failed:
                raise HostError(f"{failed}; {_HINT}") from failed
            self._stamp, self._written = stamp(path), checksum

    def _is_written(self) -> None:
        self.problem, self._is_current = None, True
        if not self._syncs:  # bring it to the disk itself a moment later, once for all writes until then
            self._syncs = True
            self._clock.call_later(self._intervals.sync_state_file, self._sync)

    def _sync(self) -> None:
        self._syncs = False
        if self.path is not None:
            asyncio.get_running_loop().run_in_executor(None, _bring_to_disk, (self.path, self.path.parent))

    def _not_recorded(self, why: str) -> None:
        hint = "as long as that is so, a release may be missed when vdev restarts"
        self._doubt("record of holders not written", f"who holds devices is not recorded: {why}", hint)

    def _doubt(self, event: str, what: str, hint: str) -> None:
        problem = warning(str(self.path), what, hint)
        if problem != self.problem:
            log.warning(event, file=str(self.path), reason=what)
        self.problem = problem


def _bring_to_disk(paths: Collection[Path]) -> None:
    """So that what was written survives a power cut."""
    for each in paths:
        with contextlib.suppress(OSError):
            handle = os.open(each, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may be another's pipe by now
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
