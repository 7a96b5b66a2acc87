"""The agents of a world's node, as a DaemonSet runs them: one process at a time, and two during an update."""

import contextvars
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.worlds.node_model import inspect_marked
from tests.worlds.virtual_time import Process, WorldClock
from vdev.agent.agent import Agent
from vdev.agent.applier import Applier
from vdev.agent.options import Options
from vdev.errors import ConfigError
from vdev.hostfs import HostRoot
from vdev.planning.plan import DesiredState

if TYPE_CHECKING:
    from tests.worlds.world import World

_UP = 60.0  # seconds after which an agent serves in any case
_AGAIN = 5.0  # seconds until an ended container is restarted


@dataclass(slots=True, eq=False)
class Life:
    process: Process
    agent: Agent
    since: float
    seen: "_Seen"
    ending: bool = False
    ended: bool = False


class _Seen(Applier):
    """Records the plans that an agent applies."""

    name = "seen by the world"

    def __init__(self, world: "World") -> None:
        self._world = world
        self.plan: DesiredState | None = None
        self.since = 0.0  # the time of the last visible change

    async def apply(self, plan: DesiredState) -> None:
        if self.plan is None or _told(plan) != _told(self.plan):
            self.since = self._world.now
        self.plan = plan


class Agents:
    """Starts agents, and restarts them when they end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._number = 0
        self.lives: list[Life] = []
        self.paused_until = 0.0

    @property
    def running(self) -> list[Life]:
        """The running agents, the oldest first."""
        return [each for each in self.lives if not each.ended]

    def start(self) -> None:
        world, loop = self._world, self._world.loop
        self._number += 1
        process = Process(f"agent-{self._number}")
        seen = _Seen(world)
        agent: Agent = process.call(self._made, process, seen)
        life = Life(process, agent, world.now, seen)
        self.lives = [*self.running, life]
        # The system releases these resources of a killed process.
        process.killed += [agent.lock.release, agent.placeholders.release, lambda: _release_claims(agent)]
        world.tell(f"{process.name} starts")
        task = loop.create_task(agent.run(), name=process.name, context=process.context.copy())
        task.add_done_callback(lambda done: self._ended(life, done), context=contextvars.Context())

    def kill(self, life: Life, *, after: int = 0) -> None:
        if after:
            life.process.dies_after = life.process.steps + after
        else:
            self.dead(life.process)

    def dead(self, process: Process) -> None:
        """Kill this process, and restart the agent."""
        world = self._world
        for life in self.running:
            if life.process is process:
                world.tell(f"{process.name} is killed")
                life.ended = True
                world.loop.kill(process)
                self._again()

    def signal(self, life: Life, number: int) -> None:
        """Send a signal to an agent. The signal kills it if there is no handler yet."""
        action = life.process.signals.get(number)
        if action is None:
            self.dead(life.process)
        else:
            self._world.tell(f"{life.process.name} gets signal {number}")
            life.ending = life.ending or number == signal.SIGTERM
            life.process.call(self._world.loop.call_soon, action)

    def settled(self, since: float) -> DesiredState | None:
        """The plan in force, if only one agent runs, is up, and has had no other plan since then."""
        running = self.running
        if len(running) != 1:
            return None
        (life,) = running
        plan = life.seen.plan
        up = life.agent.lists.running and not life.ending and self._world.now - life.since > _UP
        current = plan is not None and life.agent.reconciler.advertised is plan.advertised
        return plan if up and current and life.seen.since < since else None

    def list_twice(self) -> bool:
        """Whether an agent lists an id for two resources."""
        served = [life.agent.reconciler.advertised.resources.values() for life in self.running]
        ids = [[id_ for resource in lists for id_ in resource.by_id] for lists in served]
        return any(len(each) != len(set(each)) for each in ids)

    def _made(self, process: Process, seen: _Seen) -> Agent:
        world = self._world
        options = Options(
            node_name="node-1",
            config_files=[world.model.file],
            kubelet_socket=world.kubelet.socket,
            cdi_dir=world.root / "cdi",
            device_dir=world.root / "devices",
            state_dir=world.root / "state",
            clock=WorldClock(world.loop),
            exit=lambda _code: world.loop.call_soon(self.dead, process, context=contextvars.Context()),
        )
        derived = {
            "plugin_dir": world.kubelet.device_plugin_dir,
            "pod_resources_socket": world.kubelet.pod_resources_socket,
            "api_server": world.cluster.address if world.cluster else None,
            "host": HostRoot(world.root / "host", inspect=inspect_marked),
            "smi_dir": world.root / "smi",
            "boot_id": "boot",
            "run_dir": None,
        }
        return Agent(options.model_copy(update=derived), appliers=[seen])

    def _ended(self, life: Life, done: Any) -> None:
        if life.ended:
            return
        life.ended = True
        self._world.loop.kill(life.process)  # and with it the calls in its threads
        world = self._world
        failed = None if done.cancelled() else done.exception()
        world.tell(f"{life.process.name} ends: {failed or ('cancelled' if done.cancelled() else done.result())}")
        if failed is not None and not isinstance(failed, ConfigError):
            world.fail(failed)
        elif not self.running:
            self._again()

    def _again(self) -> None:
        loop = self._world.loop
        moment = max(loop.time() + _AGAIN, self.paused_until)
        loop.call_at(moment, self._start_again, context=contextvars.Context())

    def _start_again(self) -> None:
        if not self.running:
            self.start()


def _told(plan: DesiredState) -> tuple[object, ...]:
    """The part of a plan that others see."""
    return plan.advertised, plan.pools


def _release_claims(agent: Agent) -> None:
    """Release the locks of its DRA drivers."""
    for driver in agent.dra._drivers.values():
        driver.claims._lock.close()
