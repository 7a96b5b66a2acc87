"""What is done when a device changes hands: the actions, the record of who holds what, and who waits for what.

`planning.handovers` decides what is owed; here it is done, one action after the other for each device. An action runs
in a thread of its own, within its time. A program runs where vdev runs, in its container and as its user; files are
the host's, below the host root.
"""

import asyncio
import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, assert_never

import structlog

from ..aio.blocking_calls import BlockingCalls
from ..aio.clock import Timing
from ..aio.program import Program
from ..errors import ActionFailed, HostError
from ..hostfs import HostRoot, locks
from ..model.device import Device, Health, Key, Slot, base_id
from ..model.entry import PRE_START_LIMIT, ActionKind, ActionSpec, EntrySpec, OnFailure
from ..model.spec import Spec
from ..observe.metrics import Metrics
from ..planning import handovers
from ..planning.allocation import placeholders
from ..planning.handovers import Handover, Ledger, Unit
from ..planning.in_use import Holdings
from ..planning.plan import Plan
from ..planning.resources import Inventory, Resource
from ..planning.retention import overlaps
from .applier import Output, Stage


def named(action: ActionSpec) -> str:
    return action.command[0].source if action.kind is ActionKind.COMMAND else action.kind.value


def _changed(change: Callable[[], None]) -> str:
    try:
        change()
    except HostError as failed:
        return str(failed)
    return ""


def _nothing() -> None:
    """A change of a file cannot be ended."""


log = structlog.get_logger(__name__)

_REMEMBERED = 20  # failures


class Occasion(StrEnum):
    """When an action is done; the configuration's names."""

    ALLOCATE = "onAllocate"
    RELEASE = "onRelease"
    PRE_START = "preStart"


@dataclass(frozen=True, slots=True)
class Failure:
    """An action that failed, at a time in seconds since the epoch."""

    at: float
    occasion: Occasion
    resource: str
    device: str
    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class ActionWork:
    """Actions to be done to a device."""

    occasion: Occasion
    resource: str
    device: Device
    pod: str
    values: Mapping[str, str]
    actions: tuple[ActionSpec, ...]


TryAgain = Callable[[str], ActionWork | None]
"""Told why work failed, it returns what to try after a pause, or None to give it up."""


class DeviceActions:
    """Does work for devices, and remembers what failed. `renew` makes what stands in for a device anew; it blocks."""

    def __init__(self, host: HostRoot, metrics: Metrics, timing: Timing, renew: Callable[[str], None]) -> None:
        self.done = 0
        self.failed = 0
        self.failures: deque[Failure] = deque(maxlen=_REMEMBERED)  # the newest first
        self._host = host
        self._renew = renew
        self._calls = BlockingCalls(timing.clock)
        self._numbers = itertools.count()
        self._metrics = metrics
        self._clock = timing.clock
        self._first, self._most = timing.intervals.retry_step_first, timing.intervals.retry_step_most
        self._group: asyncio.TaskGroup | None = None
        self._last: dict[str, asyncio.Task[None]] = {}  # the last task of each device

    @property
    def running(self) -> bool:
        """Whether work can be queued."""
        return self._group is not None

    async def run(self, begin: Callable[[], None]) -> None:
        """Do what is queued until cancelled; `begin` is called once that is possible. What runs is then ended."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                begin()
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._last.clear()

    def queue(self, work: ActionWork, after: Callable[[], Awaitable[None]], try_again: TryAgain) -> None:
        """Do it after what is still being done to the same device, and then `after`."""
        assert self._group is not None
        previous = self._last.get(work.device.id)

        async def turn() -> None:
            if previous is not None:
                await asyncio.wait([previous])
            await self._all(work, try_again)
            await after()
            if self._last.get(work.device.id) is asyncio.current_task():
                del self._last[work.device.id]

        name = f"{work.occasion} {work.device.id}"
        self._last[work.device.id] = self._group.create_task(turn(), name=name)

    async def _all(self, work: ActionWork, try_again: TryAgain) -> None:
        left, pause = work.actions, self._first
        while True:
            failed = [(each, why) for each in left if (why := await self.one(work, each, within=each.timeout))]
            if not failed or try_again(failed[0][1]) is None:
                return
            await self._clock.sleep(pause)
            pause = min(self._most, pause * 2)
            again = try_again(failed[0][1])  # the file may say something else by now
            if again is None:
                return
            left = tuple(each for each, _ in failed) if again.actions == work.actions else again.actions
            work = again

    async def one(self, work: ActionWork, action: ActionSpec, *, within: float) -> str:
        """Do one action now; why it failed, or the empty string."""
        try:
            reason = await self._do(action, work.device.raw.id, work.values, within=within)
        except Exception as failed:  # an action's bug is that action's failure, not everybody's end
            reason = f"{named(action)} failed: {failed!r}"
        result = "failed" if reason else "done"
        self._metrics.actions.labels(work.resource, work.occasion, result).inc()
        where = {"occasion": work.occasion, "resource": work.resource, "device": work.device.id, "pod": work.pod}
        if reason:
            self.failed += 1
            failure = Failure(self._clock.wall(), work.occasion, work.resource, work.device.id, work.pod, reason)
            self.failures.appendleft(failure)
            log.error("action failed", action=named(action), reason=reason, **where)
        else:
            self.done += 1
            log.info("action done", action=named(action), **where)
        return reason

    async def _do(self, action: ActionSpec, device: str, values: Mapping[str, str], *, within: float) -> str:
        """Why it failed, or the empty string; `within` are the seconds that are left for it."""
        limit = min(action.timeout, within)
        path = action.path.render(values) if action.path is not None else ""
        call: Callable[[], str]
        abort: Callable[[], None] = _nothing
        match action.kind:
            case ActionKind.COMMAND:
                program = Program([word.render(values) for word in action.command])
                call, abort = program.run, program.abort
            case ActionKind.TRUNCATE:
                call = functools.partial(_changed, functools.partial(locks.truncate, self._host, path))
            case ActionKind.CHMOD:
                call = functools.partial(_changed, functools.partial(locks.chmod, self._host, path, action.mode))
            case ActionKind.RENEW:
                call = functools.partial(_changed, functools.partial(self._renew, device))
            case _:
                assert_never(action.kind)
        try:
            return await self._calls.run(f"action {next(self._numbers)}", call, within=limit, abort=abort)
        except TimeoutError:
            return f"{named(action)} took longer than {limit:g} s"

    def status(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "failed": self.failed,
            "failures": [asdict(each) for each in self.failures],
        }


_RENEW = ActionSpec(kind=ActionKind.RENEW)


class HandoverActions(Output):
    """What is done when devices change hands.

    `record` writes down who holds what, `ask` asks the kubelet for it, and `wake` is told of new verdicts.
    """

    name = "releasing devices"
    stage = Stage.PREPARE

    def __init__(
        self,
        actions: DeviceActions,
        record: Callable[[Ledger], Awaitable[None]],
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

    def recall(self, ledger: Ledger) -> None:
        """Take up what an earlier process knew; before the first reading."""
        self._ledger = handovers.recalled(ledger)

    async def run(self) -> None:
        """Do what falls due until cancelled; actions that run are then ended."""
        try:
            await self.actions.run(self._begin)
        finally:
            self._begun.clear()
            self._tell()

    async def settle(self, plan: Plan) -> None:
        """Begin releases whose devices are known by now."""
        self._inventories = (plan.inventory, plan.base)
        self._begin()

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
            await self._record(self._ledger)

    async def read(self, named: Mapping[Key, str], holdings: Holdings) -> None:
        """A reading of PodResources came; `named` are pods by name, asked for after the last Allocate of each slot."""
        self._named = named
        concerned = {key: pod for key, pod in named.items() if key in self._ledger.tenants or self._is_acting(key)}
        self._keep(handovers.read(self._ledger, concerned, holdings.may_hold, complete=holdings.complete))
        await self._record(self._ledger)

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
            await self._record(self._ledger)

        work = self._work(occasion, handover.pod, resource, device, entry)
        self._begun[handover] = work
        is_release = occasion is Occasion.RELEASE
        self.actions.queue(work, after, functools.partial(self._release_again, handover) if is_release else _never)

    def _release_again(self, release: Handover, reason: str) -> ActionWork | None:
        """A release failed. Where that blocks, the device is Unhealthy, and it is tried again as the file says now."""
        work = self._begun.get(release)
        if (found := self._find(release.unit)) is not None:
            resource, device, entry = found
            if entry.if_release_fails is OnFailure.CONTINUE:
                return None
            work = self._work(Occasion.RELEASE, release.pod, resource, device, entry)
        if work is not None and self._failing.get(release) != reason:
            self._failing[release] = reason
            self._wake()
        return work

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
                await self._record(ledger)
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


def _never(_reason: str) -> None:
    """An onAllocate that failed is not tried again."""


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
