"""The partition layouts that labels of this agent's own Node choose.

`planning.repartition` decides; this module reads the Node's labels, and keeps the state of each label. Until the Node
has been read, and without an API server, the layouts of an earlier process or those for a node without the label apply.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import structlog

from ..dra.pools import claimed_devices
from ..errors import ApiServerError
from ..model.problem import Problem, warning
from ..planning import repartition
from ..planning.repartition import Progresses, RepartitionState, RepartitionView

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)


class NodeLayouts:
    """The layouts that labels of this agent's Node choose; `progresses` has the state of each label."""

    def __init__(self, agent: "Agent") -> None:
        self.progresses: Progresses = {}
        self._agent = agent
        self._node = agent.options.node_name
        self._view = agent.node_api.object
        self._intervals, self._clock = agent.options.timing
        self._follows = False

    async def advance(self) -> None:
        """Put the layouts in force that labels choose, unless that takes away a device that a pod may hold."""
        reconciler = self._agent.reconciler
        spec, previous = reconciler.spec, reconciler.previous
        if not any(entry.choice for entry in spec.on_node(self._node)):
            self.progresses = {}
            return
        if not self._follows:
            await self._follow()
        in_use, claimed = self._agent.holders.in_use, claimed_devices(previous.pools, self._agent.dra.claimed)
        view = RepartitionView(
            labels=None if self._view.document is None else self._view.labels,
            found=reconciler.scan.devices,
            listed=previous.advertised,
            in_use=in_use,
            claimed=claimed,
            now=self._clock.now(),
            intervals=self._intervals,
        )
        after, inventory = await asyncio.to_thread(repartition.advance, self.progresses, spec, self._node, view)
        if inventory is not None:
            now_claimed = claimed_devices(previous.pools, self._agent.dra.claimed)
            if not (now_claimed.keys() <= claimed.keys() and self._agent.holders.in_use.all() <= in_use.all()):
                self._agent.pending.add()  # pods or claims got devices in the meantime: decide again
                return
            reconciler.base = inventory
        self._take(after)

    async def _follow(self) -> None:
        """Watch the Node from now on, and wait briefly for its first state."""
        self._follows = True
        self._view.subscribe(self._agent.pending.add)
        with contextlib.suppress(TimeoutError, ApiServerError):
            async with self._clock.timeout(self._intervals.first_reading):
                await self._view.seen()

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
