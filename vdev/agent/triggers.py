"""The events that cause reconciliations (changes of files, time, probes, the kubelet's starts), and the work they need.

Most of them only add pending work; `look_at_holders` also asks the kubelet. Each public method does one iteration of
an endless loop (see `Retrier.run_forever`).
"""

import asyncio
import contextlib
import math
from collections.abc import Collection, Set
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ..aio.clock import Clock
from ..deviceplugin.podresources import FILE_NAME
from ..hostfs.watch import Watcher
from ..model.device import Key

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

ASKING_HOLDERS = "asking the kubelet which pods hold devices"
_KUBELET = "looking at the kubelet's socket"


class PendingWork:
    """Collects the reading and scanning that the next reconciliation begins with."""

    def __init__(self, clock: Clock) -> None:
        self.reload = False  # read the configuration
        self.scan: set[str] = set()  # the entries whose devices are looked for
        self._clock = clock
        self._wake = asyncio.Event()
        self.is_done = asyncio.Event()  # set while no reconciliation is pending or running

    def add(self, *, reload: bool = False, scan: Collection[str] = ()) -> None:
        """Ask for a reconciliation with this work; without arguments it only plans and applies again."""
        self.reload |= reload
        self.scan.update(scan)
        self._wake.set()
        self.is_done.clear()

    async def wait(self, until: float | None) -> None:
        """Wait until a reconciliation is asked for, or until this (monotonic) time."""
        if not self._wake.is_set():
            self.is_done.set()
        await self._clock.wait(self._wake, None if until is None else until - self._clock.now())
        self._wake.clear()
        self.is_done.clear()


class Triggers:
    """Watches everything that one agent depends on."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._intervals, self._clock = agent.options.timing
        self._watcher: Watcher  # from `begin` on
        self._unnamed: frozenset[Key] = frozenset()  # devices without a pod in the last answer
        self._name_again = math.inf  # seconds until the next request because of that

    # --- files --------------------------------------------------------------------------------------------------------

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        """Watch the configuration files before they are read for the first time, so that no change is missed."""
        intervals = self._intervals
        # The kubelet writes its checkpoint beside its socket, after each change of a pod.
        watcher = Watcher(poll_interval=intervals.look_at_files, settle=intervals.burst, ignored=FILE_NAME)
        stack.callback(watcher.close)
        self._watcher = watcher
        config = self._agent.config
        await config.find_directories()
        await watcher.follow(dict.fromkeys(config.directories, True))

    async def watch(self) -> None:
        """Wait for changes of files, and add the work that they need."""
        await self.arm()
        changed = await self._watcher.changes()
        if changed & self._agent.link.directories:
            await self._agent.retrier.run(_KUBELET, self._see_kubelet)
        self._mark(changed)

    def _mark(self, changed: Set[Path]) -> None:
        """Add the work that changes in these directories need."""
        pending, reconciler, dra = self._agent.pending, self._agent.reconciler, self._agent.dra
        self._agent.health.wake(changed)
        if changed & self._agent.faults.directories:
            pending.add()
        if changed & self._agent.config.directories:
            pending.add(reload=True)
        for name, directories in reconciler.scan.directories.items():
            if changed & directories:
                pending.add(scan={name})
        for applier in self._agent.appliers:
            if changed & applier.directories:
                pending.add()
                if applier is dra:
                    dra.look()

    async def arm(self) -> None:
        """Watch the directories that matter now, and no others.

        A directory that is new here may have changed since it was last read, so it counts as changed.
        """
        reconciler = self._agent.reconciler
        wanted = dict.fromkeys(self._agent.link.directories, False)  # whether writes to files matter there
        for directories in reconciler.scan.directories.values():
            wanted |= dict.fromkeys(directories, False)
        wanted |= self._agent.health.directories
        wanted |= dict.fromkeys(self._agent.config.directories | self._agent.faults.directories, True)
        for applier in self._agent.appliers:
            wanted |= dict.fromkeys(applier.directories, True)
        self._mark(await self._watcher.follow(wanted))

    async def look_again(self) -> None:
        """Look at everything regularly, because some file systems send no events, and a look may have failed."""
        await self._clock.sleep(self._intervals.look_at_devices)
        await self._agent.retrier.run(_KUBELET, self._see_kubelet)
        self._agent.dra.look()
        again = self._agent.config.kept_at > 0  # errors that only this node showed at the start may be gone
        self._agent.pending.add(scan=frozenset(self._agent.reconciler.scan.entries), reload=again)

    # --- the kubelet --------------------------------------------------------------------------------------------------

    async def _see_kubelet(self) -> None:
        """Notice a new kubelet, and an agent that has taken the directory."""
        await self._agent.link.check()
        if not await asyncio.to_thread(self._agent.lock.is_ours):
            directory = str(self._agent.options.plugin_dir)
            log.error("the directory was created again and another vdev serves it; stopping", directory=directory)
            self._agent.stop(exit_code=1)

    async def look_at_holders(self) -> None:
        """Ask which pods hold devices if that may have changed, and regularly.

        It asks sooner while a device that was allocated or claimed has no pod in the answer.
        """
        holders, intervals = self._agent.holders, self._intervals
        pace = intervals.look_at_holders if self._agent.handovers.is_idle else intervals.look_at_holders_for_actions
        await self._clock.wait(holders.asked, min(pace, self._name_again))
        await self._clock.sleep(self._agent.retrier.pause(ASKING_HOLDERS))
        holders.asked.clear()
        await self._agent.read_holders()
        before, self._unnamed = self._unnamed, holders.unnamed(self._agent.dra.claimed)
        if before != self._unnamed:
            self._name_again = intervals.name_holder if self._unnamed else math.inf
        else:
            self._name_again *= 2
        self._agent.pending.add()
