"""Our CDI specifications on disk: `vdev-*.json`, each written, repaired and removed on its own.

What cannot be written leaves the other files alone and is reported with the reason. A file that somebody deletes or
changes is written again at once; when that happens again and again, with growing pauses.
"""

import asyncio
import contextlib
import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ..aio.clock import Timing
from ..errors import HostError
from ..faults.effects import CdiFault
from ..hostfs import read_plain, write_atomic
from ..intervals import Intervals
from ..model.device import Health
from ..planning import allocation, cdi
from ..planning.plan import Plan
from ..planning.resources import Inventory
from .applier import Output, Stage

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

    def settle(self, texts: Mapping[str, bytes], now: float, *, look: bool) -> None:
        """Write what differs and remove what is not wanted. With `look`, compare with the disk instead of memory."""
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
                reasons = {name: self._put(name, text, now, look=look) for name, text in texts.items()}
                self.failed = {name: reason for name, reason in reasons.items() if reason}
        paused = [each.next_at for name, each in self._repairs.items() if name in self.failed and each.next_at > now]
        retried = [now + self._intervals.retry_cdi] if self.trouble or len(self.failed) > len(paused) else []
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

    def _put(self, name: str, text: bytes, now: float, *, look: bool) -> str:
        """Why the file is not on disk, or the empty string."""
        path = self.directory / name
        if self._texts.get(name) == text:
            if not look or _holds(path, text):
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
        first, most = self._intervals.retry_cdi, self._intervals.retry_cdi_most
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
_MOST_SAID = 3  # troubles in one text


@dataclass(slots=True)
class _Outcome:
    """What one look at the directory found: why devices cannot be resolved, what to say, when to look again."""

    devices: Mapping[_Name, str] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    again: tuple[float | None, ...] = ()


class CdiFiles(Output):
    """One directory's files of ours, and what they say.

    `undeliverable` holds the devices that a runtime cannot resolve: they must not be advertised as Healthy. `trouble`
    is the same for the directory as a whole, or empty.
    """

    name = "writing CDI specifications"
    stage = Stage.PREPARE

    def __init__(self, directory: Path, timing: Timing) -> None:
        self.directory = directory
        self.trouble = ""
        self._intervals, self._clock = timing
        self._own = OwnFiles(directory, timing.intervals)
        self._present: list[cdi.Document] | None = None
        self._left: Mapping[_Name, _Device] = {}  # what is in the files and the plan does not need
        self._unnamed: frozenset[_Name] = frozenset()  # what no answer has any more
        self._plan: Plan | None = None
        self._failed: Mapping[str, Health] = {}
        self._again_at: float | None = None
        self._look = True  # whether to compare with the disk

    @property
    def undeliverable(self) -> Mapping[str, Health]:
        """The devices, by raw device id, that a runtime cannot resolve, and why."""
        return self._failed

    @property
    def directories(self) -> frozenset[Path]:
        return frozenset({self.directory}) if self._present else frozenset()

    @property
    def again_at(self) -> float | None:
        """When to look again at what could not be written, or at what pods may still need."""
        return self._again_at

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """Compare with the disk at the next `settle`; our own unfinished files say nothing."""
        if changed and all(map(is_unfinished, changed)):
            return False
        self._look = True
        return True

    async def settle(self, plan: Plan) -> None:
        """Make the files say what the plan and pods need. What cannot be written is told by `undeliverable`."""
        now = self._clock.now()
        due = self._again_at is not None and now >= self._again_at
        if not (self._look or due or self._differs(plan)):
            return
        look, self._look = self._look, False
        outcome = _Outcome()
        try:
            if self._present != [] or plan.specifications:
                outcome = await asyncio.to_thread(self._work, plan, now, look=look)
        except BaseException:
            self._look = True
            raise
        self._plan = plan
        self._failed = _failed(plan.inventory, outcome)
        self._again_at = min((each for each in outcome.again if each is not None), default=None)
        self._say(outcome.troubles)

    def unprepared(self, plan: Plan) -> frozenset[str]:
        """What the plan needs, and no `settle` that succeeded has written so."""
        wanted = _named(plan.specifications)
        there = _named({document["kind"]: document for document in self._present or ()})
        names = allocation.cdi_names(plan.inventory)
        return frozenset(raw for kind, name, raw in names if there.get((kind, name)) != wanted.get((kind, name)))

    def listed(self, plan: Plan) -> None:
        """Names that this plan does not need may go."""
        before, self._unnamed = self._unnamed, frozenset(self._left)
        if before != self._unnamed and self._is_any_unneeded(plan):
            self._again_at = self._clock.now()

    def _differs(self, plan: Plan) -> bool:
        before = self._plan
        return (
            before is None
            or plan.specifications != before.specifications
            or plan.cdi_faults != before.cdi_faults
            or self._is_any_unneeded(plan)
        )

    def _is_any_unneeded(self, plan: Plan) -> bool:
        return not all(self._is_needed(plan, name, device) for name, device in self._left.items())

    def _is_needed(self, plan: Plan, name: _Name, device: _Device) -> bool:
        """Whether what the plan does not need may be in an answer, or a pod may hold it."""
        return name not in self._unnamed or (device["name"] != cdi.ALL and not plan.is_free(cdi.device_id(device)))

    def _work(self, plan: Plan, now: float, *, look: bool) -> _Outcome:
        wanted = plan.specifications
        if self._present is None:
            try:
                self._present = self._own.read()
            except OSError as cause:
                reason = f"cannot read the CDI directory {self.directory}: {cause.strerror}"
                devices = dict.fromkeys(_named(wanted), reason)
                return _Outcome(devices, troubles=(reason,) * bool(wanted), again=(now + self._intervals.retry_cdi,))
        documents = cdi.with_leftovers(wanted, self._present, functools.partial(self._is_needed, plan))
        texts = {cdi.file_name(kind): _text(document) for kind, document in documents.items()}
        self._own.settle(_spoilt(texts, plan.cdi_faults), now, look=look)
        self._present = list(documents.values())
        needed = _named(wanted)
        self._left = {name: device for name, device in _named(documents).items() if name not in needed}
        again = now + self._intervals.retire_settle if self._left and not plan.holdings.complete else None
        troubles = dict.fromkeys((*self._own.failed.values(), *self._own.trouble))
        return _Outcome(self._missing(documents), tuple(troubles), (self._own.again_at, again))

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


def _failed(inventory: Inventory, outcome: _Outcome) -> dict[str, Health]:
    if not outcome.devices:
        return {}
    failed: dict[str, Health] = {}
    for kind, name, raw in allocation.cdi_names(inventory):
        reason = outcome.devices.get((kind, name))
        if reason and raw not in failed:
            failed[raw] = Health(healthy=False, reason=f"no container could be given it by its CDI name: {reason}")
    return failed


def _named(documents: Mapping[str, cdi.Document]) -> dict[_Name, _Device]:
    return {(kind, device["name"]): device for kind, document in documents.items() for device in document["devices"]}


def _edits(document: cdi.Document | None) -> dict[str, Mapping[str, Any]]:
    """What a container gets with each device of a document, by name."""
    return {device["name"]: cdi.edits_of(document, device) for device in document["devices"]} if document else {}


def _spoilt(texts: dict[str, bytes], faults: Mapping[str, CdiFault]) -> dict[str, bytes]:
    """The files as they are under faults: some not there, some broken off in the middle."""
    kept = {name: text for name, text in texts.items() if faults.get(name) is not CdiFault.MISSING}
    return {
        name: text[: len(text) // 2] if faults.get(name) is CdiFault.BROKEN else text for name, text in kept.items()
    }


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
