"""The CDI specification files: written before the devices in them are advertised, kept over restarts, removed when
unneeded.

Only files whose name begins with `vdev-` are ever removed or replaced. They stay when the agent ends, because a
container that restarts is given the same CDI names again; and for the same reason a device that the configuration lost
stays in its file until no pod can hold it, also when another process wrote it. What a document holds is decided in
`core.allocation.cdi` and `core.allocation.edits`; `cdi_own` writes our files, `cdi_foreign` reads those of others.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ...core.allocation import cdi, edits
from ...core.intervals import Intervals
from ...core.inventory.resources import Inventory
from ...core.model.device import Health, base_id
from ...core.model.fault_effects import CdiFault
from ...core.retention.holders import Holdings
from .cdi_foreign import ForeignFiles, Name
from .cdi_own import OwnFiles, is_unfinished

log = structlog.get_logger(__name__)

_MOST_SAID = 3  # troubles in one text

NO_CDI_FAULTS: Mapping[str, CdiFault] = {}


@dataclass(slots=True)
class _Outcome:
    """What one look at the directory found: why files are not there, why devices cannot be resolved, what to say."""

    files: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[Name, str] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    again: tuple[float | None, ...] = ()


class CdiFiles:
    """One directory's files of ours, and what they say.

    A device that is not wanted stays as long as `intervals` says of one that vanished. `failed` holds the devices (by
    raw id) that a runtime cannot resolve, and why: they must not be advertised as Healthy. `trouble` is the same for
    the directory as a whole, or empty. `again_at` is the (monotonic) time at which to settle again, or None.
    """

    def __init__(self, directory: Path, intervals: Intervals) -> None:
        self.directory = directory
        self.failed: Mapping[str, Health] = {}
        self.trouble = ""
        self.again_at: float | None = None
        self._intervals = intervals
        self._own = OwnFiles(directory, intervals)
        self._foreign = ForeignFiles(directory)
        self._present: list[cdi.Document] | None = None
        self._texts: dict[str, tuple[cdi.Document, bytes]] = {}  # by kind, so that few are made anew
        self._since: dict[Name, float] = {}  # when a device was first not wanted
        self._look = True  # whether to compare with the disk

    @property
    def directories(self) -> frozenset[Path]:
        """The directory whose changes are worth a `recheck`, while there is anything of ours in it."""
        return frozenset({self.directory}) if self._present else frozenset()

    @property
    def due(self) -> bool:
        """Whether `settle` has something to do even if the inventory stays as it is."""
        return self._look or bool(self._since) or (self.again_at is not None and time.monotonic() >= self.again_at)

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """Let the next `settle` compare with the disk; False when only files changed that say nothing.

        `changed` are names in the directory; none mean that anything may have changed.
        """
        if changed and all(map(is_unfinished, changed)):
            return False
        self._look = True
        return True

    async def settle(
        self, inventory: Inventory, holdings: Holdings, faults: Mapping[str, CdiFault] = NO_CDI_FAULTS
    ) -> None:
        """Make the files say what the inventory and pods need. What cannot be written is reported, not raised.

        `faults` spoil files, by name, on demand.
        """
        look, self._look = self._look, False
        outcome = _Outcome()
        if self._present != [] or edits.uses_cdi(inventory):
            outcome = await asyncio.to_thread(self._work, inventory, holdings, faults, time.monotonic(), look=look)
        self.failed = _failed(inventory, outcome)
        self.again_at = min((each for each in outcome.again if each is not None), default=None)
        self._say(outcome.troubles)

    def _work(
        self,
        inventory: Inventory,
        holdings: Holdings,
        faults: Mapping[str, CdiFault],
        now: float,
        *,
        look: bool,
    ) -> _Outcome:
        wanted = edits.cdi_documents(inventory)
        if self._present is None:
            try:
                self._present = self._own.read()
            except OSError as cause:
                reason = f"cannot read the CDI directory {self.directory}: {cause.strerror}"
                files = {cdi.file_name(kind): reason for kind in wanted}
                return _Outcome(files, troubles=(reason,) * bool(files), again=(now + self._intervals.retry_cdi,))
        unneeded = self._unneeded(wanted, holdings, now)
        documents = cdi.with_leftovers(wanted, self._present, lambda kind, name: (kind, name) not in unneeded)
        texts = self._rendered(documents)
        self._own.settle(_spoilt(texts, faults), now, look=look)
        self._present = list(documents.values())
        self._since = {name: since for name, since in self._since.items() if name not in unneeded}
        again = [self._look_again(since, holdings, now) for since in self._since.values()]
        twice = self._twice(documents, texts)
        troubles = dict.fromkeys((*self._own.failed.values(), *self._own.trouble, *twice.values()))
        return _Outcome(self._own.failed, twice, tuple(troubles), (self._own.again_at, *again))

    def _rendered(self, documents: Mapping[str, cdi.Document]) -> dict[str, bytes]:
        before, self._texts = self._texts, {}
        for kind, document in documents.items():
            known = before.get(kind)
            self._texts[kind] = known if known and known[0] == document else (document, _text(document))
        return {cdi.file_name(kind): text for kind, (_, text) in self._texts.items()}

    def _unneeded(self, wanted: Mapping[str, cdi.Document], holdings: Holdings, now: float) -> set[Name]:
        """Which present devices nobody needs any more; notes since when the others are not wanted."""
        names = {(kind, device["name"]) for kind, document in wanted.items() for device in document["devices"]}
        held = {base_id(each) for _, each in holdings.all()}
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

    def _twice(self, documents: Mapping[str, cdi.Document], texts: Mapping[str, bytes]) -> dict[Name, str]:
        """The devices that a file of somebody else has as well, and how to say it: a runtime resolves neither."""
        ours = {(kind, device["name"]) for kind, document in documents.items() for device in document["devices"]}
        if not ours:
            return {}
        try:
            found = self._foreign.defining(ours, besides=texts.keys())
        except OSError:  # no directory; that none of our files is there has its own reason
            return {}
        files: dict[str, list[str]] = {}
        for (_, name), path in found.items():
            files.setdefault(path, []).append(name)
        says = {path: f"{path} defines {_some(sorted(names))} as well" for path, names in files.items()}
        return {name: f"{says[path]}: no runtime resolves what two files define" for name, path in found.items()}

    def _say(self, troubles: tuple[str, ...]) -> None:
        more = len(troubles) - _MOST_SAID
        trouble = "; ".join((*troubles[:_MOST_SAID], *([f"and {more} more"] if more > 0 else ())))
        if trouble and trouble != self.trouble:
            log.error("containers may not get their devices", problem=trouble)
        self.trouble = trouble


def _failed(inventory: Inventory, outcome: _Outcome) -> dict[str, Health]:
    if not outcome.files and not outcome.devices:
        return {}
    failed: dict[str, Health] = {}
    for kind, name, raw in edits.cdi_names(inventory):
        reason = outcome.files.get(cdi.file_name(kind)) or outcome.devices.get((kind, name))
        if reason and raw not in failed:
            failed[raw] = Health(healthy=False, reason=f"no container could be given it by its CDI name: {reason}")
    return failed


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")  # noqa: PLR2004


def _spoilt(texts: dict[str, bytes], faults: Mapping[str, CdiFault]) -> dict[str, bytes]:
    """The files as they are under faults: some not there, some broken off in the middle."""
    kept = {name: text for name, text in texts.items() if faults.get(name) is not CdiFault.MISSING}
    return {
        name: text[: len(text) // 2] if faults.get(name) is CdiFault.BROKEN else text for name, text in kept.items()
    }


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
