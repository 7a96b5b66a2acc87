"""A plugin is killed at any point, and the next process takes over without harm.

A process is killed as by `kill -9` at a point after an edit of its file or after its start, until all effects (lists,
records, CDI specifications) have followed, with allocations in that time. The next process must not put hardware on two
pods, must list all held devices, and must leave nothing behind when the pods are gone.

    VDEV_KILLS=all pytest tests/component/test_killed.py        kills at every point, one after the other
    VDEV_KILLS=17,203 pytest tests/component/test_killed.py     at these

Otherwise, each run draws a point for each of four changes. A failure names the point, but the work at a point varies a
little between runs.
"""

import asyncio
import json
import os
import random
import signal

import pytest

from tests.kit import forkserver
from tests.kit.hardware import Node
from tests.kit.mortal import NEVER, Fuse
from tests.kit.process import send_signal
from vdev.sim import Kubelet, Timings, manifest

GIVEN = os.environ.get("VDEV_KILLS", "")
FEW = 1  # points per change
AT_ONCE = 4  # nodes at the same time
PATIENCE = 30.0

CUT, FINE = ("2x@0", "2x@2"), ("1x@0", "1x@1", "2x@2")
SIDES = {"null": "left", "zero": "left", "full": "left"}
CHANGES = {
    "cut": ("acme.dev/mig-2x", {"layouts": [CUT, CUT]}, {"layouts": [FINE, CUT]}),
    "whole": ("acme.dev/mig-2x", {"layouts": [CUT, None]}, {"layouts": [None, CUT]}),
    "renamed": ("acme.dev/npu", {"npus": "acme.dev/npu"}, {"npus": "acme.dev/chip"}),
    "shared": ("acme.dev/npu", {"replicas": {}}, {"replicas": {"acme.dev/npu": 2}}),
    "moved": ("acme.dev/left", {"sides": SIDES}, {"sides": SIDES | {"null": "right", "zero": "right"}}),
    "rewritten": ("acme.dev/npu", {"boxes": 2}, {"boxes": 1}),
}
"""Per change: the resource of which a pod holds a device, and fields of the node before and after the change."""
ALL = [(each, away) for each in CHANGES for away in (False, True)]
SOME = [("cut", False), ("renamed", False), ("moved", False), ("cut", True)]


@pytest.mark.long
@pytest.mark.timeout(3600 if GIVEN else 120)
@pytest.mark.parametrize(("change", "away"), ALL if GIVEN else SOME)
async def test_the_next_process_takes_over_after_a_kill(directory, change, away):
    """A run without a kill counts the points. Then processes are killed at some of them.

    The file changes while the process runs, or while no process runs (`away`): then the points include those of its
    start.
    """

    async def play(directory, point):
        story = Story(directory, change, point, away=away)
        await story.play()
        return story.points

    last = await play(directory / "whole", NEVER)
    every = range(1, last + 1)
    given = every if GIVEN == "all" else [int(each) for each in GIVEN.split(",") if each]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(point):
        async with turn:
            try:
                await play(directory / str(point), point)
            except Exception as wrong:
                wrong.add_note(f"killed at point {point} of {last}; repeat it with VDEV_KILLS={point}")
                raise

    points = given or random.sample(every, FEW)
    wrong = [each for each in await asyncio.gather(*map(one, points), return_exceptions=True) if each]
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(points)} points", wrong)


class Story:
    """A node whose plugin is killed at a point. `points` is the number of points."""

    def __init__(self, directory, change, point, *, away):
        self.directory, self.point, self.away = directory, point, away
        self.held, before, after = CHANGES[change]
        self.before, self.node = Node(**before), Node(**after)
        self.points = self.pods = 0
        self.process = None
        self.node.parts = self.before.parts
        self.before.plan()
        self.node.plan()

    async def play(self):
        """Run a process until its point or the end of the change, and then another one."""
        await asyncio.to_thread(self.directory.mkdir)
        timings = Timings(boot=0.01, lead=0.01, look=0.02, retry=0.5, sources=0.1, slow=PATIENCE, bound=PATIENCE)
        options = {"rate_limit": False, "timings": timings, "overlaps": self.node.overlaps}
        async with Kubelet(self.directory / "kubelet", **options) as self.kubelet:
            try:
                self.edit(self.before)
                await self.start("first")
                await self.wait(lambda: self.lists(self.before), "the first list")
                first = await self.run(self.held)
                assert "Running" == first.phase.value, first.message
                await self.change()
                self.points = self.fuse.passed
                await self.kill()
                self.check(listed=False)  # the kubelet notices the ends of the streams one after the other
                await self.wait(lambda: not any(self.kubelet.listed().values()), "the ends of the streams")
                await self.start("last")
                await self.use_up(lambda: self.shows(self.node))
                await self.wait(self.all_started, "the pods whose PreStartContainer failed to start")
                self.check()
                for pod in self.kubelet.pods():
                    await self.kubelet.delete_pod(pod.name)
                await self.wait(lambda: self.lists(self.node), "the node as configured")
                # Only a pod with a device makes the kubelet write its checkpoint, which still names the deleted pods.
                # vdev would wait ten minutes for those that it has never seen in PodResources.
                await self.run(self.free()[0])
                await self.wait(lambda: not self.litter(), "nothing left behind")
                self.check()
            finally:
                await self.kill()

    async def change(self):
        """Change the file, and create and delete pods."""
        if self.away:
            await self.kill()
            self.edit(self.node)
            await self.start("changed", self.point)
        else:
            self.fuse.light(self.point)
            self.edit(self.node)
        await self.run(self.held)
        await self.use_up(lambda: self.gone or (self.shows(self.node) and not self.lists(self.before)))
        for pod in self.kubelet.pods():
            await self.kubelet.delete_pod(pod.name)
        await self.kubelet.run_pod(manifest("last"))  # until then the checkpoint keeps the pod before
        await self.use_up(lambda: self.gone or self.lists(self.node))

    # --- steps --------------------------------------------------------------------------------------------------------

    def edit(self, node):
        """Replace the configuration as editors do."""
        flags = "flags: {migStrategy: mixed, plugin: {deviceListStrategy: [envvar, cdi-cri]}}"
        more = f'container: {{env: {{BOXES: "{node.boxes}"}}}}'
        box = f'virtual: {{node: {{directory: {{size: "{node.boxes}"}}, containerPath: "/run/{{id}}"}}, count'
        lines = node.text().replace("flags: {migStrategy: mixed}", flags).splitlines()
        lines = [f"{line[:-1]}, {more}}}" if line.startswith("- {name: ") else line for line in lines]
        lines = [line.replace("virtual: {count", box) if line.startswith("- {name: box") else line for line in lines]
        fresh = self.directory / "vdev.new"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.directory / "vdev.yaml")

    async def start(self, name, point=0):
        """Start a process on the present file. It dies at this point, or never if that is 0."""
        path = self.directory / f"{name}.fuse"
        self.fuse = Fuse(path)
        self.fuse.light(point)
        places = {"--kubelet-dir": self.kubelet.root, "--config-file": self.directory / "vdev.yaml"}
        places |= {f"--{each}-dir": self.directory / each for each in ("run", "cdi", "device", "state")}
        arguments = [word for pair in places.items() for word in pair]
        arguments += ["--node-name", "node-1", "--log-format", "json"]
        with (self.directory / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(forkserver.python(), "-m", "tests.kit.mortal", path, *arguments), stdout=log, stderr=log
            )

    @property
    def gone(self):
        """Whether the process has ended."""
        return self.process.returncode is not None

    async def kill(self):
        """Kill the process if it still runs."""
        if self.process is not None:
            if not self.gone:
                send_signal(self.process, signal.SIGKILL)
            async with asyncio.timeout(30):
                await self.process.wait()

    async def run(self, resource):
        """Run a pod with one device of a resource."""
        self.pods += 1
        return await self.kubelet.run_pod(manifest(f"pod-{self.pods}", {resource: 1}))

    async def use_up(self, condition):
        """Run pods for all free devices until the condition holds and none is free."""
        while not condition() or self.free():
            await self.wait(lambda: condition() or self.free(), "something to use")
            for name in self.free():
                await self.run(name)

    async def wait(self, condition, what):
        """Wait for a condition. The error has the lists, the files that are left, and the log."""
        try:
            await self.kubelet.wait_until(condition, timeout=PATIENCE, what=what)
        except TimeoutError as late:
            log = (self.directory / "log").read_text().splitlines()
            words = ["listed:", str(self.kubelet.listed()), "left:", str(self.litter()), "log:", *log[-20:]]
            late.add_note("\n".join(words))
            raise

    # --- state --------------------------------------------------------------------------------------------------------

    def free(self):
        """The resources with a free device."""
        used = self.in_use()
        lists = self.kubelet.listed().items()
        return [
            name for name, ids in lists if any(it == "Healthy" and (name, id_) not in used for id_, it in ids.items())
        ]

    def in_use(self):
        """The pod of each held device, by (resource, id)."""
        return {
            (resource, id_): pod
            for pod in self.kubelet.pods()
            if not pod.phase.terminal
            for container in pod.containers
            for resource, ids in container.devices.items()
            for id_ in ids
        }

    def all_started(self):
        """Whether all pods with devices have started. The kubelet retries PreStartContainer after a pause."""
        return not any(pod.phase.value == "Pending" for pod in self.in_use().values())

    def shows(self, node):
        """Whether all devices of the file are listed, maybe still under their former resource."""
        plan, listed = node.plan(), self.kubelet.listed()
        return plan.keys() <= listed.keys() and set().union(*plan.values()) <= {
            id_ for ids in listed.values() for id_ in ids
        }

    def lists(self, node):
        """Whether exactly the devices of the file are listed, and all are Healthy."""
        listed = {resource: ids for resource, ids in self.kubelet.listed().items() if ids}
        return listed == {resource: dict.fromkeys(ids, "Healthy") for resource, ids in node.plan().items()}

    def specified(self):
        """The devices of the CDI specifications, by qualified name. Raises an error for a file that is not JSON."""
        documents = [json.loads(path.read_text()) for path in (self.directory / "cdi").glob("vdev-*.json")]
        named = [(f"{each['kind']}={one['name']}", one) for each in documents for one in each["devices"]]
        assert len(named) == len(dict(named))
        return dict(named)

    def litter(self):
        """Files, CDI devices and sockets that should not exist once no pod holds a device."""
        plan = self.node.plan()
        kinds = {name: self.node.npus if name.startswith("acme.dev/mig-") else name for name in plan}
        wanted = {f"k8s.device-plugin.{kinds[name]}={base(id_)}" for name, ids in plan.items() for id_ in ids}
        unfinished = [
            path for each in ("cdi", "device", "state", "run") for path in (self.directory / each).rglob("*.tmp")
        ]
        sockets = [path.name for path in self.kubelet.device_plugin_dir.glob("vdev-*.sock")]
        return [*unfinished, *(self.specified().keys() ^ wanted), *sockets[len(plan) :]]

    def check(self, *, listed=True):
        """Check that no hardware is on two pods, there are no findings, and held devices are listed and resolvable."""
        used, specified = self.in_use(), self.specified()
        rows = [(pod.name, id_) for (_, id_), pod in used.items()]
        twice = [
            (one, other) for one in rows for other in rows if one[0] < other[0] and self.node.overlaps(one[1], other[1])
        ]
        assert [] == twice
        assert [] == [str(each) for each in self.kubelet.findings]
        lists = self.kubelet.listed()
        assert [] == [key for key in used if listed and key[1] not in lists.get(key[0], ())]
        for (_, id_), pod in used.items():
            if not listed and pod.phase.value == "Pending":  # PreStartContainer failed; it is called again
                continue
            (name,) = (name for name in pod.container().edits.cdi_devices)
            assert base(id_) == name.partition("=")[2]
            assert name in specified, (pod.name, name)
            edits = specified[name]["containerEdits"]
            nodes = {each["path"] for each in edits.get("deviceNodes", ())}
            assert {each for each in self.node.parts[id_].pieces if each.startswith("/dev/")} == nodes
            assert any(each.endswith(f"={base(id_)}") for each in edits["env"])


def base(id_):
    """The id of a device without the number of a replica."""
    return id_.partition("::")[0]
