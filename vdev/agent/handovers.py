"""What is done when a device changes hands: `onAllocate`, `onRelease` and `preStart`.

`planning.handovers` decides what is owed; here it is done, one handover after the other for each device. An action runs
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
from ..aio.tasks import Backoff
from ..errors import ActionFailed, HostError
from ..hostfs import HostRoot, locks
from ..model.device import Device, Health, Key, Slot, base_id
from ..model.entry import PRE_START_LIMIT, RENEW, Action, ActionKind, Entry, OnFailure
from ..model.spec import Spec
from ..observe.metrics import Metrics
from ..planning import handovers
from ..planning.allocation import placeholders
from ..planning.handovers import Handover, Ledger, Unit
from ..planning.in_use import Holdings
from ..planning.plan import DesiredState
from ..planning.resources import Inventory, Resource
from ..planning.retention import overlaps
from .applier import Applier, Stage

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
class Subject:
    """A device, as it is listed or wanted, with its resource and entry."""

    resource: Resource
    device: Device
    entry: Entry


class Actions:
    """Does actions, and remembers what failed. `renew` makes what stands in for a device anew; it blocks."""

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

    async def do(self, occasion: Occasion, subject: Subject, pod: str, action: Action, *, within: float) -> str:
        """Do one action now, in so many seconds; why it failed, or the empty string."""
        resource, device = subject.resource.name, subject.device
        name = action.command[0].source if action.kind is ActionKind.COMMAND else action.kind.value
        limit = min(action.seconds, within)
        try:
            call, abort = self._call(action, subject)
            await self._calls.run(f"action {next(self._numbers)}", call, within=limit, abort=abort)
            reason = ""
        except TimeoutError:
            reason = f"{name} took longer than {limit:g} s"
        except (HostError, ActionFailed) as failed:
            reason = str(failed)
        except Exception as failed:  # an action's bug is that action's failure, not everybody's end
            reason = f"{name} failed: {failed!r}"
        self._metrics.actions.labels(resource, occasion, "failed" if reason else "done").inc()
        where = {"occasion": occasion, "resource": resource, "device": device.id, "pod": pod}
        if reason:
            self.failed += 1
            self.failures.appendleft(Failure(self._clock.wall(), occasion, resource, device.id, pod, reason))
            log.error("action failed", action=name, reason=reason, **where)
        else:
            self.done += 1
            log.info("action done", action=name, **where)
        return reason

    def _call(self, action: Action, subject: Subject) -> tuple[Callable[[], None], Callable[[], None]]:
        """What blocks until it is done and raises what went wrong, and what ends it early."""
        values = placeholders(subject.resource.name, subject.device)
        path = action.path.render(values) if action.path is not None else ""
        match action.kind:
            case ActionKind.COMMAND:
                program = Program([word.render(values) for word in action.command])
                return functools.partial(_run, program), program.abort
            case ActionKind.TRUNCATE:
                return functools.partial(locks.truncate, self._host, path), _nothing
            case ActionKind.CHMOD:
                return functools.partial(locks.chmod, self._host, path, action.permissions), _nothing
            case ActionKind.RENEW:
                return functools.partial(self._renew, subject.device.raw.id), _nothing
            case _:
                assert_never(action.kind)

    def status(self) -> dict[str, Any]:
        return {"done": self.done, "failed": self.failed, "failures": [asdict(each) for each in self.failures]}


def _run(program: Program) -> None:
    if reason := program.run():
        raise ActionFailed(reason)


def _nothing() -> None:
    """A change of a file cannot be ended."""


class HandoverActions(Applier):
    """What is done when devices change hands.

    `record` writes down who holds what, `ask` asks the kubelet for it, and `wake` is told of new verdicts.
    """

    name = "releasing devices"
    stage = Stage.PREPARE

    def __init__(
        self,
        actions: Actions,
        record: Callable[[Ledger], Awaitable[None]],
        *,
        timing: Timing,
        ask: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self.actions = actions
        self._record = record
        self._clock = timing.clock
        self._patience = timing.intervals.first_reading
        self._backoff = Backoff(timing.intervals.retry_step_first, timing.intervals.retry_step_most)
        self._ask = ask
        self._wake = wake
        self._ledger = handovers.EMPTY
        self._named: Mapping[Key, str] = {}  # pods by name, as of the last reading
        self._inventories: tuple[Inventory, ...] = ()  # what is listed, and what is wanted
        self._group: asyncio.TaskGroup | None = None  # while anything can be done
        self._begun: dict[Handover, Subject] = {}
        self._last: dict[str, asyncio.Task[None]] = {}  # the last task of each device, by its id
        self._failing: dict[Handover, str] = {}  # releases that are tried again, and why
        self._news = asyncio.Event()

    def recall(self, ledger: Ledger) -> None:
        """Take up what an earlier process knew; before the first reading."""
        self._ledger = ledger

    async def run(self) -> None:
        """Do what falls due until cancelled; actions that run are then ended."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._begin_releases()
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._begun.clear()
            self._last.clear()
            self._tell()

    async def apply(self, plan: DesiredState) -> None:
        """Begin releases whose devices are known by now."""
        self._inventories = (plan.advertised, plan.observed.inventory)
        self._begin_releases()

    @property
    def undeliverable(self) -> Mapping[str, Health]:
        """Devices that could not be released."""
        verdicts = {}
        for each in self._failing:
            if device := self._device(each):
                verdicts[device.raw.id] = self._why(each)
        return {raw: Health(healthy=False, reason=reason) for raw, reason in verdicts.items()}

    # --- what happened ------------------------------------------------------------------------------------------------

    async def allocated(self, resource: Resource, ids: Sequence[str]) -> None:
        """An Allocate was granted. It is written down, so that it is known whatever becomes of this process."""
        if keys := _acting(resource, ids):
            await self._keep(handovers.allocated(self._ledger, keys))

    async def read(self, named: Mapping[Key, str], holdings: Holdings) -> None:
        """A reading of PodResources came; `named` are pods by name, asked for after the last Allocate of each slot."""
        self._named = named
        concerned = {key: pod for key, pod in named.items() if key in self._ledger.tenants or self._is_acting(*key)}
        await self._keep(handovers.read(self._ledger, concerned, holdings.may_hold))

    def _is_acting(self, name: str, slot: str) -> bool:
        listing = (each.resources[name] for each in self._inventories if name in each.resources)
        return any(_acting(resource, [slot]) for resource in listing)

    async def _keep(self, ledger: Ledger) -> None:
        """This is so now: begin what is owed, let containers that wait look again, and write it down."""
        before, self._ledger = self._ledger, ledger
        if before.owed != ledger.owed:
            self._begin_releases()
            self._wake()
        self._tell()
        await self._record(self._ledger)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # --- what is done -------------------------------------------------------------------------------------------------

    def _begin_releases(self) -> None:
        for each in self._ledger.owed:
            self._begin(Occasion.RELEASE, each)

    def _begin(self, occasion: Occasion, handover: Handover) -> None:
        """Do it after what is still being done to the same device. If the device is not there, this waits for it."""
        subject = self._find(handover.unit)
        if self._group is None or handover in self._begun or subject is None:
            return
        device = handover.device
        self._begun[handover] = subject
        work = self._hand_over(occasion, handover, subject, self._last.get(device))
        self._last[device] = self._group.create_task(work, name=f"{occasion} {device}")

    async def _hand_over(
        self, occasion: Occasion, handover: Handover, subject: Subject, previous: asyncio.Task[None] | None
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        actions = left = self._actions(occasion, subject)
        for attempt in itertools.count():
            failed = [
                (each, reason)
                for each in left
                if (reason := await self.actions.do(occasion, subject, handover.pod, each, within=each.seconds))
            ]
            if not failed or occasion is Occasion.ALLOCATE or self._is_given_up(handover):
                break
            # A release that blocks: the device is Unhealthy, and it is tried again as the file says by then.
            if self._failing.get(handover) != failed[0][1]:
                self._failing[handover] = failed[0][1]
                self._wake()
            await self._clock.sleep(self._backoff.pause(attempt))
            if self._is_given_up(handover):
                break
            subject = self._find(handover.unit) or subject
            before, actions = actions, self._actions(occasion, subject)
            left = tuple(each for each, _ in failed) if actions == before else actions
        self._failing.pop(handover, None)
        del self._begun[handover]
        if self._last.get(handover.device) is asyncio.current_task():
            del self._last[handover.device]
        await self._keep(handovers.done(self._ledger, handover))

    def _is_given_up(self, release: Handover) -> bool:
        """Whether the file says that a failed release does not matter."""
        subject = self._find(release.unit)
        return subject is not None and subject.entry.if_release_fails is OnFailure.CONTINUE

    def _actions(self, occasion: Occasion, subject: Subject) -> tuple[Action, ...]:
        entry, raw = subject.entry, subject.device.raw.id
        match occasion:
            case Occasion.ALLOCATE:
                return entry.on_allocate
            case Occasion.PRE_START:
                return entry.pre_start
            case Occasion.RELEASE if entry.is_writable:
                # What a pod wrote into the stand-in goes when the last pod left that shares the device, or parts of it.
                units = {(resource, base_id(slot)) for resource, slot in self._ledger.tenants}
                held = {found.device.raw.id for unit in units if (found := self._find(unit))}
                return entry.on_release if raw in held else (*entry.on_release, RENEW)
            case Occasion.RELEASE:
                return entry.on_release

    def _find(self, unit: Unit) -> Subject | None:
        for inventory in self._inventories:
            resource = inventory.resources.get(unit[0])
            device = resource.by_device.get(unit[1]) if resource else None
            entry = resource.entries.get(device.raw.entry) if resource and device else None
            if resource and device and entry:
                return Subject(resource, device, entry)
        return None

    # --- before a container -------------------------------------------------------------------------------------------

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done before a container with these slots starts. Raises ActionFailed, saying why not."""
        deadline = self._clock.now() + PRE_START_LIMIT
        devices = {slot.device.id: slot.device for each in ids if (slot := resource.by_id.get(each)) is not None}
        keys = _acting(resource, ids)
        try:
            async with self._clock.timeout(PRE_START_LIMIT):
                if keys:
                    await self._wait_for_handovers(keys, devices)
        except TimeoutError:
            raise ActionFailed(self._waits_for(resource, devices)) from None
        for device in devices.values():
            entry = resource.entries.get(device.raw.entry)
            if entry is None:
                continue  # a device that an earlier configuration had
            for action in entry.pre_start:
                left = max(0.0, deadline - self._clock.now())
                subject = Subject(resource, device, entry)
                if reason := await self.actions.do(Occasion.PRE_START, subject, "", action, within=left):
                    raise ActionFailed(f"preStart of device {device.id} ({resource.name}) failed: {reason}")

    async def _wait_for_handovers(self, keys: Sequence[Key], devices: Mapping[str, Device]) -> None:
        """Wait for releases, then do what is to be done for who arrives."""
        if not self._ledger.tenants.keys() >= set(keys):
            with contextlib.suppress(TimeoutError):  # without an answer the pod's name is not known, no more
                async with self._clock.timeout(self._patience):
                    await self._ask()
        while self._group is not None:
            news = self._news
            self._ledger, releases, arrivals = handovers.pre_start(
                self._ledger, keys, self._named, self._overlapping(devices)
            )
            for arrival in arrivals:
                self._begin(Occasion.ALLOCATE, arrival)
            if not (releases or arrivals):
                await self._record(self._ledger)
                return
            await news.wait()
        raise ActionFailed("vdev is ending; the kubelet will ask the next one")

    def _overlapping(self, devices: Mapping[str, Device]) -> list[Unit]:
        """What releases are owed for, and is the same hardware as one of these devices, whole or in part."""
        owed = ((each.unit, self._device(each)) for each in self._ledger.owed)
        return [unit for unit, one in owed if one and any(_overlap(one, each) for each in devices.values())]

    def _device(self, release: Handover) -> Device | None:
        """The device that is to be released, as it was when that began."""
        subject = self._begun.get(release) or self._find(release.unit)
        return subject.device if subject else None

    def _waits_for(self, resource: Resource, devices: Mapping[str, Device]) -> str:
        units = {(resource.name, each) for each in devices} | set(self._overlapping(devices))
        release = next((each for each in self._ledger.owed if each.unit in units), None)
        if release is None:
            return f"onAllocate of {', '.join(sorted(devices))} ({resource.name}) has not ended yet"
        return f"device {release.device} ({release.resource}): {self._why(release)}"

    def _why(self, release: Handover) -> str:
        """Why a device cannot be handed on, in a sentence."""
        gave = f"pod {release.pod}" if release.pod else "a pod"
        if reason := self._failing.get(release):
            return f"onRelease after {gave} failed: {reason}; it is tried again"
        return f"onRelease after {gave} has not ended yet"

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


def _acting(resource: Resource, ids: Sequence[str]) -> list[Key]:
    """Those of these slots with whose device anything is done when it changes hands."""
    slots = (slot for each in ids if (slot := resource.by_id.get(each)))
    entries = ((slot.id, resource.entries.get(slot.device.raw.entry)) for slot in slots)
    return [(resource.name, each) for each, entry in entries if entry and entry.acts_on_handovers]


def _overlap(one: Device, other: Device) -> bool:
    return overlaps(Slot(one.id, one), Slot(other.id, other))
