"""What happened, and what is due therefore: file events, the passing of time, news of health, the kubelet's coming and
going.

Nothing is decided or done here. Each method is one round of an endless loop, taken as a step (see `steps`).
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from ..deviceplugin.registration import KubeletSocket
from ..discovery.health_monitor import HealthMonitor
from ..hostfs.watch import Changes, Watcher
from ..model.device import Key
from . import config_files
from . import handovers as handover_actions
from .applier import Output
from .config_files import ConfigSource
from .fault_control import FaultControl
from .handovers import HandoverActions
from .lock import NodeLock
from .options import Options
from .pod_holders import PodHolders
from .reconcile import Reconciler
from .steps import Due, Steps

log = structlog.get_logger(__name__)

_HOLDERS = "asking the kubelet who holds what"
_KUBELET = "looking at the kubelet's socket"


class Events:
    """The events of one agent. `on_displaced` is called when another agent has come to serve the kubelet."""

    def __init__(
        self,
        options: Options,
        due: Due,
        steps: Steps,
        *,
        link: KubeletSocket,
        lock: NodeLock,
        config: ConfigSource,
        health: HealthMonitor,
        faults: FaultControl,
        holders: PodHolders,
        handovers: HandoverActions,
        reconciler: Reconciler,
        on_displaced: Callable[[], None],
    ) -> None:
        self._options = options
        self._clock = options.clock
        self._due = due
        self._steps = steps
        self._link = link
        self._displaced = asyncio.Event()  # that is told at a look, and nobody waits for
        link.subscribe(self._displaced, lock.stands)
        self._config = config
        self._health = health
        self._faults = faults
        self._holders = holders
        self._handovers = handovers
        self._reconciler = reconciler
        self._on_displaced = on_displaced
        self._configured: frozenset[Path] = frozenset()  # the directories that lead to configuration files
        self._limits: tuple[str, ...] = ()
        self._unnamed: frozenset[Key] = frozenset()  # what was given out and had no pod when that was last asked
        self._name_again = math.inf  # seconds until that is asked again

    # --- files --------------------------------------------------------------------------------------------------------

    async def begin(self, watcher: Watcher) -> None:
        """Watch the configuration files before they are read for the first time, so that no change is missed."""
        await self.find_files()
        await watcher.follow(dict.fromkeys(self._configured, True))

    async def watch(self, watcher: Watcher) -> None:
        """Wait for changes of files, and mark what they make due."""
        await self.arm(watcher)
        changed = await watcher.changes()
        if self._link.directories & changed.keys():
            await self._steps.take(_KUBELET, self._see_kubelet)
        await self._compare(self._mark(changed))

    def _mark(self, changed: Changes) -> list[Output]:
        """Mark what these directories make due, besides the outputs returned, for which they may mean something."""
        self._health.wake(changed)
        if self._faults.directories & changed.keys():
            self._due.mark(faults=True)
        if self._configured & changed.keys():
            self._due.mark(reload=True)
        if entries := self._reconciler.scan.concerned(changed.keys()):
            self._due.mark(scan=entries)
        concerned = ((each, each.directories & changed.keys()) for each in self._reconciler.outputs)
        return [each for each, directories in concerned if any(each.recheck(changed[where]) for where in directories)]

    async def _compare(self, outputs: list[Output]) -> None:
        """Mark a turn where one of them is not as it was left."""
        for output in outputs:
            if not await self._stands(output):
                self._due.mark()

    async def _stands(self, output: Output) -> bool:
        """Whether nothing is to be settled; a disk may be slow."""
        try:
            async with self._clock.timeout(self._options.intervals.state_file):
                return await output.stands()
        except TimeoutError:
            return False

    async def find_files(self) -> None:
        """Find out which directories lead to the files: links may lead elsewhere by now."""
        files = {*self._options.files, *self._config.chooser.chosen.files, *self._config.files}
        self._configured = await asyncio.to_thread(config_files.directories, files)

    async def arm(self, watcher: Watcher) -> None:
        """Watch what is to be watched now and no more; the content of files matters to configurations and probes.

        What is watched from now on may have changed after it was last looked at, so it is looked at once more.
        """
        faults, of_outputs = self._faults.directories, [each.directories for each in self._reconciler.outputs]
        places = (self._link.directories, self._reconciler.scan.watched, self._health.directories)
        files = (self._configured, self._health.contents, faults, *of_outputs)
        contents = frozenset[Path]().union(*files)
        fresh = await watcher.follow({directory: directory in contents for directory in contents.union(*places)})
        await self._compare(self._mark(dict.fromkeys(fresh, frozenset[str]())))
        for limit in watcher.limits:
            if limit not in self._limits:
                log.warning("file events are limited", reason=limit)
        self._limits = watcher.limits

    async def look_again(self) -> None:
        """Look at everything now and then, for what sends no events."""
        await self._clock.sleep(self._options.intervals.look_at_devices)
        for output in self._reconciler.outputs:
            output.recheck()
        again = self._config.status.kept_at > 0  # what the node proved wrong at the start may be right by now
        self._due.mark(scan=frozenset(self._reconciler.scan.entries), faults=True, reload=again)

    # --- the kubelet --------------------------------------------------------------------------------------------------

    async def look_at_kubelet(self) -> None:
        await self._clock.sleep(self._options.intervals.look_at_kubelet)
        await self._steps.take(_KUBELET, self._see_kubelet)

    async def _see_kubelet(self) -> None:
        """See whether the kubelet is a new one, and whether its directory is still ours to serve."""
        if self._displaced in await self._link.look():
            directory = str(self._options.plugin_dir)
            log.error("the directory was made again and another vdev serves it; this one ends", directory=directory)
            self._on_displaced()

    async def look_at_holders(self) -> None:
        """Ask who holds what when that may have changed, and at a slow pace; the kubelet may take its time.

        What was given out is asked for again sooner, until its pod is named.
        """
        intervals = self._options.intervals
        acts = handover_actions.concerns(self._reconciler.spec)
        pace = intervals.look_at_holders_for_actions if acts else intervals.look_at_holders
        await self._clock.wait(self._due.asked, min(pace, self._name_again))
        await self._clock.sleep(self._steps.pause(_HOLDERS))
        self._due.asked.clear()
        await self.read_holders()
        before, self._unnamed = self._unnamed, self._reconciler.unnamed
        if before != self._unnamed:
            self._name_again = intervals.name_holder if self._unnamed else math.inf
        else:
            self._name_again *= 2
        if self._reconciler.needs_answer:
            self._due.mark()

    async def read_holders(self) -> None:
        await self._steps.take(_HOLDERS, self._read_holders)

    async def _read_holders(self) -> None:
        await self._holders.refresh()
        if self._holders.readable:
            named = self._holders.named
            self._holders.forget_settled()
            await self._handovers.read(named, self._holders.snapshot())

    # --- health -------------------------------------------------------------------------------------------------------

    async def follow_health(self, news: AsyncIterator[frozenset[str]]) -> None:
        devices = await anext(news)
        self._due.mark()
        self._reconciler.verdicts.reported(devices)
