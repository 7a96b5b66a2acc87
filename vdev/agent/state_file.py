"""The file of the state directory: one JSON document with what the next process must know.

    listed      the lists of the kubelet and the layouts that labels chose: the first list after a start edits it
    config      the texts of the last good configuration, for a start with bad files
    handovers   the pods that hold devices with actions, and the actions that are due

The file has a version, a checksum, and the name of its node and kubelet directory. It is always replaced as a whole,
before the lists in it are sent. A file that cannot be used is one log line: the directory may have been copied with a
machine's image, or belong to another version. Then the agent uses what ids and the kubelet's checkpoint show.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, Self, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..aio.clock import Timing
from ..config import FileText, FileTexts
from ..errors import ConfigError, HostError
from ..hostfs import read_plain, remove_unfinished, write_atomic
from ..model.device import UNKNOWN_ENTRY, Device, RawDevice, Slot
from ..model.geometry import Parts
from ..model.problem import Problem, error, warning
from ..planning import handovers
from ..planning.handovers import Ledger
from ..planning.plan import DesiredState
from ..planning.repartition import Progress, Progresses, RepartitionState
from ..planning.resources import EMPTY, Inventory, Resource
from .applier import Applier, Stage

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

VERSION = 2
MAX_BYTES = 64 * 1024 * 1024

_HINT = "is --state-dir right, and writable?"
_DAMAGED = "the file is damaged"


class StateError(ValueError):
    """A file that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The agent that a file belongs to."""

    node: str
    plugin_dir: str  # of its kubelet
    boot: str = ""  # an id of this boot of the machine, empty if it is unknown


# --- the sections -----------------------------------------------------------------------------------------------------


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListedSlot(NamedTuple):
    """One id of a list, with what is needed to know which hardware it stands for.

    The entry, the flags and the presets are left out: ids and slices mean the same to every version of the file.
    """

    id: str
    replica: int | None
    device: str  # the device's id, which all of its replicas share
    hardware: str  # the raw device's id, which all of its partitions share
    profile: str
    slices: tuple[int, int]
    owns: tuple[str, ...]
    uses: tuple[str, ...]

    @classmethod
    def of(cls, slot: Slot) -> Self:
        device, raw = slot.device, slot.device.raw
        slices = (device.slices.start, device.slices.stop)
        return cls(slot.id, slot.replica, device.id, raw.id, device.profile, slices, raw.owns, raw.uses)

    def slot(self, *, numbers: bool) -> Slot:
        owns, uses = (self.owns, self.uses) if numbers else ((), ())
        raw = RawDevice(id=self.hardware, entry=UNKNOWN_ENTRY, index=-1, owns=owns, uses=uses)
        device = Device(id=self.device, raw=raw, ordinal="-1", profile=self.profile, slices=range(*self.slices))
        return Slot(self.id, device, self.replica)


class ChosenLayout(_Section):
    """The progress of a layout that a label chose."""

    value: str | None
    state: RepartitionState
    sentence: str
    parts: dict[str, dict[int, Parts]] = {}  # the partitions in force, by entry and device index


class Listed(_Section):
    """The lists, by resource, and the layouts, by label."""

    resources: dict[str, tuple[ListedSlot, ...]] = {}
    layouts: dict[str, ChosenLayout] = {}

    @classmethod
    def of(cls, plan: DesiredState) -> Self:
        resources = plan.advertised.resources.values()
        return cls(
            resources={each.name: tuple(map(ListedSlot.of, each.slots)) for each in resources},
            layouts={
                each.label: ChosenLayout(
                    value=each.value,
                    state=each.state,
                    sentence=each.sentence,
                    parts={entry: dict(parts) for entry, parts in each.parts.items()},
                )
                for each in plan.observed.layouts.values()
            },
        )

    def inventory(self, *, numbers: bool) -> Inventory:
        """Return what was listed, all of it Healthy.

        `numbers`: device nodes still have the numbers that they had then, so `owns` and `uses` still mean the same.
        """
        return Inventory(
            {
                name: Resource(name, tuple(each.slot(numbers=numbers) for each in slots))
                for name, slots in self.resources.items()
            }
        )

    @property
    def choices(self) -> Progresses:
        return {
            label: Progress(label=label, value=each.value, state=each.state, sentence=each.sentence, parts=each.parts)
            for label, each in self.layouts.items()
        }


class KeptConfig(_Section):
    """The last good configuration, as texts; the next process reads them like files, with its own flags."""

    given: tuple[str, ...]  # the paths of --config-file; with other paths it is not used
    at: Annotated[float, Field(gt=0, allow_inf_nan=False)]  # when it came in force, in seconds since the epoch
    files: Annotated[tuple[FileText, ...], Field(min_length=1)]
    presets: dict[str, FileText]
    layouts: dict[str, FileText]

    @property
    def texts(self) -> FileTexts:
        return FileTexts(self.files, self.presets, self.layouts)


class State(_Section):
    """The whole document."""

    version: int
    node: str
    plugin_dir: str
    boot: str
    listed: Listed = Listed()
    config: KeptConfig | None = None
    handovers: Ledger = handovers.EMPTY


# --- the text ---------------------------------------------------------------------------------------------------------


def encoded(state: State) -> bytes:
    """The document as a line of text; the second line is the checksum of the first."""
    body = state.model_dump_json(exclude_defaults=True).encode()
    return b"".join((body, b"\n", hashlib.sha256(body).hexdigest().encode(), b"\n"))


def decoded(text: bytes, owner: Owner) -> State:
    """Return the document; raises StateError if it is damaged, of another version, or of another owner."""
    body, _, rest = text.partition(b"\n")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise StateError(_DAMAGED)
    if found["version"] != VERSION:
        raise StateError(f"it has version {found['version']}, and this vdev knows version {VERSION}")
    if hashlib.sha256(body).hexdigest().encode() != rest.strip():
        raise StateError(f"{_DAMAGED}: its checksum does not fit")
    try:
        state = State.model_validate(found)
    except ValidationError as wrong:
        raise StateError(_DAMAGED) from wrong
    if (state.node, state.plugin_dir) != (owner.node, owner.plugin_dir):
        raise StateError(f"it is of node {state.node!r} and kubelet directory {state.plugin_dir!r}")
    return state


# --- the file ---------------------------------------------------------------------------------------------------------


class StateFile(Applier):
    """The state file in `directory`; None: nothing is read or written.

    `given` are the paths of --config-file. `good` returns the texts of the configuration in force, or None if it has
    errors.
    """

    name = "writing the state file"
    stage = Stage.PREPARE
    problems: tuple[Problem, ...] = ()

    def __init__(
        self,
        directory: Path | None,
        owner: Owner,
        given: Sequence[Path],
        *,
        good: Callable[[], FileTexts | None],
        timing: Timing,
    ) -> None:
        # One file per kubelet: agents of two kubelets on one machine may share the directory.
        suffix = hashlib.sha256(os.fsencode(owner.plugin_dir)).hexdigest()[:8]
        self.path = directory / f"state-{suffix}.json" if directory else None
        self._owner = owner
        self._given = tuple(str(path.absolute()) for path in given)
        self._good = good
        self._intervals, self._clock = timing
        self._state = State(version=VERSION, node=owner.node, plugin_dir=owner.plugin_dir, boot=owner.boot)
        self._written = b""  # the text that was written or read last
        self._listed_from: object = None  # the lists and layouts in the state
        self._kept: FileTexts | None = None  # the texts of the configuration in the state
        self._writing = threading.Lock()  # held by the thread that writes
        self._will_sync = False  # whether an fsync is scheduled

    # --- reading ------------------------------------------------------------------------------------------------------

    async def take_over(self) -> tuple[Listed, Inventory, Ledger]:
        """Return the lists, their inventory and the ledger of an earlier process; empty if there is no usable file.

        From now on this process is the only writer, so unfinished files of killed processes are removed.
        """
        try:
            if self.path is not None:
                await self._within(functools.partial(remove_unfinished, self.path.parent, [self.path.name]))
            found = await self._read()
        except (HostError, StateError) as wrong:
            what = "what pods hold is known from the kubelet and from device ids alone; the next list replaces it"
            self._warn("record not used", f"the record of what was listed is not used: {wrong}", what)
            found = None
        if found is None:
            return Listed(), EMPTY, handovers.EMPTY
        # Device nodes get new numbers at each boot: another device may have the old ones now.
        numbers = not (found.boot and self._owner.boot) or found.boot == self._owner.boot
        inventory = await asyncio.to_thread(found.listed.inventory, numbers=numbers)
        self._state = found.model_copy(update={"boot": self._owner.boot})
        return found.listed, inventory, found.handovers

    async def kept_config(self) -> KeptConfig | None:
        """Return the configuration of an earlier process, if any. Raises ConfigError if it cannot be used."""
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
        """Return the configuration files that an earlier process read; none if that is not known."""
        try:
            kept = await self.kept_config()
        except ConfigError:  # reported if the configuration is needed
            return frozenset()
        return frozenset(Path(each.file) for each in kept.files) if kept else frozenset()

    async def _read(self) -> State | None:
        """Raises HostError and StateError."""
        return await self._within(functools.partial(self._read_now, self.path)) if self.path else None

    def _read_now(self, path: Path) -> State | None:
        text = read_plain(path, limit=MAX_BYTES)
        if text is None:
            return None
        state = decoded(text, self._owner)
        self._written, self.directories = text, frozenset({path.parent})
        return state

    async def _within(self, work: Callable[[], _T]) -> _T:
        """Run in a thread, but wait only for a moment: no list and no pod must wait for a dead file server."""
        patience = self._intervals.state_file
        try:
            async with self._clock.timeout(patience):
                return await asyncio.to_thread(work)
        except TimeoutError:
            raise HostError(f"it took longer than {patience:g} s") from None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def apply(self, plan: DesiredState) -> None:
        """Write the lists that are about to be sent, and the configuration in force. Raises HostError."""
        if self.path is None:
            return
        listed = await asyncio.to_thread(self._listed, plan)
        self._state = self._state.model_copy(update={"listed": listed, "config": self._config()})
        if await asyncio.to_thread(self._write, self.path):
            self._sync_soon(self.path)
        self.problems = ()

    async def record(self, ledger: Ledger) -> None:
        """Write the ledger. A failure is a problem that stops nothing; the next turn writes again."""
        if self.path is None or ledger == self._state.handovers:
            return
        self._state = self._state.model_copy(update={"handovers": ledger})
        try:
            if await self._within(functools.partial(self._write, self.path)):
                self._sync_soon(self.path)
            self.problems = ()
        except HostError as failed:
            hint = "until that is solved, a release may be missed when vdev restarts"
            self._warn("record of holders not written", f"who holds devices is not recorded: {failed}", hint)

    def _listed(self, plan: DesiredState) -> Listed:
        """The lists and layouts of the plan. Most turns change neither, and there may be ten thousand devices."""
        source = plan.advertised.resources, plan.observed.layouts
        if source == self._listed_from:
            return self._state.listed
        self._listed_from = source
        return Listed.of(plan)

    def _config(self) -> KeptConfig | None:
        """The configuration in force if it has no errors; else the last one without errors."""
        texts, before = self._good(), self._state.config
        if texts is None or texts is self._kept:
            return before
        self._kept = texts
        if before and (before.given, before.texts) == (self._given, texts):
            return before
        return KeptConfig(
            given=self._given,
            at=self._clock.wall(),
            files=texts.files,
            presets=dict(texts.presets),
            layouts=dict(texts.layouts),
        )

    def _write(self, path: Path) -> bool:
        """Replace the file unless it has the current state, and return whether it was replaced. Raises HostError."""
        with self._writing:  # if a thread was given up on, it may still write; the last to write has the newest state
            text, present = encoded(self._state), None
            with contextlib.suppress(HostError):
                present = read_plain(path, limit=MAX_BYTES)
            if present == text:
                return False
            if self._written == text:
                log.warning("deleted or changed by something else; writing it again", file=str(path))
            if len(text) > MAX_BYTES:
                raise HostError(f"cannot write {path}: it would have more than {MAX_BYTES} bytes")
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
                write_atomic(path, text, mode=0o600)
            except OSError as failed:
                raise HostError(f"cannot make {path.parent}: {failed.strerror}; {_HINT}") from failed
            except HostError as failed:
                raise HostError(f"{failed}; {_HINT}") from failed
            self._written, self.directories = text, frozenset({path.parent})
            return True

    def _sync_soon(self, path: Path) -> None:
        """Sync the file a moment later, once for all writes until then: no list waits for the disk."""
        if not self._will_sync:
            self._will_sync = True
            self._clock.call_later(self._intervals.sync_state_file, functools.partial(self._sync, path))

    def _sync(self, path: Path) -> None:
        self._will_sync = False
        asyncio.get_running_loop().run_in_executor(None, _fsync, (path, path.parent))

    def _warn(self, event: str, what: str, hint: str) -> None:
        problem = warning(str(self.path), what, hint)
        if problem not in self.problems:
            log.warning(event, file=str(self.path), reason=what)
        self.problems = (problem,)


def _fsync(paths: Collection[Path]) -> None:
    """Let the files survive a power cut."""
    for each in paths:
        with contextlib.suppress(OSError):
            handle = os.open(each, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may have been replaced by a pipe
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
