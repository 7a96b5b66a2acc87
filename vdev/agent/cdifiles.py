"""The CDI specification files: written before the devices in them are advertised, kept over restarts, removed when
unneeded.

Only files whose name begins with `vdev-` are ever removed or replaced. They stay when the agent ends, because a
container that restarts is given the same CDI names again; and for the same reason a device that the configuration lost
stays in its file until no pod can hold it, also when another process wrote it. What a document holds is decided in
`core.cdi` and `core.inject`.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog
import yaml

from ..core import cdi, inject
from ..core.device import base_id
from ..core.faults import CdiFault
from ..core.intervals import Intervals
from ..core.inventory import Inventory
from ..core.retain import Holdings
from ..errors import HostError
from ..hostfs import write_atomic

log = structlog.get_logger(__name__)

_OURS = "vdev-*.json"
_UNFINISHED = ".vdev-*.tmp"  # what a process that was killed while it wrote left behind

NO_CDI_FAULTS: Mapping[str, CdiFault] = {}
Name = tuple[str, str]  # kind, device name


class CdiFiles:
    """One directory's files of ours, and what they say.

    A device that is not wanted stays as long as `intervals` says of one that vanished. `trouble` says what keeps
    containers from getting their devices, or is empty.
    """

    def __init__(self, directory: Path, intervals: Intervals) -> None:
        self.directory = directory
        self.trouble = ""
        self.due = True  # whether `write` has something to do even if the inventory stays as it is
        self._intervals = intervals
        self._present: list[cdi.Document] | None = None
        self._texts: dict[str, bytes] = {}
        self._since: dict[Name, float] = {}  # when a device was first not wanted

    async def write(
        self, inventory: Inventory, holdings: Holdings, faults: Mapping[str, CdiFault] = NO_CDI_FAULTS
    ) -> float | None:
        """Make the files say what the inventory and pods need. What cannot be written is reported, not raised.

        `faults` spoil files, by name, on demand.

        Returns the (monotonic) time at which to write again, or None.
        """
        if self._present == [] and not inject.uses_cdi(inventory):
            self.due = False
            return None
        return await asyncio.to_thread(self._write, inventory, holdings, faults, time.monotonic())

    def _write(
        self, inventory: Inventory, holdings: Holdings, faults: Mapping[str, CdiFault], now: float
    ) -> float | None:
        try:
            if self._present is None:
                self._read()
            assert self._present is not None
            wanted = inject.cdi_documents(inventory)
            unneeded = self._unneeded(wanted, holdings, now)
            documents = cdi.with_leftovers(wanted, self._present, lambda kind, name: (kind, name) not in unneeded)
            texts = {cdi.file_name(kind): _text(document) for kind, document in documents.items()}
            if texts:
                self.directory.mkdir(parents=True, exist_ok=True)
            self._put(_spoilt(texts, faults))
            self._present = list(documents.values())
            self.trouble = self._conflict()
        except (HostError, OSError) as failed:
            self._say(f"cannot write CDI specifications to {self.directory}: {failed}")
            self.due = True
            return None
        self._since = {name: since for name, since in self._since.items() if name not in unneeded}
        self.due = bool(self._since or self.trouble)  # what is in the way may go without a word
        return min((self._look_again(since, holdings, now) for since in self._since.values()), default=None)

    def _read(self) -> None:
        """What earlier processes left: specifications of ours, whatever their file is called."""
        for path in self.directory.glob(_UNFINISHED):
            path.unlink(missing_ok=True)
        present = []
        for path in sorted(self.directory.glob(_OURS)):
            text = path.read_bytes()
            self._texts[path.name] = text
            try:
                document = json.loads(text)
            except ValueError:
                document = None
            if cdi.is_document(document):
                present.append(document)
        self._present = present

    def _unneeded(self, wanted: Mapping[str, cdi.Document], holdings: Holdings, now: float) -> set[Name]:
        """Which present devices nobody needs any more; notes since when the others are not wanted."""
        names = {(kind, device["name"]) for kind, document in wanted.items() for device in document["devices"]}
        keys = {*(holdings.holders or ()), *holdings.in_flight, *holdings.allocated}
        held = {base_id(key[1]) for key in keys if holdings.may_hold(key)}
        unneeded: set[Name] = set()
        since: dict[Name, float] = {}
        for document in self._present or ():
            for device in document["devices"]:
                name = (document["kind"], device["name"])
                if name in names or device["name"] == cdi.ALL:
                    continue
                since[name] = self._since.get(name, now)
                settled = self._is_settled(since[name], holdings, now)
                if settled and (holdings.holders is None or cdi.device_id(device) not in held):
                    unneeded.add(name)
        self._since = since
        return unneeded

    def _is_settled(self, since: float, holdings: Holdings, now: float) -> bool:
        if holdings.holders is None:
            return now - since >= self._intervals.retire_blind
        return holdings.read_at - since >= self._intervals.retire_settle

    def _look_again(self, since: float, holdings: Holdings, now: float) -> float:
        due = since + (self._intervals.retire_settle if holdings.holders is not None else self._intervals.retire_blind)
        return due if due > now else now + self._intervals.retire_recheck

    def _put(self, texts: dict[str, bytes]) -> None:
        """Write what differs, and remove what is in no document."""
        for name in self._texts.keys() - texts.keys():
            (self.directory / name).unlink(missing_ok=True)
            log.info("CDI specification removed", file=str(self.directory / name))
        for name, text in texts.items():
            if self._texts.get(name) != text:
                write_atomic(self.directory / name, text)
                log.info("CDI specification written", file=str(self.directory / name))
        self._texts = texts

    def _conflict(self) -> str:
        """The devices that a file of somebody else has as well: a runtime resolves neither."""
        ours = {(each["kind"], device["name"]) for each in self._present or () for device in each["devices"]}
        for path in sorted(self.directory.iterdir()) if ours else ():
            if path.name not in self._texts and path.suffix in (".json", ".yaml", ".yml"):
                both = sorted(name for kind, name in _devices(path) if (kind, name) in ours)
                if both:
                    return self._say(
                        f"{path} defines {', '.join(both[:4])} as well: no runtime resolves what two files define"
                    )
        return ""

    def _say(self, trouble: str) -> str:
        if trouble != self.trouble:
            log.error("containers may not get their devices", problem=trouble)
        self.trouble = trouble
        return trouble


def _spoilt(texts: dict[str, bytes], faults: Mapping[str, CdiFault]) -> dict[str, bytes]:
    """The files as they are under faults: some not there, some broken off in the middle."""
    kept = {name: text for name, text in texts.items() if faults.get(name) is not CdiFault.MISSING}
    return {
        name: text[: len(text) // 2] if faults.get(name) is CdiFault.BROKEN else text for name, text in kept.items()
    }


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _devices(path: Path) -> Iterable[Name]:
    """Kind and name of every device in a file of somebody else; none where it cannot be read."""
    try:
        text = path.read_text()
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError):
        return
    match found:
        case {"kind": str(kind), "devices": [*devices]}:
            for device in devices:
                if isinstance(device, dict) and isinstance(device.get("name"), str):
                    yield kind, device["name"]
