"""The CDI specification files: written before the devices in them are advertised, kept over restarts, removed when
unneeded.

What a plan needs no more stays until its lists are served, for until then an answer may name it; and then until no pod
can hold it, which the next plan knows.

Only files whose name begins with `vdev-` are ever removed or replaced. They stay when the agent ends, because a
container that restarts is given the same CDI names again; and for the same reason a device that the configuration lost
stays in its file until no pod can hold it, also when another process wrote it. What a document holds is decided in
`core.allocation.cdi` and `core.allocation.edits`; `cdi_own` writes our files. Those of others are not read.
"""

import asyncio
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ....aio.timing import Timing
from ....core.allocation import cdi, edits
from ....core.decide import Plan
from ....core.inventory.resources import Inventory
from ....core.model.device import Health
from ....core.model.faults.fault_effects import CdiFault
from ..base import Output, Stage
from .cdi_own import OwnFiles, is_unfinished

log = structlog.get_logger(__name__)

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
        names = edits.cdi_names(plan.inventory)
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
    for kind, name, raw in edits.cdi_names(inventory):
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
