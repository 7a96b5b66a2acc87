"""`vdev demo`: a story of a few seconds with the plugin and the embedded kubelet, in which each step is checked.

The plugin is `vdev run` in another process; the kubelet runs in this one.
"""

import argparse
import asyncio
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import VdevError
from . import common

if TYPE_CHECKING:
    from ..sim import Kubelet
    from ..testing import Agent

_PATIENCE = 30.0  # seconds for each step

DESCRIPTION = "Run the plugin against the embedded kubelet and show what happens. Needs no cluster and no root."
EPILOG = """examples:
  vdev demo           run the story; exit code 0 only if every check holds
  vdev demo --keep    the same, and keep the plugin's log
"""
NPU, TERMINAL, NOISE = "acme.dev/npu", "example.com/terminal", "example.com/noise"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="keep the directory with the file and the plugin's log")


def run(args: argparse.Namespace) -> int:
    """Run the story; 1 if a check fails."""
    directory = Path(tempfile.mkdtemp(prefix="vdev-demo-"))
    try:
        return asyncio.run(_play(directory))
    finally:
        if args.keep:
            print(f"\nkept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


class Story:
    """Numbered steps with checks, played on a kubelet and `vdev run`, whose configuration is in a file."""

    def __init__(self, kubelet: "Kubelet", agent: "Agent", config: Path) -> None:
        self.kubelet, self.agent, self.config = kubelet, agent, config
        self.checks = 0
        self._step = 0

    def step(self, title: str) -> None:
        self._step += 1
        print(f"\n{self._step}. {title}")

    def say(self, line: str) -> None:
        print(f"   {line}")

    def check(self, what: str, *, expected: object, actual: object) -> None:
        """Check a value, and count the check."""
        if expected != actual:
            raise VdevError(f"{what}: expected {expected!r}, got {actual!r}")
        self.checks += 1
        print(f"   ✓ {what}")

    async def until(self, condition: Callable[[], bool], what: str) -> str:
        """Wait until the condition holds. Returns how long that took."""
        begun = time.monotonic()
        await self.kubelet.wait_until(condition, timeout=_PATIENCE, what=what)
        return f"{(time.monotonic() - begun) * 1000:.0f} ms"

    def edit(self, old: str, new: str) -> None:
        self.config.write_text(self.config.read_text().replace(old, new))

    @property
    def numbers(self) -> dict[str, tuple[int, int]]:
        """What is allocatable, and the capacity, by resource."""
        node = self.kubelet.node()
        return {name: (node.allocatable.get(name, 0), total) for name, total in sorted(node.capacity.items())}

    def show_node(self) -> None:
        rows = [(name, str(free), str(total)) for name, (free, total) in self.numbers.items()]
        for line in common.table_lines(("RESOURCE", "ALLOCATABLE", "CAPACITY"), rows):
            self.say(line)


def _quickstart() -> str:
    """The demo's configuration: beside the checkout's other examples, or in the installed package."""
    package = Path(__file__).parents[1]
    places = (package.parent / "configs" / "quickstart.yaml", package / "quickstart.yaml")
    return next(place for place in places if place.exists()).read_text()


async def _play(directory: Path) -> int:
    from ..sim import Kubelet, Timings  # not needed for --help; it imports gRPC
    from ..sim.scenarios.plugin_process import PluginPlaces, last_words
    from ..testing import Agent

    begun = time.monotonic()
    os.environ.pop("KUBECONFIG", None)  # the plugin must not use a cluster
    places = PluginPlaces.below(directory, kubelet_dir=directory / "kubelet", node_name="demo-node")
    places.configuration.write_text(_quickstart())
    # A real kubelet takes two seconds to restart.
    timings = Timings(boot=0.1, sources=0.1)
    print("vdev demo: a node, its kubelet, and a device plugin that advertises what a YAML file declares")
    try:
        async with Kubelet(
            places.kubelet_dir, node_name=places.node_name, cdi_dir=places.cdi_dir, timings=timings
        ) as kubelet:
            story = Story(kubelet, Agent(places, kubelet), places.configuration)
            try:
                await _beginning(story, shlex.join(("vdev", "run", *places.flags())))
                for part in (_pods, _edit, _bad_edit, _removal, _restart, _end):
                    await part(story)
            finally:
                await story.agent.kill()
    except (VdevError, TimeoutError) as failed:
        print(f"   ✗ {failed}\n\nthe plugin: {last_words(places.log)}", file=sys.stderr)
        return 1
    print(
        f"\nAll {story.checks} checks held, in {time.monotonic() - begun:.1f} s. "
        "Next: vdev sim --help, vdev run --help, configs/"
    )
    return 0


async def _beginning(story: Story, command: str) -> None:
    story.step("The plugin starts and registers its resources with the kubelet")
    story.say(f"$ {command}")
    begun = time.monotonic()
    await story.agent.start()
    took = f"{(time.monotonic() - begun) * 1000:.0f} ms"
    story.show_node()
    expected = {NPU: (2, 2), TERMINAL: (1, 1), NOISE: (1, 1)}
    story.check(f"the node has what {story.config.name} declares ({took})", expected=expected, actual=story.numbers)


async def _pods(story: Story) -> None:
    from ..sim import manifest

    story.step("Pods ask for devices, as any pod does: limits: {acme.dev/npu: 1, example.com/noise: 1}")
    pod = await story.kubelet.run_pod(manifest("train", {NPU: 1, NOISE: 1}))
    story.check("pod train runs", expected="Running", actual=pod.phase.value)
    story.say("and its container gets:")
    edits = pod.container().edits
    for key, value in sorted(edits.envs.items()):
        story.say(f"  env     {key}={value}")
    for node in edits.devices:
        story.say(f"  device  {node.container_path} ({node.permissions}) from {node.host_path}")
    story.check("the variable from the file's template", expected="Acme X1", actual=edits.envs.get("ACME_MODEL"))
    paths = {node.container_path for node in edits.devices}
    story.check("a renamed real node", expected=True, actual="/dev/noise" in paths)
    refused = await story.kubelet.run_pod(manifest("greedy", {NPU: 2}))
    story.check("a pod that asks for more than is left is refused", expected="Failed", actual=refused.phase.value)
    story.say(f"  {refused.message}")


async def _edit(story: Story) -> None:
    kubelet = story.kubelet
    story.step("The file is edited: count: 2 becomes count: 3")
    calls = dict(kubelet.metrics.registrations)
    story.edit("count: 2", "count: 3")
    took = await story.until(lambda: kubelet.node().capacity[NPU] == 3, "a third device")
    story.show_node()
    story.check(f"the node followed without a restart ({took})", expected=(3, 3), actual=story.numbers[NPU])
    story.check("nothing registered again", expected=calls, actual=dict(kubelet.metrics.registrations))


async def _bad_edit(story: Story) -> None:
    story.step("A bad edit: count: 3 becomes cuont: 3")
    before = story.numbers
    story.edit("count: 3", "cuont: 3")
    await story.until(lambda: "cuont" in story.agent.errors(), "the refusal in the log")
    story.say(story.agent.errors().partition(f"{story.config.parent}/")[2])
    story.check("the last good configuration stays", expected=before, actual=story.numbers)
    story.edit("cuont: 3", "count: 3")


async def _removal(story: Story) -> None:
    kubelet = story.kubelet
    story.step("The NPUs are taken off this node (onNodes: [another-node]) while pod train holds one of them")
    (mine,) = kubelet.pod("train").container().devices[NPU]
    line = f"resource: {NPU}"
    story.edit(line, f"{line}\n    onNodes: [another-node]")
    await story.until(lambda: kubelet.node().allocatable[NPU] == 0, "no allocatable NPU")
    story.say(f"nothing new can be scheduled; {mine} stays listed as Unhealthy, because the pod holds it")
    story.say("the others go when the kubelet has run for ten seconds: before that, it may not list all its pods")
    await story.until(lambda: kubelet.node().capacity[NPU] == 1, "one listed NPU")
    story.check("only the held device is still listed", expected=(0, 1), actual=story.numbers[NPU])
    await kubelet.delete_pod("train")
    await story.until(lambda: kubelet.node().capacity[NPU] == 0, "no listed NPU")
    story.check("when the pod is gone, so is the device", expected=(0, 0), actual=story.numbers[NPU])


async def _restart(story: Story) -> None:
    from ..sim import manifest

    kubelet = story.kubelet
    story.step("The kubelet restarts while pod console holds the terminal: it deletes the sockets of all plugins")
    held = (await kubelet.run_pod(manifest("console", {TERMINAL: 1}))).container().devices
    calls = kubelet.metrics.registrations.total()
    await kubelet.restart(wait=False)
    expected = {NPU: (0, 0), NOISE: (1, 1), TERMINAL: (1, 1)}  # a kubelet keeps the name of a resource that is gone
    back = calls + 2
    took = await story.until(
        lambda: story.numbers == expected and kubelet.metrics.registrations.total() >= back, "all resources back"
    )
    story.check(f"all resources are back ({took})", expected=expected, actual=story.numbers)
    await story.until(lambda: kubelet.ready, "the kubelet's pods")
    pod = kubelet.pod("console")
    story.check("pod console still runs", expected="Running", actual=pod.phase.value)
    story.check("with the same device", expected=held, actual=pod.container().devices)


async def _end(story: Story) -> None:
    kubelet = story.kubelet
    story.step("SIGTERM: the plugin ends")
    await story.agent.stop()
    await story.until(lambda: not any(kubelet.node().allocatable.values()), "nothing allocatable")
    left = sorted(path.name for path in kubelet.device_plugin_dir.glob("vdev-*"))
    story.check("no socket is left behind", expected=[], actual=left)
    story.check("the kubelet saw no error of the plugin", expected=[], actual=[str(each) for each in kubelet.errors])
