"""Runs the actions of devices that change hands: `onAllocate`, `onRelease` and `preStart`.

`planning.handovers` decides which actions are due. The actions of one device run one after the other, each in its own
thread and with its timeout. A program runs in vdev's container, as vdev's user; paths of files are below the host root.
"""

import asyncio
import contextlib
import functools
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from ..aio.program import Program
from ..aio.tasks import Backoff, BlockingCalls
from ..errors import ActionFailed, HostError
from ..hostfs.root import chmod, truncate
from ..model.device import Device, DeviceKey, Health, Key, Slot, base_id
from ..model.entry import PRE_START_LIMIT, RENEW, Action, Entry, OnFailure
from ..planning.allocation import placeholders
from ..planning.handovers import Holding, Holdings, Occasion, Phase, SavedHolding
from ..planning.plan import DesiredState
from ..planning.resources import Inventory, Resource
from ..planning.retired import overlaps
from .applier import Applier, Stage

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

_REMEMBERED = 20  # failures
_COMMAND_SECONDS = 10.0  # the default time after which a command is killed


@dataclass(frozen=True, slots=True)
class Subject:
    """A device with its resource and its entry, which has the actions."""

    resource: Resource
    device: Device
    entry: Entry


class HandoverActions(Applier):
    """Runs the actions that are due when devices change hands, and keeps the last failures for the status."""

    name = "releasing devices"
    stage = Stage.PREPARE

    def __init__(self, agent: "Agent") -> None:
        intervals, self._clock = agent.options.timing
        self.done = 0
        self.failed = 0
        self.failures: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)  # documents for the status, the newest first
        self._agent = agent
        self._calls = BlockingCalls(self._clock)
        self._backoff = Backoff(intervals.retry_step_first, intervals.retry_step_most)
        self._holdings = Holdings()
        self._inventories: tuple[Inventory, ...] = ()  # the listed devices, and those of the configuration
        self._group: asyncio.TaskGroup | None = None  # None: no action may start
        self._running: dict[Holding, Subject] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by device, while its actions run
        self._changed = asyncio.Event()  # set and replaced at each change of the holdings

    def recall(self, saved: Iterable[SavedHolding]) -> set[Key]:
        """Adopt the holdings of an earlier process, before the first reading. Returns the slots of its pods."""
        self._holdings = Holdings(saved)
        return {key for each in self._holdings.all if each.phase is not Phase.LEAVING for key in each.keys}

    @property
    def is_idle(self) -> bool:
        """Whether no device has actions, and no action of an earlier configuration is left to do."""
        spec = self._agent.reconciler.spec
        return not self._holdings.all and not any(entry.acts_on_handovers for entry in spec.entries)

    async def run(self) -> None:
        """Run actions as they become due, until cancelled; then running actions are ended."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._start(self._holdings.releases)
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._running.clear()
            self._notify()

    async def apply(self, plan: DesiredState) -> None:
        self._inventories = (plan.advertised, plan.observed.inventory)
        if self._holdings.all:
            self._start(self._holdings.releases)  # those of devices that were not found until now

    def _set_failure(self, holding: Holding, reason: str) -> None:
        """Withhold the device while its release fails; `reason` is empty once it has succeeded."""
        if holding.failure != reason:
            holding.failure = reason
            self.undeliverable = {
                subject.device.raw.id: Health(healthy=False, reason=self._why(each))
                for each, subject in self._running.items()
                if each.failure
            }
            self._agent.pending.add()

    # --- events -------------------------------------------------------------------------------------------------------

    async def granted(self, resource: Resource, ids: Sequence[str]) -> None:
        """Record an Allocate before it is answered, so that the next process knows of it."""
        if keys := _acting(resource, ids):
            self._holdings.allocate(keys)
            await self._update()

    async def read(self) -> None:
        holders, concerned, started = self._agent.holders, {}, self._holdings.started
        for key, pod in holders.named.items():
            subject = self._find((key[0], base_id(key[1])))
            if key in started or (subject and subject.entry.acts_on_handovers):
                concerned[key] = pod
        self._holdings.read(concerned, holders.in_use.may_hold)
        await self._update()

    async def _update(self) -> None:
        """Start releases that are due now, and write the holdings to the state file."""
        self._start(self._holdings.releases)
        self._notify()
        await self._agent.state.record(self._holdings.saved)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # --- handovers ----------------------------------------------------------------------------------------------------

    def _start(self, due: Collection[Holding]) -> None:
        """Run the actions that are due. Those of a device that is not found wait until it is found."""
        for each in due:
            subject = self._find(each.device_key)
            if self._group is not None and each not in self._running and subject is not None:
                self._running[each] = subject
                self._group.create_task(self._hand_over(each, subject), name=f"handover of {each.device}")

    async def _hand_over(self, holding: Holding, subject: Subject) -> None:
        """Run what is due for a holding, after other handovers of its device."""
        async with self._locks[holding.device]:  # which is given in the order of the tasks
            while (phase := holding.phase) in (Phase.ARRIVING, Phase.LEAVING):
                if phase is Phase.ARRIVING:
                    for action in subject.entry.on_allocate:
                        await self._run(Occasion.ALLOCATE, subject, holding.pod, action)
                else:
                    await self._release(holding, subject)
                if phase is Phase.LEAVING:
                    self._holdings.all.remove(holding)
                    break
                if holding.phase is phase:  # else the pod has ended in the meantime
                    holding.phase = Phase.HOLDING
        self._set_failure(holding, "")
        del self._running[holding]
        await self._update()

    async def _release(self, holding: Holding, subject: Subject) -> None:
        """Run the actions of `onRelease`; repeat those that fail, unless the entry continues after failures."""
        actions = left = self._release_actions(subject)
        for attempt in itertools.count():
            results = [(each, await self._run(Occasion.RELEASE, subject, holding.pod, each)) for each in left]
            failed = [(each, reason) for each, reason in results if reason]
            subject = self._find(holding.device_key) or subject  # as edited since the release began
            if not failed or subject.entry.if_release_fails is OnFailure.CONTINUE:
                return
            self._set_failure(holding, failed[0][1])
            await self._clock.sleep(self._backoff.pause(attempt))
            # Other actions of an edited entry run from the beginning, the same ones only if they failed.
            subject = self._find(holding.device_key) or subject
            before, actions = actions, self._release_actions(subject)
            left = tuple(each for each, _ in failed) if actions == before else actions

    def _release_actions(self, subject: Subject) -> tuple[Action, ...]:
        entry = subject.entry
        if not entry.is_writable:
            return entry.on_release
        # The placeholder is renewed when the last pod that shares the device, or has a part of it, has ended.
        keys = {(resource, base_id(slot)) for resource, slot in self._holdings.started}
        held = {found.device.raw.id for key in keys if (found := self._find(key))}
        return entry.on_release if subject.device.raw.id in held else (*entry.on_release, RENEW)

    def _find(self, key: DeviceKey) -> Subject | None:
        for inventory in self._inventories:
            resource = inventory.resources.get(key[0])
            device = resource.by_device.get(key[1]) if resource else None
            entry = resource.entries.get(device.raw.entry) if resource and device else None
            if resource and device and entry:
                return Subject(resource, device, entry)
        return None

    async def _run(
        self, occasion: Occasion, subject: Subject, pod: str, action: Action, *, within: float = math.inf
    ) -> str:
        """Run one action for at most `within` seconds; return why it failed, or the empty string."""
        resource, device = subject.resource.name, subject.device
        name = action.command[0].source if action.command else next(iter(action.given), "renew")
        limit = min(action.timeout or _COMMAND_SECONDS, within)
        try:
            call, abort = self._call(action, subject)
            reason = await self._calls.run(call, within=limit, abort=abort) or ""
        except TimeoutError:
            reason = f"{name} took longer than {limit:g} s"
        except Exception as failed:  # a bug in one action must not stop the others
            reason = str(failed) if isinstance(failed, HostError) else f"{name} failed: {failed!r}"
        self._agent.metrics.actions.labels(resource, occasion, "failed" if reason else "done").inc()
        where = {"occasion": occasion, "resource": resource, "device": device.id, "pod": pod}
        if reason:
            self.failed += 1
            self.failures.appendleft({"at": self._clock.wall(), **where, "reason": reason})
            log.error("action failed", action=name, reason=reason, **where)
        else:
            self.done += 1
            log.info("action done", action=name, **where)
        return reason

    def _call(self, action: Action, subject: Subject) -> tuple[Callable[[], str | None], Callable[[], None] | None]:
        """Return a blocking function that runs the action and may return why it failed, and one to end it early."""
        values = placeholders(subject.resource.name, subject.device)
        host = self._agent.options.host
        if action.command:
            program = Program([word.render(values) for word in action.command])
            return program.run, program.abort
        if action.truncate:
            return functools.partial(truncate, host, action.truncate.render(values)), None
        if action.chmod:
            mode = int(action.mode or "0660", 8)
            return functools.partial(chmod, host, action.chmod.render(values), mode), None
        return functools.partial(self._agent.placeholders.renew, subject.device.raw.id), None

    # --- before a container starts ------------------------------------------------------------------------------------

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Run the actions that are due before a container with these slots starts. Raises ActionFailed."""
        deadline = self._clock.now() + PRE_START_LIMIT
        devices = {slot.device.id: slot.device for each in ids if (slot := resource.by_id.get(each)) is not None}
        try:
            async with self._clock.timeout(PRE_START_LIMIT):
                if keys := _acting(resource, ids):
                    await self._wait_for_handovers(resource, keys, devices)
        except TimeoutError:
            release = next(iter(self._releases_before(resource, devices)), None)
            if release is None:
                waiting = f"onAllocate of {', '.join(sorted(devices))} ({resource.name}) has not ended yet"
            else:
                waiting = f"device {release.device} ({release.resource}): {self._why(release)}"
            raise ActionFailed(waiting) from None
        for device in devices.values():
            if (entry := resource.entries.get(device.raw.entry)) is None:
                continue  # a device of an earlier configuration
            for action in entry.pre_start:
                left = max(0.0, deadline - self._clock.now())
                subject = Subject(resource, device, entry)
                if reason := await self._run(Occasion.PRE_START, subject, "", action, within=left):
                    raise ActionFailed(f"preStart of device {device.id} ({resource.name}) failed: {reason}")

    async def _wait_for_handovers(self, resource: Resource, keys: Sequence[Key], devices: Mapping[str, Device]) -> None:
        """Wait until the releases of previous pods are done, then until `onAllocate` of this pod is done."""
        if not self._holdings.started >= set(keys):
            with contextlib.suppress(TimeoutError):  # without an answer, only the pod's name is not known
                async with self._clock.timeout(self._agent.options.intervals.first_reading):
                    await self._agent.read_holders()
        while self._group is not None:
            changed = self._changed
            due = self._releases_before(resource, devices) or self._holdings.start(keys, self._agent.holders.named)
            self._start(due)
            if not due:
                await self._agent.state.record(self._holdings.saved)
                return
            await changed.wait()
        raise ActionFailed("vdev is stopping; the kubelet will ask the next one")

    def _releases_before(self, resource: Resource, devices: Mapping[str, Device]) -> list[Holding]:
        """Return the releases to do of these devices, and of devices that share hardware with one of them."""
        slots = [Slot(each.id, each) for each in devices.values()]
        found = []
        for release in self._holdings.releases:
            subject = self._running.get(release) or self._find(release.device_key)  # as it was when the release began
            is_own = release.resource == resource.name and release.device in devices
            if is_own or (subject and any(overlaps(Slot(subject.device.id, subject.device), each) for each in slots)):
                found.append(release)
        return found

    def _why(self, release: Holding) -> str:
        pod = f"pod {release.pod}" if release.pod else "a pod"
        if release.failure:
            return f"onRelease after {pod} failed: {release.failure}; it is tried again"
        return f"onRelease after {pod} has not ended yet"

    def status(self) -> dict[str, Any]:
        """The counts, the last failures, and the releases that are still to be done."""
        releases = [
            {"resource": each.resource, "device": each.device, "pod": each.pod, "reason": each.failure}
            for each in self._holdings.releases
        ]
        return {
            "done": self.done,
            "failed": self.failed,
            "failures": list(self.failures),
            "releasesToDo": releases,
        }


def _acting(resource: Resource, ids: Sequence[str]) -> list[Key]:
    """Return the slots whose device has actions for a change of hands."""
    slots = (slot for each in ids if (slot := resource.by_id.get(each)))
    entries = ((slot.id, resource.entries.get(slot.device.raw.entry)) for slot in slots)
    return [(resource.name, each) for each, entry in entries if entry and entry.acts_on_handovers]
