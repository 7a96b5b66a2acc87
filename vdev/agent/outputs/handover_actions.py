"""What is done when devices change hands: a hand-over is complete before the next container starts.

    Allocate, readings ─► core.retention.handovers ─► releases ─► a queue per device ─► actions, one after the other
    PreStartContainer ──► waits for these releases ─► arrivals ─► the same queue ─► preStart

Who holds what is written down before a container starts, so that the next process does what this one could not.
A device that could not be released is a verdict on its hardware until the release succeeds.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...aio.timing import Timing
from ...core.allocation.device_edits import placeholders
from ...core.decide import Plan
from ...core.inventory.resources import Inventory, Resource
from ...core.model.device import Device, Health, Key, Slot, base_id
from ...core.model.problem import Problem
from ...core.retention import handovers
from ...core.retention.handovers import Handover, Ledger, Unit
from ...core.retention.holders import Holdings
from ...core.retention.retain import overlaps
from ...core.spec import PRE_START_LIMIT, ActionKind, ActionSpec, EntrySpec, OnFailure, Spec
from ...errors import ActionFailed
from ..handovers.device_actions import ActionWork, DeviceActions, Occasion
from ..handovers.handover_record import HandoverRecord
from .base import Output, Stage

_RENEW = ActionSpec(kind=ActionKind.RENEW)


class HandoverActions(Output):
    """What is done when devices change hands. `ask` asks the kubelet who holds what; `wake` is told of new verdicts."""

    name = "releasing devices"
    stage = Stage.PREPARE

    def __init__(
        self,
        actions: DeviceActions,
        record: HandoverRecord,
        *,
        timing: Timing,
        ask: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self.actions = actions
        self._clock = timing.clock
        self._record = record
        self._patience = timing.intervals.first_reading
        self._ask = ask
        self._wake = wake
        self._ledger = handovers.EMPTY
        self._named: Mapping[Key, str] = {}  # pods by name, as of the last reading
        self._inventories: tuple[Inventory, ...] = ()  # what is listed, and what is wanted
        self._begun: dict[Handover, ActionWork] = {}  # what is queued
        self._failing: dict[Handover, str] = {}
        self._news = asyncio.Event()

    async def recall(self) -> None:
        """Take up what an earlier process knew; before the first reading."""
        self._ledger = await self._record.read()

    async def run(self) -> None:
        """Do what falls due until cancelled; actions that run are then ended."""
        try:
            await self.actions.run(self._begin)
        finally:
            self._begun.clear()
            self._tell()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why releases may be missed over a restart."""
        return (self._record.problem,) if self._record.problem else ()

    @property
    def directories(self) -> frozenset[Path]:
        return self._record.directories

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        return self._record.recheck(changed)

    async def stands(self) -> bool:
        return await self._record.stands()

    async def settle(self, plan: Plan) -> None:
        """Begin releases whose devices are known by now; write the record again where it is gone."""
        self._inventories = (plan.inventory, plan.base)
        self._begin()
        await self._record.write(self._ledger)

    @property
    def undeliverable(self) -> Mapping[str, Health]:
        """Devices that could not be released, those still to be released for an earlier process, and those in doubt."""
        verdicts = {}
        for resource, device in self._ledger.unsure:
            if found := self._find((resource, device)):
                verdicts[found[1].raw.id] = "waiting until it is known whether its pod is still there"
        for each in self._ledger.owed:
            reason = self._failing.get(each, "")
            if (reason or each.recalled) and (released := self._device(each)):
                verdicts[released.raw.id] = _why(each, reason)
        return {raw: Health(healthy=False, reason=reason) for raw, reason in verdicts.items()}

    # --- what happened ------------------------------------------------------------------------------------------------

    async def allocated(self, resource: Resource, ids: Sequence[str]) -> None:
        """An Allocate was granted. It is written down, so that it is known whatever becomes of this process."""
        keys = [(resource.name, each) for each in ids if _acts(resource, each)]
        if keys:
            self._keep(handovers.allocated(self._ledger, keys))
            await self._record.write(self._ledger)

    async def read(self, named: Mapping[Key, str], holdings: Holdings) -> None:
        """A reading of PodResources came; `named` are pods by name, asked for after the last Allocate of each slot."""
        self._named = named
        concerned = {key: pod for key, pod in named.items() if key in self._ledger.tenants or self._is_acting(key)}
        self._keep(handovers.read(self._ledger, concerned, holdings.may_hold, complete=holdings.complete))
        await self._record.write(self._ledger)

    def _keep(self, ledger: Ledger) -> None:
        before, self._ledger = self._ledger, ledger
        if (before.owed, before.unsure) != (ledger.owed, ledger.unsure):
            self._begin()
            self._wake()
        self._tell()

    def _tell(self) -> None:
        """Let containers that wait look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _is_acting(self, key: Key) -> bool:
        return any(_acts(each.resources.get(key[0]), key[1]) for each in self._inventories)

    # --- what is done -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Queue the releases that are owed. One whose device is not there waits for it."""
        if not self.actions.running:
            return
        for release in self._ledger.owed:
            if release not in self._begun and (found := self._find(release.unit)) is not None:
                self._queue(Occasion.RELEASE, release, *found)

    def _queue(
        self, occasion: Occasion, handover: Handover, resource: Resource, device: Device, entry: EntrySpec
    ) -> None:
        async def after() -> None:
            self._failing.pop(handover, None)
            self._begun.pop(handover, None)
            self._keep(handovers.done(self._ledger, handover))
            await self._record.write(self._ledger)

        work = self._work(occasion, handover.pod, resource, device, entry)
        self._begun[handover] = work
        self.actions.queue(work, after, _Release(self, handover) if occasion is Occasion.RELEASE else None)

    def release_failed(self, release: Handover, reason: str) -> None:
        """Where it blocks, the device is Unhealthy from now on."""
        if self.work_again(release) is not None:
            self._failing[release] = reason
            self._wake()

    def work_again(self, release: Handover) -> ActionWork | None:
        """What is to be tried again, as the configuration says it now."""
        found = self._find(release.unit)
        if found is None:
            return self._begun.get(release)
        resource, device, entry = found
        if entry.if_release_fails is OnFailure.CONTINUE:
            return None
        return self._work(Occasion.RELEASE, release.pod, resource, device, entry)

    def _work(self, occasion: Occasion, pod: str, resource: Resource, device: Device, entry: EntrySpec) -> ActionWork:
        actions = {
            Occasion.ALLOCATE: entry.on_allocate,
            Occasion.RELEASE: (*entry.on_release, *self._renewal(device, entry)),
            Occasion.PRE_START: entry.pre_start,
        }
        values = placeholders(resource.name, device)
        return ActionWork(occasion, resource.name, device, pod, values, actions[occasion])

    def _renewal(self, device: Device, entry: EntrySpec) -> tuple[ActionSpec, ...]:
        """What a pod wrote into the stand-in goes when the last pod has left that shares the device, or parts of it."""
        units = {(resource, base_id(slot)) for resource, slot in self._ledger.tenants} if entry.is_writable else ()
        held = (found[1].raw.id for unit in units if (found := self._find(unit)) is not None)
        return (_RENEW,) if entry.is_writable and device.raw.id not in held else ()

    def _find(self, unit: Unit) -> tuple[Resource, Device, EntrySpec] | None:
        """The device, as it is listed or wanted, with its entry."""
        for inventory in self._inventories:
            resource = inventory.resources.get(unit[0])
            device = resource.by_device.get(unit[1]) if resource else None
            entry = resource.entries.get(device.raw.entry) if resource and device else None
            if resource and device and entry:
                return resource, device, entry
        return None

    # --- before a container -------------------------------------------------------------------------------------------

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done before a container with these slots starts. Raises ActionFailed, saying why not."""
        deadline = self._clock.now() + PRE_START_LIMIT
        devices = {slot.device.id: slot.device for each in ids if (slot := resource.by_id.get(each)) is not None}
        keys = [(resource.name, each) for each in ids if _acts(resource, each)]
        try:
            async with self._clock.timeout(PRE_START_LIMIT):
                if keys:
                    await self._hand_over(keys, devices)
        except TimeoutError:
            raise ActionFailed(self._waits_for(resource, devices)) from None
        for device in devices.values():
            entry = resource.entries.get(device.raw.entry)
            if entry is None:
                continue  # a device that an earlier configuration had
            work = self._work(Occasion.PRE_START, "", resource, device, entry)
            for action in work.actions:
                reason = await self.actions.one(work, action, within=max(0.0, deadline - self._clock.now()))
                if reason:
                    raise ActionFailed(f"preStart of device {device.id} ({resource.name}) failed: {reason}")

    async def _hand_over(self, keys: Sequence[Key], devices: Mapping[str, Device]) -> None:
        """Wait for releases, then do what is to be done for who arrives."""
        if any(handovers.is_new(self._ledger, key) for key in keys):
            with contextlib.suppress(TimeoutError):  # without an answer the pod's name is not known, no more
                async with self._clock.timeout(self._patience):
                    await self._ask()
        while self.actions.running:
            news = self._news
            ledger, before = handovers.pre_start(self._ledger, keys, self._named, self._overlapping(devices))
            self._ledger = ledger
            for arrival in before.arrivals:
                if arrival not in self._begun and (found := self._find(arrival.unit)) is not None:
                    self._queue(Occasion.ALLOCATE, arrival, *found)
            if not (before.releases or before.arrivals):
                await self._record.write(ledger)
                return
            await news.wait()
        raise ActionFailed("vdev is ending; the kubelet will ask the next one")

    def _overlapping(self, devices: Mapping[str, Device]) -> list[Unit]:
        """What releases are owed for, and is the same hardware as one of these devices, whole or in part."""
        owed = ((each.unit, self._device(each)) for each in self._ledger.owed)
        return [unit for unit, one in owed if one and any(_overlap(one, each) for each in devices.values())]

    def _device(self, release: Handover) -> Device | None:
        """The device that is to be released, as it was when that began."""
        if work := self._begun.get(release):
            return work.device
        found = self._find(release.unit)
        return found[1] if found else None

    def _waits_for(self, resource: Resource, devices: Mapping[str, Device]) -> str:
        units = {(resource.name, each) for each in devices} | set(self._overlapping(devices))
        release = next((each for each in self._ledger.owed if each.unit in units), None)
        if release is None:
            return f"onAllocate of {', '.join(sorted(devices))} ({resource.name}) has not ended yet"
        return f"device {release.device} ({release.resource}): {_why(release, self._failing.get(release, ''))}"

    def status(self) -> dict[str, Any]:
        """The counts and the last failures, the newest first; and the releases that are still to be done."""
        owed = [
            {"resource": each.resource, "device": each.device, "pod": each.pod, "reason": self._failing.get(each, "")}
            for each in self._ledger.owed
        ]
        return {**self.actions.status(), "releasesToDo": owed}


def concerns(spec: Spec) -> bool:
    """Whether anything is done when a device changes hands."""
    return any(entry.acts_on_handovers for entry in spec.entries)


@dataclass(frozen=True, slots=True)
class _Release:
    """A release that is tried again where it fails."""

    actions: HandoverActions
    handover: Handover

    def failed(self, reason: str) -> None:
        self.actions.release_failed(self.handover, reason)

    def next(self) -> ActionWork | None:
        return self.actions.work_again(self.handover)


def _acts(resource: Resource | None, slot_id: str) -> bool:
    """Whether anything is done when this slot's device changes hands."""
    slot = resource.by_id.get(slot_id) if resource else None
    entry = resource.entries.get(slot.device.raw.entry) if resource and slot else None
    return entry is not None and entry.acts_on_handovers


def _overlap(one: Device, other: Device) -> bool:
    return overlaps(Slot(one.id, one), Slot(other.id, other))


def _why(release: Handover, reason: str) -> str:
    """Why a device cannot be handed on, in a sentence."""
    gave = f"pod {release.pod}" if release.pod else "a pod"
    if reason:
        return f"onRelease after {gave} failed: {reason}; it is tried again"
    return f"onRelease after {gave} has not ended yet"
