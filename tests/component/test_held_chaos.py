"""Random edits and restarts never put hardware on two pods.

Steps are drawn from a seed: devices are repartitioned, shared, renamed and moved; pods of every kind come and go;
kubelet and agent stop or are killed. After every step, held devices are compared with an independent hardware model.

    VDEV_CHAOS_SEEDS=7,8 VDEV_CHAOS_STEPS=1000 pytest tests/component/test_held_chaos.py

plays these seeds with this number of steps. A failure prints its seed and its last steps. Without VDEV_CHAOS_SEEDS,
each run uses a known seed and new ones. Sockets and timers are real, so a seed repeats the steps, not their timing.
"""

import asyncio
import contextlib
import os
import random
import secrets
import sys
from collections import Counter

import pytest

from tests.kit.hardware import Node
from vdev.sim import Kind, Kubelet, Phase, Timings, manifest

KNOWN = (1,)
GIVEN = tuple(int(each) for each in os.environ.get("VDEV_CHAOS_SEEDS", "").split(",") if each)
CI = bool(os.environ.get("CI"))
STEPS = int(os.environ.get("VDEV_CHAOS_STEPS", "200" if CI else "60"))
FRESH = 4 if CI else 2  # new seeds at each run; in CI, about a minute together with the known one
MOST_PODS = 8
PATIENCE = 20.0  # seconds in which a final condition must hold
BOUND = 20.0  # seconds after which an unanswered RPC is an error
STEP_PATIENCE = 100.0  # seconds for one step: some admit several pods

pytestmark = pytest.mark.timeout(120 + 5 * STEPS)


@pytest.fixture
def seed(request):
    """The seed of a test; for None, a random one."""
    return secrets.randbits(32) if request.param is None else request.param


@pytest.fixture
def node():
    """The hardware."""
    return Node()


@pytest.fixture
async def kubelet(directory, node, seed):
    """A kubelet that knows which ids share hardware."""
    timings = Timings(boot=0.05, lead=0.01, sources=0.1, bound=BOUND)
    options = {"rate_limit": False, "timings": timings, "seed": seed, "overlaps": node.overlaps}
    async with Kubelet(directory / "kubelet", **options) as running:
        yield running


@pytest.fixture
def story(kubelet, node, seed, start_agent):
    """The story. It is printed at the end, and pytest shows that after a failure."""
    made = Story(kubelet, node, random.Random(seed), start_agent)
    yield made
    problems = [each.message for each in made.agent.agent.reconciler.problems] if made.agent else []
    logs = [str(each) for each in made.agent.logs[-15:]] if made.agent else []
    rows = ["problems:", *problems, "the agent's last words:", *logs]
    sys.stdout.write("\n  ".join(rows) + "\n")
    sys.stdout.write("\n  ".join([f"seed {seed}, {len(made.told)} steps, the last ones:", *made.told[-25:]]) + "\n")


SEEDS = [pytest.param(each, id=f"seed-{each}") for each in GIVEN or KNOWN]
SEEDS += [] if GIVEN else [pytest.param(None, id=f"fresh-{each}") for each in range(FRESH)]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS, indirect=True)
async def test_no_hardware_is_on_two_pods(story):
    """After every step, all held devices are listed, too. At the end the node is as configured."""
    await story.begin()
    for _ in range(STEPS):
        await story.step()
    await story.end()


class Story:
    """A node with random steps. `told` are the steps so far."""

    def __init__(self, kubelet, node, dice, start_agent):
        self.kubelet, self.node, self.dice, self.start_agent = kubelet, node, dice, start_agent
        self.told = []
        self.agent = None
        self.serial = 0
        self.down = False

    async def begin(self):
        """Start an agent with the first configuration."""
        self.agent = await self.start_agent(self.node.text())

    async def step(self):
        """Take a random step, and check the invariants."""
        steps = {self.edit: 25, self.run: 35, self.over: 22, self.rest: 4, self.replace_agent: 8, self.kubelet_life: 6}
        (chosen,) = self.dice.choices(list(steps), list(steps.values()))
        async with asyncio.timeout(STEP_PATIENCE):
            await chosen()
        await self.check()

    async def end(self):
        """Delete all pods, and wait until the node is as configured."""
        if self.down:
            await self.kubelet.start()
        for pod in self.kubelet.pods():
            await self.kubelet.delete_pod(pod.name)
        await self.kubelet.run_pod(manifest("last"))  # until then the checkpoint keeps the last pod
        plan = {resource: dict.fromkeys(ids, "Healthy") for resource, ids in self.node.plan().items()}
        self.told.append(f"all pods go: {self.node.in_words()}")

        def settled():
            return {name: devices for name, devices in self.kubelet.listed().items() if devices} == plan

        await self.kubelet.wait_until(settled, timeout=PATIENCE, what="the node as configured")
        await self.check()

    # --- steps --------------------------------------------------------------------------------------------------------

    async def edit(self):
        """Change the configuration while the agent runs."""
        what = self.node.change(self.dice)
        self.told.append(f"{what}: {self.node.in_words()}")
        await asyncio.to_thread(self.agent.edit, self.node.text())

    async def run(self):
        """Run a random pod with a resource that the node shows."""
        shown = sorted(name for name, count in self.kubelet.node().allocatable.items() if count)
        if not shown or len(self.kubelet.pods()) >= MOST_PODS:
            return await self.over()
        self.serial += 1
        resource, kind = self.dice.choice(shown), self.dice.choice(["app", "app", "short", "init", "init only", "side"])
        limits = {"resources": {"limits": {resource: self.dice.choice([1, 1, 2])}}}
        document = manifest(f"p{self.serial}", {} if kind in ("init only", "side") else limits["resources"]["limits"])
        if kind in ("init", "init only"):
            document["spec"]["initContainers"] = [{"name": "first", **limits}]
        if kind == "side":
            document["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always", **limits}]
        pod = await self.kubelet.run_pod(document)
        held = sorted(self.in_use(pod))
        self.told.append(f"{pod.name}: {kind} pod of {limits}: {pod.phase.value} {held} {pod.message}".rstrip())
        if kind == "short" and not pod.phase.terminal:
            await self.kubelet.finish_pod(pod.name)
        return None

    async def over(self):
        """Finish or delete a pod."""
        pods = self.kubelet.pods()
        if not pods:
            return
        pod = self.dice.choice(pods)
        if pod.phase.terminal or self.dice.random() < 0.5:
            self.told.append(f"{pod.name}: deleted")
            await self.kubelet.delete_pod(pod.name)
        else:
            self.told.append(f"{pod.name}: finished")
            await self.kubelet.finish_pod(pod.name, phase=self.dice.choice([Phase.SUCCEEDED, Phase.FAILED]))

    async def rest(self):
        """Wait for a moment."""
        self.told.append("rest")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.dice.choice([0.1, 0.5, 1.5])):
                while True:
                    await self.kubelet.journal.next_change()

    async def replace_agent(self):
        """Stop or kill the agent, maybe change the configuration, and start the next agent."""
        drop = self.dice.random() < 0.5
        self.told.append("agent dropped" if drop else "agent stopped")
        if drop:
            self.agent.task.cancel()
            await asyncio.wait([self.agent.task])
        else:
            assert 0 == await self.agent.stop()
        for _ in range(self.dice.choice([0, 0, 1, 2])):
            self.told.append(f"away: {self.node.change(self.dice)}: {self.node.in_words()}")
        wait = self.dice.random() < 0.5 and not self.down
        self.agent = await self.start_agent(self.node.text(), wait=wait)
        self.told.append(f"agent started, {'registered' if wait else 'not waited for'}")

    async def kubelet_life(self):
        """Restart, crash or start the kubelet."""
        if self.down:
            await self.kubelet.start(wait=self.dice.random() < 0.5)
        elif self.dice.random() < 0.4:
            await self.kubelet.crash()
            self.down = True
            self.told.append("kubelet crashed")
            return
        else:
            await self.kubelet.restart(wait=self.dice.random() < 0.5)
        self.down = False
        self.told.append(f"kubelet started, {'pods known' if self.kubelet.ready else 'pods not known yet'}")

    # --- invariants ---------------------------------------------------------------------------------------------------

    async def check(self):
        """Check that no hardware is on two pods, the plugin has no error findings, and all held ids are listed."""
        if self.agent.task.done():
            raise AssertionError(f"the agent ended: {await self.agent.task}")
        users = [(pod.name, id_) for pod in self.kubelet.pods() for _, id_ in self.in_use(pod)]
        for i, (pod, id_) in enumerate(users):
            for other, its in users[i + 1 :]:
                if pod != other and self.node.overlaps(id_, its):
                    raise AssertionError(f"{id_} of {pod} and {its} of {other} are the same hardware")
        assert [] == [str(each) for each in self.kubelet.errors]
        if not self.down and self.kubelet.ready:
            await self.kubelet.wait_until(lambda: not self.unlisted(), timeout=PATIENCE, what="held ids in the lists")
        ids = Counter(id_ for devices in self.kubelet.listed().values() for id_ in devices)
        assert {} == {id_: count for id_, count in ids.items() if count > 1}

    def in_use(self, pod):
        """Resource and id of each device that a pod's containers use; a finished init container uses nothing."""
        if pod.phase.terminal:
            return set()
        finished = pod.phase is Phase.RUNNING
        containers = [each for each in pod.containers if not (finished and each.kind is Kind.INIT)]
        return {(resource, id_) for each in containers for resource, ids in each.devices.items() for id_ in ids}

    def unlisted(self):
        """The held devices that are not in a list."""
        listed = self.kubelet.listed()
        held = [each for pod in self.kubelet.pods() for each in self.in_use(pod)]
        return [(resource, id_) for resource, id_ in held if id_ not in listed.get(resource, ())]
