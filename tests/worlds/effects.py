"""The effect of each kind of event on a world."""

import asyncio
import shutil
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tests.worlds.events import Event
from tests.worlds.node_model import BROKEN, LINES
from tests.worlds.world_cluster import CLASS
from vdev.sim import Phase, manifest

if TYPE_CHECKING:
    from tests.worlds.agents import Agents
    from tests.worlds.world import World

MOST_PODS = 8
_SHORT = 7  # the kind of pod, of eight, that soon ends
_SLOW = 60.0  # seconds after a slow phase in which it still explains delays


class Effects:
    """Applies events. An event that makes no sense at its moment has no effect."""

    def __init__(self, world: "World", agents: "Agents") -> None:
        self._world = world
        self._agents = agents
        self._serial = 0
        self._kinds: dict[str, Callable[[Event], Coroutine[Any, Any, None] | None]] = {
            "edit": self._edit,
            "break": self._break,
            "mend": lambda _: self.mend(),
            "plug": self._plug,
            "probe": self._probe,
            "pod": self._pod,
            "finish": self._finish,
            "delete": self._delete,
            "kubelet restarts": self._kubelet_restarts,
            "kubelet crashes": self._kubelet_crashes,
            "kubelet wiped": self._kubelet_wiped,
            "kubelet slow": self._kubelet_slow,
            "pod resources gone": self._pod_resources_gone,
            "agent killed": self._agent_killed,
            "agent ended": self._agent_ended,
            "agent updated": self._agent_updated,
            "slow disk": self._slow_disk,
        }
        if world.cluster is not None:
            cluster = world.cluster
            self._kinds |= {
                "claim pod": self._claim_pod,
                "claims edited": self._claims_edited,
                "slices wiped": lambda _: cluster.wipe(),
                "API away": lambda event: cluster.be_away(event.a % 400),
            }

    async def happen(self, event: Event) -> None:
        """Apply an event. Longer effects continue in the background."""
        if event.kind not in self._kinds:  # an event about claims, in a world without claims
            return
        work = self._kinds[event.kind](event)
        if work is not None:
            self._world.spawn(work)
            await asyncio.sleep(0)

    async def heal(self) -> None:
        """End the effects of all events. The file keeps its last edit, without faults."""
        world = self._world
        world.tell("everything is made well")
        world.excuses.end(world.model.rules, world.now)
        world.model.rules = ()
        world.loop.sluggish = 0.0
        world.lag.clear()
        for number in range(LINES):
            world.model.set_health(number, ok=True)
        if world.cluster is not None:
            await world.cluster.come_back()
        await asyncio.sleep(130)  # longer than a call may hang, or a kubelet is down
        if world.kubelet.alive and not world.kubelet.pod_resources_socket.exists():
            await world.kubelet.stop()
        if not world.kubelet.alive:
            await world.kubelet.start()
        self.mend()

    # --- the file -----------------------------------------------------------------------------------------------------

    def mend(self) -> None:
        world = self._world
        world.excuses.rules(world.model.rules, world.now + 3600)
        self._write(world.model.text())

    def _write(self, text: str) -> None:
        """Replace the file, as editors do."""
        file = self._world.model.file
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(file)

    def _edit(self, event: Event) -> None:
        world = self._world
        before = world.model.rules
        world.tell(world.model.change(event.a, event.b, event.c))
        for each in set(before) - set(world.model.rules):
            world.excuses.end((each,), world.now)
        self.mend()

    def _break(self, event: Event) -> None:
        self._write(BROKEN[event.a % len(BROKEN)])

    # --- devices ------------------------------------------------------------------------------------------------------

    def _plug(self, event: Event) -> None:
        model = self._world.model
        if model.is_plugged(event.a):
            self._world.tell(f"{model.unplug(event.a)} is unplugged")
        else:
            self._world.tell(f"{model.plug(event.a)} is plugged in")

    def _probe(self, event: Event) -> None:
        self._world.tell(f"{self._world.model.set_health(event.a, ok=event.b % 2 == 0)}: {event.b % 2 == 0}")

    # --- pods ---------------------------------------------------------------------------------------------------------

    async def _pod(self, event: Event) -> None:
        kubelet = self._world.kubelet
        shown = sorted(name for name, count in kubelet.node().allocatable.items() if count)
        if len(kubelet.pods()) >= MOST_PODS:
            await self._delete(event)
        if not shown:
            return
        self._serial += 1
        resource, other = shown[event.a % len(shown)], shown[event.c % len(shown)]
        limits = {resource: event.c % 3 // 2 + 1}
        document = manifest(f"p{self._serial}", {} if event.b % 8 in (5, 6) else limits)
        asks = {"resources": {"limits": limits}}
        match event.b % 8:
            case 3:
                document["spec"]["initContainers"] = [{"name": "first", **asks}]
            case 4:
                document = manifest(f"p{self._serial}", one=limits, other={other: 1})
            case 5:
                document["spec"]["initContainers"] = [{"name": "first", **asks}]
            case 6:
                document["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always", **asks}]
        pod = await kubelet.run_pod(document)
        short = event.b % 8 == _SHORT
        if short and not pod.phase.terminal and self._still(pod.name):
            await asyncio.sleep(event.c % 20)
            if self._still(pod.name):
                await kubelet.finish_pod(pod.name)

    def _still(self, name: str) -> bool:
        return any(pod.name == name and not pod.phase.terminal for pod in self._world.kubelet.pods())

    async def _finish(self, event: Event) -> None:
        pods = [pod for pod in self._world.kubelet.pods() if not pod.phase.terminal]
        if pods:
            phase = Phase.SUCCEEDED if event.b % 2 else Phase.FAILED
            await self._world.kubelet.finish_pod(pods[event.a % len(pods)].name, phase=phase)

    async def _delete(self, event: Event) -> None:
        pods = self._world.kubelet.pods()
        if pods:
            await self._world.kubelet.delete_pod(pods[event.a % len(pods)].name, force=event.b % 3 == 0)

    # --- the kubelet --------------------------------------------------------------------------------------------------

    async def _kubelet_restarts(self, event: Event) -> None:
        if self._world.kubelet.alive:
            await self._world.kubelet.stop()
            await self._back(event.a % 3 * (event.b % 8))

    async def _kubelet_crashes(self, event: Event) -> None:
        if self._world.kubelet.alive:
            await self._world.kubelet.crash()
            await self._back(event.a % 120)

    async def _kubelet_wiped(self, event: Event) -> None:
        """Remove the directory of plugins, which the kubelet creates again."""
        kubelet = self._world.kubelet
        if kubelet.alive:
            await kubelet.crash()
            # Without its checkpoint, a kubelet would admit the pods again without regard to their devices.
            for pod in kubelet.pods():
                await kubelet.delete_pod(pod.name, force=True)
            if not kubelet.alive:  # another event may have started it
                shutil.rmtree(kubelet.device_plugin_dir)
            await self._back(event.a % 30)

    async def _back(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._world.kubelet.alive:
            await self._world.kubelet.start(wait=False)

    def _kubelet_slow(self, event: Event) -> None:
        world, seconds = self._world, float(event.b % 60)
        world.lag["kubelet"] = (0.1, 0.5, 2.0, 6.0)[event.a % 4]
        world.excuses.note("slow machine", world.now + seconds + _SLOW)
        world.loop.call_later(seconds, world.lag.pop, "kubelet", None)

    def _pod_resources_gone(self, _event: Event) -> None:
        if self._world.kubelet.pod_resources_socket.exists():
            self._world.blind_since = self._world.now
        self._world.kubelet.pod_resources_socket.unlink(missing_ok=True)

    # --- the agent ----------------------------------------------------------------------------------------------------

    def _agent_killed(self, event: Event) -> None:
        agents = self._agents
        if running := agents.running:
            agents.paused_until = self._world.now + event.b % 3 * (event.c % 60)
            agents.kill(running[event.a % len(running)], after=event.c % 400)

    def _agent_ended(self, event: Event) -> None:
        agents = self._agents
        if running := agents.running:
            agents.paused_until = self._world.now + event.b % 3 * (event.c % 60)
            agents.signal(running[event.a % len(running)], signal.SIGTERM)

    async def _agent_updated(self, event: Event) -> None:
        """Start a new agent beside the old one, which gets SIGTERM a while later."""
        agents = self._agents
        running = agents.running
        if len(running) != 1:
            return
        agents.start()
        await asyncio.sleep(event.a % 20)
        if not running[0].ended:
            agents.signal(running[0], signal.SIGTERM)

    # --- the machine --------------------------------------------------------------------------------------------------

    def _slow_disk(self, event: Event) -> None:
        world, seconds = self._world, float(event.b % 60)
        world.loop.sluggish = (0.02, 0.1, 0.4)[event.a % 3]
        world.excuses.note("slow machine", world.now + seconds + _SLOW)

        def over() -> None:
            world.loop.sluggish = 0.0

        world.loop.call_later(seconds, over)

    # --- claims -------------------------------------------------------------------------------------------------------

    async def _claim_pod(self, event: Event) -> None:
        """Create a pod with one or two claims, each for one of its containers."""
        templates = [f"{CLASS}-{event.b % 4 // 3 + 1}", *([f"{CLASS}-1"] if event.c % 5 == 0 else [])]
        claims = {f"c{number}": each for number, each in enumerate(templates)}
        if len(self._world.kubelet.pods()) >= MOST_PODS:
            await self._delete(event)
        self._serial += 1
        containers = [{"name": name, "image": "none", "resources": {"claims": [{"name": name}]}} for name in claims]
        sources = [{"name": name, "resourceClaimTemplateName": template} for name, template in claims.items()]
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"q{self._serial}"},
            "spec": {"containers": containers, "resourceClaims": sources},
        }
        await self._world.kubelet.run_pod(document)

    def _claims_edited(self, event: Event) -> None:
        if self._world.model.claims is not None:
            self._world.tell(self._world.model.claims.change(event.a, event.b))
        self.mend()
