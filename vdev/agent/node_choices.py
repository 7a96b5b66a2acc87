"""The partition layouts that labels of this agent's own Node choose.

`planning.repartition` decides; this module knows the Node's labels, and keeps the state of each label. Until the Node
is seen, and without an API server, the layouts of an earlier process stay, or those for a node without the label.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from ..dra.pools import claimed_by_name
from ..errors import ApiServerError
from ..model.device import Device
from ..model.entry import Entry
from ..model.problem import Problem, errors, warning
from ..model.spec import Spec
from ..planning import repartition
from ..planning.in_use import InUse
from ..planning.inventory import arrange
from ..planning.repartition import Progresses, RepartitionState, RepartitionView
from ..planning.resources import Inventory

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

_ATTEMPTS = 10  # to decide while pods get devices


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
    """The layouts that labels of this agent's Node choose."""

    def __init__(self, agent: "Agent") -> None:
        super().__init__(agent.options.node)
        self._agent = agent
        self._view = agent.node_api.object
        self._intervals, self._clock = agent.options.timing
        self._follows = False

    async def begin(self, spec: Spec) -> None:
        """Follow the Node if an entry needs a label of it, and wait a moment for the first look."""
        if self._follows or not self._entries(spec):
            return
        self._follows = True
        self._view.subscribe(self._agent.pending.add)
        with contextlib.suppress(TimeoutError, ApiServerError):
            async with self._clock.timeout(self._intervals.first_reading):
                await self._view.seen()

    async def advance(self) -> Inventory | None:
        """Put the layouts in force that labels choose, unless that takes away a device that a pod may hold.

        Returns the inventory under the new layouts, or None if nothing changes.
        """
        reconciler, before = self._agent.reconciler, self.progresses
        for _ in range(_ATTEMPTS):
            in_use, claimed = self._agent.holders.in_use, self._claimed()
            after = self._look(in_use, claimed)
            if after == before:
                return None
            spec = repartition.in_force(reconciler.spec, after)
            if spec == self.in_force(reconciler.spec):
                self._take(after)
                return None
            inventory = await asyncio.to_thread(arrange, spec, self._node, reconciler.scan.devices)
            if wrong := set(errors(inventory.problems)) - set(reconciler.base.problems):
                self._take(repartition.refused(before, after, min(each.message for each in wrong)))
                return None
            # Pods and claims may have got devices in the meantime.
            if self._claimed().keys() <= claimed.keys() and self._agent.holders.in_use.all() <= in_use.all():
                self._take(after)
                return inventory
        return None

    def _claimed(self) -> Mapping[tuple[str, str], Device]:
        """Return the devices of prepared claims, by driver and published name."""
        return claimed_by_name(self._agent.reconciler.previous.pools, self._agent.dra.claimed)

    def _look(self, in_use: InUse, claimed: Mapping[tuple[str, str], Device]) -> Progresses:
        """Return the state of each label now."""
        reconciler, document = self._agent.reconciler, self._view.document
        spec = reconciler.spec
        entries = self._entries(spec)
        if not entries:
            return {}
        seen = RepartitionView(
            labels=None if document is None else (document.get("metadata") or {}).get("labels") or {},
            found=reconciler.scan.devices,
            listed=reconciler.previous.advertised,
            in_use=in_use,
            claimed=claimed,
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
