"""The file of the state directory: one JSON document for the next process.

    lists       the lists of the kubelet: the first list after a start edits them
    layouts     the layouts that labels chose
    config      the texts of the last good configuration, for a start with bad files
    handovers   the pods that hold devices with actions, and the actions that are due

The file has a version, a checksum, and the name of its node and kubelet directory. It is always replaced as a whole,
before the lists in it are sent. A file that cannot be used causes one log line: the directory may have been copied with
a machine's image, or belong to another version. Then the agent uses device ids and the kubelet's checkpoint instead.
"""

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import structlog
from pydantic import BaseModel, ConfigDict, Field

from ..config import FileTexts
from ..errors import ConfigError, HostError
from ..hostfs import read_plain, remove_unfinished
from ..hostfs.files import sealed, unsealed, write_if_changed
from ..model.device import UNKNOWN_ENTRY, Device, RawDevice, Slot
from ..model.problem import Problem, error, warning
from ..planning.handovers import SavedHolding
from ..planning.plan import DesiredState
from ..planning.repartition import Progress
from ..planning.resources import Inventory, Resource
from .applier import Applier, Stage
from .retry import reason_in_words

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

VERSION = 3
MAX_BYTES = 64 * 1024 * 1024


# --- the sections -----------------------------------------------------------------------------------------------------


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListedSlot(NamedTuple):
    """One id of a list, with the fields that identify its hardware.

    The entry, the flags and the presets are left out, because overlaps are found without them.
    """

    id: str
    replica: int | None
    device: str  # the device's id, which all of its replicas share
    hardware: str  # the raw device's id, which all of its partitions share
    profile: str
    slices: tuple[int, int]
    owns: tuple[str, ...]
    uses: tuple[str, ...]

    def slot(self, *, numbers: bool) -> Slot:
        """Return the slot, Healthy; without `numbers`, it has no device nodes, because their numbers have changed."""
        owns, uses = (self.owns, self.uses) if numbers else ((), ())
        raw = RawDevice(id=self.hardware, entry=UNKNOWN_ENTRY, index=-1, owns=owns, uses=uses)
        device = Device(id=self.device, raw=raw, ordinal="-1", profile=self.profile, slices=range(*self.slices))
        return Slot(self.id, device, self.replica)


class KeptConfig(_Section):
    """The last good configuration, as texts; the next process reads them like files, with its own flags."""

    given: tuple[str, ...]  # the paths of --config-file; with other paths it is not used
    at: Annotated[float, Field(gt=0, allow_inf_nan=False)]  # when it was applied, in seconds since the epoch
    texts: FileTexts


class State(_Section):
    """The whole document of one agent, which is known by its node and the plugin directory of its kubelet."""

    version: int
    node: str
    plugin_dir: str
    boot: str
    """An id of this boot of the machine, empty if it is unknown."""
    lists: dict[str, tuple[ListedSlot, ...]] = {}
    """The lists, by resource."""
    layouts: dict[str, Progress] = {}
    """The layouts, by label."""
    config: KeptConfig | None = None
    handovers: tuple[SavedHolding, ...] = ()

    def inventory(self, boot: str) -> Inventory:
        """Return the lists in this boot of the machine."""
        # Device nodes get new numbers at each boot: another device may have the old ones now.
        numbers = not (self.boot and boot) or self.boot == boot
        return Inventory(
            {
                name: Resource(name, tuple(each.slot(numbers=numbers) for each in slots))
                for name, slots in self.lists.items()
            }
        )


# --- the file ---------------------------------------------------------------------------------------------------------


class StateFile(Applier):
    """The state file of an agent. `path` None: nothing is read or written."""

    name = "writing the state file"
    stage = Stage.PREPARE
    problems: tuple[Problem, ...] = ()

    def __init__(self, agent: "Agent") -> None:
        options, plugin_dir = agent.options, str(agent.options.plugin_dir)
        # One file per kubelet: agents of two kubelets on one machine may share the directory.
        suffix = hashlib.sha256(os.fsencode(plugin_dir)).hexdigest()[:8]
        self.path = None if options.no_state else options.state_dir / f"state-{suffix}.json"
        self._agent = agent
        self._given = tuple(str(path.absolute()) for path in options.config_files)
        self._intervals, self._clock = options.timing
        self._state = State(version=VERSION, node=options.node_name, plugin_dir=plugin_dir, boot=options.boot_id)
        self._written = b""  # the text that was written or read last
        self._writing = threading.Lock()  # held by the thread that writes

    # --- reading ------------------------------------------------------------------------------------------------------

    async def take_over(self) -> tuple[State, Inventory]:
        """Return the state of an earlier process, and its lists; empty if there is no usable file.

        From now on this process is the only writer, so unfinished files of killed processes are removed.
        """
        boot = self._state.boot
        try:
            if self.path is not None:
                async with self._patience():
                    await asyncio.to_thread(remove_unfinished, self.path.parent, f"{self.path.name}.")
            found = await self._read() or self._state
        except HostError as wrong:
            what = "the devices of pods are known only from the kubelet and device ids; the next list replaces it"
            self._warn("record not used", f"the record of what was listed is not used: {wrong}", what)
            found = self._state
        inventory = await asyncio.to_thread(found.inventory, boot)
        self._state = found.model_copy(update={"boot": boot})
        return found, inventory

    async def kept_config(self) -> KeptConfig | None:
        """Return the configuration of an earlier process, if any. Raises ConfigError if it cannot be used."""
        try:
            found = await self._read()
        except HostError as wrong:
            raise self._no_use(str(wrong)) from wrong
        kept = found.config if found else None
        if kept and kept.given != self._given:
            raise self._no_use(f"it was kept for --config-file {', '.join(kept.given)}")
        return kept

    def _no_use(self, why: str) -> ConfigError:
        return ConfigError((error(str(self.path), f"the last good configuration is not used instead: {why}"),))

    async def _read(self) -> State | None:
        """Raises HostError."""
        if self.path is None:
            return None
        async with self._patience():
            text = await asyncio.to_thread(read_plain, self.path, limit=MAX_BYTES)
        if text is None:
            return None
        self._written = text
        try:
            found, own = await asyncio.to_thread(unsealed, text, State, VERSION), self._state
        except ValueError as wrong:
            raise HostError(str(wrong)) from wrong
        if (found.node, found.plugin_dir) != (own.node, own.plugin_dir):
            raise HostError(f"it is of node {found.node!r} and kubelet directory {found.plugin_dir!r}")
        return found

    @contextlib.asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        """Limit the time for the file: lists and pods must not wait for a dead file server. Raises HostError."""
        seconds = self._intervals.state_file
        try:
            async with self._clock.timeout(seconds):
                yield
        except TimeoutError:
            raise HostError(f"it took longer than {seconds:g} s") from None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def apply(self, plan: DesiredState) -> None:
        """Write the lists that are about to be sent, and the configuration in force. Raises HostError."""
        if self.path is not None:
            lists = await asyncio.to_thread(_lists, plan.advertised)
            config, texts = self._state.config, self._agent.config.good  # of a configuration without errors
            if texts is not None and (config is None or (config.given, config.texts) != (self._given, texts)):
                config = KeptConfig(given=self._given, at=self._clock.wall(), texts=texts)
            await self._update(self.path, lists=lists, layouts=dict(plan.observed.layouts), config=config)

    async def record(self, holdings: tuple[SavedHolding, ...]) -> None:
        """Write the holdings. A failure is only reported; the next reconciliation writes again."""
        if self.path is None or not (holdings or self._state.handovers):
            return
        try:
            async with self._patience():
                await self._update(self.path, handovers=holdings)
        except HostError as failed:
            hint = "until that is solved, a release may be missed when vdev restarts"
            self._warn("record of holders not written", f"the pods that hold devices are not recorded: {failed}", hint)

    async def _update(self, path: Path, **changes: object) -> None:
        """Change sections of the state, and write it. Raises HostError."""
        self._state = self._state.model_copy(update=changes)
        await asyncio.to_thread(self._write, path)
        self.problems = ()

    def _write(self, path: Path) -> None:
        """Replace the file unless it has the current state. Raises HostError."""
        with self._writing:  # the last thread that writes has the newest state
            text = sealed(self._state)
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
                is_replaced = write_if_changed(path, text, mode=0o600)
            except (HostError, OSError) as failed:
                raise HostError(f"{reason_in_words(failed)}; is --state-dir right, and writable?") from failed
            if is_replaced and self._written == text:
                log.warning("deleted or changed by something else; written again", file=str(path))
            self._written = text

    def _warn(self, event: str, what: str, hint: str) -> None:
        problem = warning(str(self.path), what, hint)
        if problem not in self.problems:
            log.warning(event, file=str(self.path), reason=what)
        self.problems = (problem,)


def _lists(inventory: Inventory) -> dict[str, tuple[ListedSlot, ...]]:
    lists: dict[str, tuple[ListedSlot, ...]] = {}
    for resource in inventory.resources.values():
        listed = []
        for slot in resource.slots:
            device, raw = slot.device, slot.device.raw
            slices = (device.slices.start, device.slices.stop)
            fields = (slot.id, slot.replica, device.id, raw.id, device.profile, slices, raw.owns, raw.uses)
            listed.append(ListedSlot(*fields))
        lists[resource.name] = tuple(listed)
    return lists
