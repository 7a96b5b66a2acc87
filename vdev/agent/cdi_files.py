"""Our CDI specifications on disk: `vdev-*.json`, each written, repaired and removed on its own.

What cannot be written leaves the other files alone and is reported with the reason. A file that somebody deletes or
changes is written again at once; when that happens again and again, with growing pauses.
"""

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from ..aio.clock import Timing
from ..errors import HostError
from ..hostfs import read_plain, write_atomic
from ..intervals import Intervals
from ..model.device import Health
from ..planning import allocation, cdi
from ..planning.plan import DesiredState
from ..planning.resources import Inventory
from .applier import NOTHING
from .host_files import HostFiles

log = structlog.get_logger(__name__)

_OURS = "vdev-*.json"
_UNFINISHED_PREFIX, _UNFINISHED_SUFFIX = ".vdev-", ".tmp"  # of a file that is being written
_MAX_BYTES = 2**26  # of a file that an earlier process left: tens of thousands of devices
_FREE_REPAIRS = 3  # in a row, without a pause


@dataclass(frozen=True, slots=True)
class _Repairs:
    """How often a file was written again in a row, when last, and the (monotonic) time of the next attempt."""

    count: int
    at: float
    next_at: float


class OwnFiles:
    """The files of one directory, by file name.

    `failed` says why a file is not on disk as it should be; `trouble` what else is wrong. `again_at` is the (monotonic)
    time at which to settle again, or None.
    """

    def __init__(self, directory: Path, intervals: Intervals) -> None:
        self.directory = directory
        self.failed: dict[str, str] = {}
        self.trouble: tuple[str, ...] = ()
        self.again_at: float | None = None
        self._intervals = intervals
        self._texts: dict[str, bytes] = {}  # what is on disk, as far as is known
        self._repairs: dict[str, _Repairs] = {}

    def read(self) -> list[cdi.Document]:
        """What earlier processes left: specifications of ours, whatever their file is called. Raises OSError.

        A file that is called otherwise now is renamed, so that what is in it can be resolved at any moment.
        """
        present: list[cdi.Document] = []
        try:
            paths = sorted(self.directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return present
        for path in paths:
            if is_unfinished(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.match(_OURS) and (path.is_symlink() or not path.is_dir()):
                text = _content(path)
                document = _parsed(text)
                name = path.name
                if cdi.is_document(document):
                    present.append(document)
                    name = _renamed(path, cdi.file_name(document["kind"]))
                self._texts[name] = text
        return present

    def settle(self, texts: Mapping[str, bytes], now: float) -> None:
        """Write what differs from what is on disk, and remove what is not wanted."""
        self.failed = {}
        self.trouble = tuple(filter(None, [self._remove(name) for name in self._texts.keys() - texts.keys()]))
        self._repairs = {name: each for name, each in self._repairs.items() if name in texts}
        if texts:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as cause:
                self._texts.clear()
                reason = f"cannot make the CDI directory {self.directory}: {cause.strerror}"
                self.failed = dict.fromkeys(texts, reason)
            else:
                reasons = {name: self._put(name, text, now) for name, text in texts.items()}
                self.failed = {name: reason for name, reason in reasons.items() if reason}
        paused = [each.next_at for name, each in self._repairs.items() if name in self.failed and each.next_at > now]
        retried = [now + self._intervals.retry_host_files] if self.trouble or len(self.failed) > len(paused) else []
        self.again_at = min((*paused, *retried), default=None)

    def standing(self, name: str) -> cdi.Document | None:
        """What a file says that is not as it should be, which a runtime goes by until it is; None for nothing."""
        try:
            document = _parsed(read_plain(self.directory / name, limit=_MAX_BYTES, follow=False) or b"")
        except HostError:
            return None
        return document if cdi.is_document(document) else None

    def _remove(self, name: str) -> str:
        path = self.directory / name
        try:
            path.unlink(missing_ok=True)
        except OSError as cause:
            return f"cannot remove {path}, which nothing needs any more: {cause.strerror}"
        log.info("CDI specification removed", file=str(path))
        del self._texts[name]
        return ""

    def _put(self, name: str, text: bytes, now: float) -> str:
        """Why the file is not on disk, or the empty string."""
        path = self.directory / name
        if self._texts.get(name) == text:
            if _holds(path, text):
                return ""
            del self._texts[name]
            self._repairs[name] = self._one_more(self._repairs.get(name), now)
            log.warning("CDI specification deleted or changed by something else", file=str(path))
        if name in self._repairs and now < self._repairs[name].next_at:
            return f"something else keeps deleting or changing {path}; it is written again with pauses"
        try:
            write_atomic(path, text)
        except HostError as failed:
            if name in self._texts:
                self._texts[name] = b""  # whatever is there now is to be replaced or removed
            return str(failed)
        self._texts[name] = text
        log.info("CDI specification written", file=str(path))
        return ""

    def _one_more(self, before: _Repairs | None, now: float) -> _Repairs:
        first, most = self._intervals.retry_host_files, self._intervals.retry_host_files_most
        count = 1 if before is None or now - before.at > 2 * most else before.count + 1
        pause = min(most, first * 2 ** min(count - _FREE_REPAIRS - 1, 20)) if count > _FREE_REPAIRS else 0.0
        return _Repairs(count, now, now + pause)


def is_unfinished(name: str) -> bool:
    """Whether a file of that name is one of ours that is being written, or was when its process was killed."""
    return name.startswith(_UNFINISHED_PREFIX) and name.endswith(_UNFINISHED_SUFFIX)


def _holds(path: Path, text: bytes) -> bool:
    try:
        return read_plain(path, limit=len(text), follow=False) == text
    except HostError:
        return False


def _renamed(path: Path, name: str) -> str:
    """What the file is called, after it was given this name if no other file has it."""
    target = path.with_name(name)
    if not os.path.lexists(target):
        with contextlib.suppress(OSError):  # it is written anew then, and this one removed
            path.rename(target)
            log.info("CDI specification renamed", file=str(target), before=path.name)
            return name
    return path.name


def _content(path: Path) -> bytes:
    """What a file of ours holds; nothing where the file is damaged, so that it is written anew or removed."""
    try:
        return read_plain(path, limit=_MAX_BYTES, follow=False) or b""
    except HostError as failed:
        log.warning("CDI specification of an earlier process left out", problem=str(failed))
        return b""


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_Name = tuple[str, str]  # kind, device name
_Device = Mapping[str, Any]  # of a document
_Wanted = tuple[object, ...]  # what the file says of a device, and the fault that spoils the file
_MOST_SAID = 3  # troubles in one text


class CdiFiles(HostFiles[_Name, _Wanted]):
    """One directory's files of ours, and what they say.

    `undeliverable` holds the devices that a runtime cannot resolve: they must not be advertised as Healthy. `trouble`
    is the same for the directory as a whole, or empty.
    """

    name = "writing CDI specifications"
    undeliverable = NOTHING

    def __init__(self, directory: Path, timing: Timing) -> None:
        super().__init__({directory}, timing)
        self.directory = directory
        self.trouble = ""
        self._own = OwnFiles(directory, timing.intervals)
        self._present: list[cdi.Document] | None = None  # what the files say; None: they could not be read yet
        self._devices: Mapping[_Name, _Device] = {}  # of these

    def unprepared(self, plan: DesiredState) -> frozenset[str]:
        """What the plan needs, and no `settle` that succeeded has written so."""
        wanted = self.wanted(plan)
        names = allocation.cdi_names(plan.advertised)
        return frozenset(raw for kind, name, raw in names if self._wanted.get((kind, name)) != wanted.get((kind, name)))

    def wanted(self, plan: DesiredState) -> Mapping[_Name, _Wanted]:
        wanted: dict[_Name, _Wanted] = {}
        for kind, document in plan.cdi.items():
            of_all = (
                document["cdiVersion"],
                document.get("containerEdits"),
                plan.observed.cdi_faults.get(cdi.file_name(kind)),
            )
            wanted |= {(kind, device["name"]): (device, *of_all) for device in document["devices"]}
        return wanted

    def present(self, wanted: Mapping[_Name, _Wanted]) -> Collection[_Name]:
        del wanted
        if self._present is None:
            try:
                self._present = self._own.read()
            except OSError as cause:
                raise HostError(f"cannot read the CDI directory {self.directory}: {cause.strerror}") from cause
        self._devices = {(each["kind"], device["name"]): device for each in self._present for device in each["devices"]}
        return self._devices.keys()

    def named(self, plan: DesiredState) -> Collection[_Name]:
        return {(kind, name) for kind, name, _ in allocation.cdi_names(plan.observed.previous.advertised)}

    def held(self, left: Collection[_Name], plan: DesiredState) -> Collection[_Name]:
        ids = {name: cdi.device_id(self._devices[name]) for name in left if name[1] != cdi.ALL}
        return [name for name, device in ids.items() if not plan.is_free(device)]

    def make(
        self, plan: DesiredState, wanted: Mapping[_Name, _Wanted], kept: frozenset[_Name], gone: frozenset[_Name]
    ) -> Mapping[_Name, str]:
        del wanted, gone
        documents = cdi.with_leftovers(plan.cdi, self._present or (), kept)
        texts = {cdi.file_name(kind): _text(document) for kind, document in documents.items()}
        self._own.settle(_spoilt(texts, plan.observed.cdi_faults), self._clock.now())
        self._present = list(documents.values())
        return self._missing(documents)

    def retry_at(self, now: float) -> float | None:
        return now + self._intervals.retry_host_files if self._present is None else self._own.again_at

    async def made(self, plan: DesiredState) -> None:
        self.undeliverable = _undeliverable(plan.advertised, self.failed)
        self._say(tuple(dict.fromkeys((*self.failed.values(), *self._own.failed.values(), *self._own.trouble))))

    def _missing(self, documents: Mapping[str, cdi.Document]) -> dict[_Name, str]:
        """The devices of files that could not be written, but for those that the old file has as they shall be."""
        missing: dict[_Name, str] = {}
        for kind, document in documents.items():
            file = cdi.file_name(kind)
            if reason := self._own.failed.get(file):
                there = _edits(self._own.standing(file))
                shall = _edits(document)
                missing |= {(kind, name): reason for name, each in shall.items() if there.get(name) != each}
        return missing

    def _say(self, troubles: tuple[str, ...]) -> None:
        more = len(troubles) - _MOST_SAID
        trouble = "; ".join((*troubles[:_MOST_SAID], *([f"and {more} more"] if more > 0 else ())))
        if trouble and trouble != self.trouble:
            log.error("containers may not get their devices", problem=trouble)
        self.trouble = trouble


def _undeliverable(inventory: Inventory, failed: Mapping[_Name, str]) -> dict[str, Health]:
    if not failed:
        return {}
    found: dict[str, Health] = {}
    for kind, name, raw in allocation.cdi_names(inventory):
        reason = failed.get((kind, name))
        if reason and raw not in found:
            found[raw] = Health(healthy=False, reason=f"no container could be given it by its CDI name: {reason}")
    return found


def _edits(document: cdi.Document | None) -> dict[str, Mapping[str, Any]]:
    """What a container gets with each device of a document, by name."""
    return {device["name"]: cdi.edits_of(document, device) for device in document["devices"]} if document else {}


def _spoilt(texts: dict[str, bytes], faults: Mapping[str, str]) -> dict[str, bytes]:
    """The files as they are under faults: some not there, some broken off in the middle."""
    kept = {name: text for name, text in texts.items() if faults.get(name) != "missing"}
    return {name: text[: len(text) // 2] if faults.get(name) == "broken" else text for name, text in kept.items()}


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
