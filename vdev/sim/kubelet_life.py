"""The lifetime of a kubelet process: its time limits, the state of its device manager, and its tasks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import HostError
from . import lint
from .device_manager import device_checkpoint
from .device_manager.device_table import DeviceTable, Held, KubeletPanic
from .kubelet.node_state import PodRecord

if TYPE_CHECKING:
    from .kubelet.kubelet import Kubelet

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The kubelet's time limits and periods, in seconds. They are the real kubelet's, except for `slow` and `bound`."""

    dial: float = 10.0
    pre_start: float = 30.0
    tick: float = 10.0  # between updates of the node status

    # A restart, as measured on 1.36.2. A new node without pods does not wait.
    boot: float = 1.0  # from the start until PodResources responds
    lead: float = 0.06  # after `boot`, until plugins can register
    sources: float = 0.9  # after `lead`, until the kubelet knows its pods; before that, it lists and admits no pods

    slow: float = 1.0  # a call that takes longer is a finding
    bound: float = 120.0  # limit for calls on which the real kubelet waits forever
    get_info: float = 1.0
    notify: float = 5.0
    prepare: float = 45.0  # of NodePrepareResources and NodeUnprepareResources

    # Delay before a failed container start, Prepare or Unprepare is retried. The real kubelet waits 10 to 15 s, but 60
    # to 90 s after a failed Prepare.
    retry: float = 10.0
    look: float = 1.0  # between scans of plugins_registry


class Compat(Enum):
    """The Kubernetes version whose behavior at re-registration is reproduced."""

    V1_36 = "1.36"
    V1_37 = "1.37"


class Life(ABC):
    """The lifetime of a kubelet process. It starts with `alive = True`. All parts of the process share this object.

    `kubelet` has the options, and the state that survives the process.
    """

    def __init__(self, kubelet: "Kubelet") -> None:
        self.kubelet = kubelet
        self.clock = kubelet.clock
        self.timings = kubelet.timings
        self.journal = kubelet.journal
        self.pods = kubelet.store
        self.rng = kubelet.rng
        self.table = DeviceTable()
        self.alive = False
        self.pods_known = False  # the kubelet has read and admitted its pods
        self._tasks: set[asyncio.Task[Any]] = set()

    def save(self) -> None:
        """Write the device manager's checkpoint. No effect once the process has ended."""
        if not self.alive:
            return
        try:
            device_checkpoint.write(self.kubelet.paths.device_plugins, self.table)
        except HostError as error:  # the real kubelet only logs it
            self.journal.find([lint.error("checkpoint-write", "", str(error))])

    @abstractmethod
    def changed(self) -> None:
        """Update the status of pods and of the node after a change of devices."""

    def active(self) -> set[str] | None:
        """The UIDs of active pods; None if not all pods are known yet."""
        return {pod.uid for pod in self.pods.active()} if self.pods_known else None

    def used(self) -> list[tuple[PodRecord, Held]]:
        """Return the devices that containers use or will use, with their pods.

        The table alone does not say: as in the kubelet, it keeps the devices of ended pods and init containers.
        """
        pods = {each.uid: each for each in self.pods.records.values() if not each.phase.terminal}
        held = [(pods[each.pod], each) for each in self.table.holders.values() if each.pod in pods]
        return [(pod, each) for pod, each in held if not pod.container(each.container).done]

    def spawn(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Start a task that is cancelled when the process ends. The end of the process raises its exception."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Call `action` after a delay, unless the process has ended."""
        self.clock.call_later(seconds, lambda: action() if self.alive else None)

    def every(self, period: float, action: Callable[[], object]) -> None:
        """Call `action` periodically. If the clock jumps over several periods, `action` is called once."""

        def due() -> None:
            self.later(period, due)
            action()

        self.later(period, due)

    def cancel(self) -> set[asyncio.Task[Any]]:
        """Cancel all tasks except the current one, and return them. Includes tasks that have failed."""
        self.alive = False
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            if not task.cancelling():
                task.cancel()
        return others

    def _done(self, task: asyncio.Task[Any]) -> None:
        # A failed task is kept, so that its exception is raised when the process ends. The caller that awaits the task
        # handles a panic.
        if task.cancelled() or task.exception() is None or isinstance(task.exception(), KubeletPanic):
            self._tasks.discard(task)
