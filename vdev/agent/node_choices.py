"""The layouts that labels of this agent's own Node choose, and what became of each.

`planning.repartition` decides; this module knows the Node's labels and remembers. Without an API server, and until the
Node was seen, devices stay as an earlier process had them, or are as the configuration says for a node without the
label.
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
from ..planning.repartition import HeldDevice, Progress, Progresses, RepartitionState, RepartitionView
from ..planning.resources import Inventory
from .node_objects import NodeObject

log = structlog.get_logger(__name__)

_ROUNDS = 10  # of deciding and looking again who has what


class CutDevices:
    """How the devices of the node of this name are cut; `progresses` is what became of each label that chooses that."""

    def __init__(self, node: str) -> None:
        self.progresses: Progresses = {}
        self._node = node

    def in_force(self, spec: Spec) -> Spec:
        """The specification with its devices cut as is in force."""
        return repartition.in_force(spec, self.progresses) if self.progresses else spec

    @property
    def again_at(self) -> float | None:
        """When to look again though nothing happens (monotonic)."""
        return min((each.again_at for each in self.progresses.values() if each.again_at is not None), default=None)

    def _entries(self, spec: Spec) -> list[Entry]:
        return [entry for entry in spec.on_node(self._node) if entry.choice]


class NodeChoices(CutDevices):
    """What labels of the node of this name choose. `on_change` is called when `view` has something new of the Node."""

    def __init__(self, node: str, view: NodeObject, on_change: Callable[[], None], timing: Timing) -> None:
        super().__init__(node)
        self._view = view
        self._on_change = on_change
        self._intervals, self._clock = timing
        self._follows = False

    async def begin(self, spec: Spec) -> None:
        """Follow the Node where a label of it chooses, and give it a moment to be seen before the first list."""
        if self._follows or not self._entries(spec):
            return
        self._follows = True
        self._view.subscribe(self._on_change)
        with contextlib.suppress(TimeoutError, ApiServerError):
            async with self._clock.timeout(self._intervals.first_reading):
                await self._view.seen()

    def recall(self, progresses: Progresses) -> None:
        """What became of each in an earlier process."""
        self.progresses = progresses

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
        """Cut the devices that were `found`, by entry, as labels choose, if no pod holds what that takes away.

        `listed` are their lists, and `base` is their inventory. `in_use` and `claimed` are asked again at the last
        moment. Returns the inventory for the specification that is in force then, or None if it stays.
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
        """How far each label is now."""
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
        """How far each is from now on; what is new is logged."""
        before, self.progresses = self.progresses, progresses
        for label, progress in progresses.items():
            if _told(before.get(label)) != _told(progress):
                _log(progress)

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
        """For the status: each label, its value and what became of it."""
        return [
            {"label": each.label, "value": each.value, "state": each.state.value, "reason": each.sentence}
            for each in self.progresses.values()
        ]


def with_pods(spec: Spec, claimed: Mapping[Key, Device], in_use: InUse) -> Sequence[HeldDevice]:
    """What claims have of entries that are published as layouts cut them, with the pods."""
    static = {each.name for each in spec.entries if each.dra and each.dra.partitions is DraPartitions.STATIC}
    pods = {(use.driver, use.device): use.pod for use in in_use.claims}
    return [
        HeldDevice((key[0], device.id), device, pods.get(key, ""))
        for key, device in sorted(claimed.items(), key=lambda row: row[0])
        if device.raw.entry in static
    ]


def _told(progress: Progress | None) -> object:
    return progress and (progress.value, progress.state, progress.sentence)


def _log(progress: Progress) -> None:
    if progress.state is RepartitionState.UNSEEN:
        return
    write = log.warning if progress.state is RepartitionState.FAILED else log.info
    reason = {"reason": progress.sentence} if progress.sentence else {}
    write("layout chosen by a label", label=progress.label, value=progress.value, state=progress.state.value, **reason)
