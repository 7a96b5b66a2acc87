"""The partition layouts that labels of this agent's own Node choose.

`planning.repartition` decides; this module knows the Node's labels, and keeps the state of each label. Until the Node
is seen, and without an API server, the layouts of an earlier process stay, or those for a node without the label.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from ..aio.clock import Timing
from ..errors import ApiServerError
from ..model.device import Device, Key, RawDevice
from ..model.dra import DraPartitions
from ..model.entry import Entry
from ..model.problem import Problem, errors, warning
from ..model.spec import Spec
from ..planning import repartition
from ..planning.in_use import InUse
from ..planning.inventory import arrange
from ..planning.repartition import ClaimedDevice, Progresses, RepartitionState, RepartitionView
from ..planning.resources import Inventory
from .node_objects import NodeObject

log = structlog.get_logger(__name__)

_ROUNDS = 10  # of deciding, and looking again at what pods hold


class ChosenLayouts:
    """The partition layouts in force on a node; `progresses` has the state of each label that chooses one."""

    def __init__(self, node: str) -> None:
        self.progresses: Progresses = {}
        self._node = node

    def in_force(self, spec: Spec) -> Spec:
        """Return the configuration with the layouts in force."""
        return repartition.in_force(spec, self.progresses) if self.progresses else spec

    @property
    def again_at(self) -> float | None:
        """The (monotonic) time at which to advance even if nothing happens, or None."""
        return min((each.again_at for each in self.progresses.values() if each.again_at is not None), default=None)

    def _entries(self, spec: Spec) -> list[Entry]:
        return [entry for entry in spec.on_node(self._node) if entry.choice]


class NodeChoices(ChosenLayouts):
    """The layouts that labels of this agent's Node choose.

    `view` is the Node. `on_change` is called when it changes, once an entry follows a label.
    """

    def __init__(self, node: str, view: NodeObject, on_change: Callable[[], None], timing: Timing) -> None:
        super().__init__(node)
        self._view = view
        self._on_change = on_change
        self._intervals, self._clock = timing
        self._follows = False

    async def begin(self, spec: Spec) -> None:
        """Follow the Node if an entry needs a label of it, and wait a moment for the first look."""
        if self._follows or not self._entries(spec):
            return
        self._follows = True
        self._view.subscribe(self._on_change)
        with contextlib.suppress(TimeoutError, ApiServerError):
            async with self._clock.timeout(self._intervals.first_reading):
                await self._view.seen()

    async def advance(
        self,
        spec: Spec,
        found: Mapping[str, Sequence[RawDevice]],
        *,
        listed: Inventory,
        base: Inventory,
        in_use: Callable[[], InUse],
        claimed: Callable[[], Mapping[Key, Device]],
    ) -> Inventory | None:
        """Put the layouts in force that labels choose, unless that takes away a device that a pod may hold.

        `found` are the devices by entry, `listed` are their lists, and `base` is their inventory. `in_use` and
        `claimed` are called again at the last moment. Returns the inventory under the new layouts, or None if nothing
        changes.
        """
        before = self.progresses
        for _ in range(_ROUNDS):
            used, given = in_use(), claimed()
            after = self._look(spec, found, listed, used, given)
            if after == before:
                return None
            cut = repartition.in_force(spec, after)
            if cut == self.in_force(spec):
                self._take(after)
                return None
            recut = await asyncio.to_thread(arrange, cut, self._node, found)
            if wrong := set(errors(recut.problems)) - set(base.problems):
                self._take(repartition.refused(before, after, min(each.message for each in wrong)))
                return None
            if claimed().keys() <= given.keys() and in_use().all() <= used.all():
                self._take(after)
                return recut
        return None

    def _look(
        self,
        spec: Spec,
        found: Mapping[str, Sequence[RawDevice]],
        listed: Inventory,
        in_use: InUse,
        claimed: Mapping[Key, Device],
    ) -> Progresses:
        """Return the state of each label now."""
        entries = self._entries(spec)
        if not entries:
            return {}
        document = self._view.document
        seen = RepartitionView(
            labels=None if document is None else (document.get("metadata") or {}).get("labels") or {},
            hardware={entry.name: {raw.index: raw.id for raw in found.get(entry.name, ())} for entry in entries},
            listed=listed,
            held={key: in_use.pods.get(key, "") for key in in_use.all()},
            complete=in_use.is_complete,
            read_at=in_use.answered_at,
            claimed=with_pods(spec, claimed, in_use),
            now=self._clock.now(),
            intervals=self._intervals,
        )
        return repartition.advance(self.progresses, entries, spec.flags.mig_strategy, seen)

    def _take(self, progresses: Progresses) -> None:
        """Put these layouts in force, and log what is new."""
        before, self.progresses = self.progresses, progresses
        for label, new in progresses.items():
            old = before.get(label)
            is_news = old is None or (old.value, old.state, old.sentence) != (new.value, new.state, new.sentence)
            if is_news and new.state is not RepartitionState.UNSEEN:
                write = log.warning if new.state is RepartitionState.FAILED else log.info
                reason = {"reason": new.sentence} if new.sentence else {}
                write("layout chosen by a label", label=label, value=new.value, state=new.state.value, **reason)

    @property
    def problems(self) -> tuple[Problem, ...]:
        failed = [
            warning(
                f"node {self._node}",
                f"the label {each.label}={each.value} failed: {each.sentence}"
                if each.value is not None
                else f"the layout for a node without the label {each.label} is not in force: {each.sentence}",
                "the layout in force stays; set the label to another value",
            )
            for each in self.progresses.values()
            if each.state is RepartitionState.FAILED
        ]
        if self._follows and self._view.trouble is not None and self.progresses:
            labels = ", ".join(self.progresses)
            failed.append(warning(f"node {self._node}", f"{labels} cannot be followed: {self._view.trouble}"))
        return tuple(failed)

    def document(self) -> list[dict[str, Any]]:
        """The part of the status about it; keys are stable and documented."""
        return [
            {"label": each.label, "value": each.value, "state": each.state.value, "reason": each.sentence}
            for each in self.progresses.values()
        ]


def with_pods(spec: Spec, claimed: Mapping[Key, Device], in_use: InUse) -> Sequence[ClaimedDevice]:
    """Return the claimed devices of entries whose partitions are published as the layout has them, with the pods."""
    static = {each.name for each in spec.entries if each.dra and each.dra.partitions is DraPartitions.STATIC}
    pods = {(use.driver, use.device): use.pod for use in in_use.claims}
    return [
        ClaimedDevice(key[0], device, pods.get(key, ""))
        for key, device in sorted(claimed.items(), key=lambda row: row[0])
        if device.raw.entry in static
    ]
