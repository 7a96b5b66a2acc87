"""Devices come and go at random while pods are given them, and a model knows what must be true all the time.

`VDEV_SOAK_ROUNDS` makes it longer than its few seconds in the suite; `--randomly-seed` repeats a run.
"""

import asyncio
import contextlib
import gc
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost
from vdev.sim import manifest

ROUNDS = int(os.environ.get("VDEV_SOAK_ROUNDS", "60"))
STALE = 5.0  # seconds; the budget is 50 ms
UART, PROBED = "example.com/uart", "example.com/probed"
PORTS = [f"ttyUSB{number}" for number in range(8)]
PROBES = 4


def config(state):
    return f"""
version: v1
flags: {{plugin: {{deviceListStrategy: [envvar, cdi-cri]}}}}
devices:
  - {{name: uart, resource: {UART}, glob: "/dev/ttyUSB*"}}
  - name: probed
    resource: {PROBED}
    virtual: {{count: {PROBES}, node: {{file: "{{id}}"}}}}
    health: {{probe: file, path: "{state}/{{index}}", content: ok, interval: 200ms}}
    onAllocate: [{{command: ["true"]}}]
    onRelease: [{{command: ["true"]}}]
"""


class World:
    """The model: what is plugged in, which probes see what is good, and which pods there are; and ways to change it."""

    def __init__(self, kubelet, host, state, chance):
        self.kubelet, self.host, self.state, self.chance = kubelet, host, state, chance
        self.plugged = set(PORTS[:4])
        self.good = set(range(PROBES))
        self.pods = 0
        self.done = Counter()
        for port in self.plugged:
            host.node(port)
        for number in self.good:
            self.put(number, "ok")

    def put(self, number, word):
        """Write the file of a probe as a sidecar would."""
        fresh = self.state.parent / "fresh"
        fresh.write_text(word)
        fresh.rename(self.state / str(number))

    def wrong(self):
        """What the kubelet believes of a device against the model; empty when it is all true."""
        process = self.kubelet._process
        if process is None:
            return ["the kubelet is down"]
        wanted = {(UART, f"uart-{port}"): port in self.plugged for port in PORTS}
        wanted |= {(PROBED, f"probed-{number}"): number in self.good for number in range(PROBES)}
        return [
            f"{device} shall be {'' if healthy else 'not '}Healthy"
            for (resource, device), healthy in wanted.items()
            if (device in process.table.healthy.get(resource, ())) is not healthy
        ]

    def flip(self):
        """A device is plugged in or pulled out."""
        port = self.chance.choice(PORTS)
        if port in self.plugged:
            self.host.remove(f"/dev/{port}")
        else:
            self.host.node(port)
        self.plugged ^= {port}

    def toggle(self):
        """A probe's file changes its word, or goes."""
        number = self.chance.randrange(PROBES)
        self.good ^= {number}
        if number in self.good:
            self.put(number, "ok")
        elif self.chance.random() < 0.5:
            self.put(number, "bad")
        else:
            (self.state / str(number)).unlink()

    async def run_pod(self):
        """A pod asks for one or two devices; it may be refused when they go at that moment."""
        self.pods += 1
        resource = self.chance.choice((UART, PROBED))
        pod = await self.kubelet.run_pod(manifest(f"p{self.pods}", {resource: self.chance.choice((1, 1, 2))}))
        self.done[pod.phase.value] += 1

    async def delete_pod(self):
        """A pod goes, and gives its devices back."""
        pods = self.kubelet.pods()
        if pods:
            await self.kubelet.delete_pod(self.chance.choice(pods).spec.name)

    async def something(self):
        """One thing happens."""
        what = self.chance.choice((self.flip, self.flip, self.toggle, self.run_pod, self.delete_pod))
        self.done[what.__name__] += 1
        if asyncio.iscoroutinefunction(what):
            await what()
        else:
            what()


def tasks():
    """The names of the tasks that are at work; those of calls and connections come and go."""
    return Counter(task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("Task-"))


def descriptors():
    """What this process has open: numbers and names."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself is gone
            found.add((each.name, str(each.readlink())))
    return found


async def until_as_few_are_open(kubelet, before):
    """Wait until no more is open than was before."""

    def are_few():
        if len(descriptors()) > len(before):
            gc.collect()  # of a busy machine, a connection may hang on rubbish in a circle: that is not left over
        return len(descriptors()) <= len(before)

    try:
        await kubelet.wait_until(are_few)
    except TimeoutError:
        pytest.fail(f"open besides what was before: {sorted(descriptors() - before)}")


@pytest.mark.long
async def test_random_hot_plug_under_load(kubelet, start_agent, shows, directory):
    """No held id is dropped, no list stays stale, and in the end nothing is left over."""
    host = FakeHost(directory / "host", real_nodes=os.geteuid() == 0)
    state = directory / "state"
    state.mkdir()
    world = World(kubelet, host, state, random.Random(random.getrandbits(32)))
    before = descriptors()
    agent = await start_agent(config(state), host=host.host)
    await shows(UART, 4, 4)
    await shows(PROBED, PROBES, PROBES)
    at_work, open_files = tasks(), descriptors()
    for _ in range(ROUNDS):
        for _ in range(world.chance.choice((1, 1, 2, 5))):
            await world.something()
        await kubelet.wait_until(lambda: not world.wrong(), timeout=STALE, what=f"{world.wrong()}")
        assert [] == kubelet.errors
    for pod in kubelet.pods():
        await kubelet.delete_pod(pod.spec.name)
    await kubelet.run_pod(manifest("last"))  # until then the checkpoint keeps the pod before
    for port in PORTS[:4]:
        if port not in world.plugged:
            host.node(port)
    for port in world.plugged - set(PORTS[:4]):
        host.remove(f"/dev/{port}")
    for number in range(PROBES):
        world.put(number, "ok")
    await shows(UART, 4, 4)
    await shows(PROBED, PROBES, PROBES)
    await kubelet.wait_until(lambda: not agent.agent.reconciler.retired, what="the end of what was retired")
    await kubelet.wait_until(lambda: tasks() <= at_work, what=f"the end of tasks, {tasks() - at_work}")
    await until_as_few_are_open(kubelet, open_files)
    assert 2 == len(list(kubelet.device_plugin_dir.glob("vdev-*.sock")))
    assert 2 == len(list(agent.cdi_dir.iterdir()))
    assert PROBES == len(list((directory / "devices").glob("vdev-*")))
    assert 0 == await agent.stop()
    assert [] == list(kubelet.device_plugin_dir.glob("vdev-*.sock"))
    await until_as_few_are_open(kubelet, before)
    assert 0 < world.done["Running"], world.done
    assert [] == kubelet.errors
