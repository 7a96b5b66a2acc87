"""`vdev demo`: a story of a few seconds with the plugin and the embedded kubelet, in which each step is checked.

The plugin is `vdev run` in another process; the kubelet runs in this one.
"""

import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from . import common

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


class FailedCheck(Exception):
    """A check did not hold."""


class Story:
    """Numbered steps with checks."""

    def __init__(self) -> None:
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
            raise FailedCheck(f"{what}: expected {expected!r}, got {actual!r}")
        self.checks += 1
        print(f"   ✓ {what}")

    def show(self, edits: Any) -> None:
        for key, value in sorted(edits.envs.items()):
            self.say(f"  env     {key}={value}")
        for node in edits.devices:
            self.say(f"  device  {node.container_path} ({node.permissions}) from {node.host_path}")


async def until(kubelet: Any, condition: Callable[[], bool], what: str) -> float:
    """Wait until the condition holds. Returns how many milliseconds that took."""
    begun = time.monotonic()
    await kubelet.wait_until(condition, timeout=_PATIENCE, what=what)
    return (time.monotonic() - begun) * 1000


def _quickstart() -> str:
    """The demo's configuration: beside the checkout's other examples, or in the installed package."""
    package = Path(__file__).parents[1]
    places = (package.parent / "configs" / "quickstart.yaml", package / "quickstart.yaml")
    return next(place for place in places if place.exists()).read_text()


async def _play(directory: Path) -> int:
    from ..sim import Kubelet  # not needed for --help; it imports gRPC

    story = Story()
    begun = time.monotonic()
    config = directory / "vdev.yaml"
    config.write_text(_quickstart())
    print("vdev demo: a node, its kubelet, and a device plugin that advertises what a YAML file declares")
    try:
        async with Kubelet(directory / "kubelet", node_name="demo-node", cdi_dir=directory / "cdi") as kubelet:
            async with _plugin(config, directory) as plugin:
                await _beginning(story, kubelet, config, plugin)
                await _pods(story, kubelet)
                await _edit(story, kubelet, config)
                await _bad_edit(story, kubelet, config, directory)
                await _restart(story, kubelet)
                await _removal(story, kubelet, config)
            await _end(story, kubelet)
    except (FailedCheck, TimeoutError) as failed:
        print(f"   ✗ {failed}\n\nThe end of the plugin's log:", file=sys.stderr)
        print("\n".join((directory / "plugin.log").read_text().splitlines()[-15:]), file=sys.stderr)
        return 1
    print(
        f"\nAll {story.checks} checks held, in {time.monotonic() - begun:.1f} s. "
        "Next: vdev sim --help, vdev run --help, configs/"
    )
    return 0


@contextlib.asynccontextmanager
async def _plugin(config: Path, directory: Path) -> AsyncIterator[list[str]]:
    command = [
        *(sys.executable, "-m", "vdev", "run"),
        *("--config-file", str(config), "--kubelet-dir", str(directory / "kubelet")),
        *("--cdi-dir", str(directory / "cdi"), "--device-dir", str(directory / "devices")),
        *("--run-dir", str(directory), "--state-dir", str(directory / "state"), "--node-name", "demo-node"),
        *("--log-format", "console"),
    ]
    environ = {
        name: value for name, value in os.environ.items() if name != "KUBECONFIG"
    }  # the demo must not use a cluster
    with (directory / "plugin.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=environ)
    try:
        yield command
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)  # Process.terminate() may reap the process, and lose its exit code
        code = await process.wait()
    if code != 0:
        raise FailedCheck(f"vdev run ended with exit code {code}")


def _numbers(kubelet: Any) -> dict[str, tuple[int, int]]:
    node = kubelet.node()
    return {name: (node.allocatable.get(name, 0), total) for name, total in sorted(node.capacity.items())}


def _show_node(story: Story, kubelet: Any) -> None:
    rows = [(name, str(free), str(total)) for name, (free, total) in _numbers(kubelet).items()]
    for line in common.table_lines(("RESOURCE", "ALLOCATABLE", "CAPACITY"), rows):
        story.say(line)


async def _beginning(story: Story, kubelet: Any, config: Path, command: list[str]) -> None:
    story.step("The plugin starts and registers its resources with the kubelet")
    story.say("$ vdev " + shlex.join(command[3:]))
    took = await until(kubelet, lambda: {NPU, TERMINAL, NOISE} <= kubelet.node().capacity.keys(), "three resources")
    _show_node(story, kubelet)
    expected = {NPU: (2, 2), TERMINAL: (1, 1), NOISE: (1, 1)}
    story.check(
        f"the node has what {config.name} declares ({took:.0f} ms)", expected=expected, actual=_numbers(kubelet)
    )


async def _pods(story: Story, kubelet: Any) -> None:
    from ..sim import manifest

    story.step("Pods ask for devices, as any pod does: limits: {acme.dev/npu: 1, example.com/noise: 1}")
    pod = await kubelet.run_pod(manifest("train", {NPU: 1, NOISE: 1}))
    story.check("pod train runs", expected="Running", actual=pod.phase.value)
    story.say("and its container gets:")
    edits = pod.container().edits
    story.show(edits)
    story.check("the variable from the file's template", expected="Acme X1", actual=edits.envs.get("ACME_MODEL"))
    paths = {node.container_path for node in edits.devices}
    story.check("a renamed real node", expected=True, actual="/dev/noise" in paths)
    refused = await kubelet.run_pod(manifest("greedy", {NPU: 2}))
    story.check("a pod that asks for more than is left is refused", expected="Failed", actual=refused.phase.value)
    story.say(f"  {refused.message}")


async def _edit(story: Story, kubelet: Any, config: Path) -> None:
    story.step("The file is edited: count: 2 becomes count: 3")
    calls = dict(kubelet.metrics.registrations)
    config.write_text(config.read_text().replace("count: 2", "count: 3"))
    took = await until(kubelet, lambda: kubelet.node().capacity[NPU] == 3, "a third device")
    _show_node(story, kubelet)
    story.check(f"the node followed without a restart ({took:.0f} ms)", expected=(3, 3), actual=_numbers(kubelet)[NPU])
    story.check("nothing registered again", expected=calls, actual=dict(kubelet.metrics.registrations))


async def _bad_edit(story: Story, kubelet: Any, config: Path, directory: Path) -> None:
    story.step("A bad edit: count: 3 becomes cuont: 3")
    good, before = config.read_text(), _numbers(kubelet)
    config.write_text(good.replace("count: 3", "cuont: 3"))
    log = directory / "plugin.log"
    await until(kubelet, lambda: "configuration refused" in log.read_text(), "the refusal in the log")
    refusal = next(line for line in log.read_text().splitlines() if "cuont" in line)
    story.say(refusal.partition(str(config))[2].strip(" :'\"[]").join((config.name + ":", "")))
    story.check("the last good configuration stays", expected=before, actual=_numbers(kubelet))
    config.write_text(good)


async def _restart(story: Story, kubelet: Any) -> None:
    story.step("The kubelet restarts: it forgets all plugins and deletes their sockets")
    held = kubelet.pod("train").container().devices
    calls = kubelet.metrics.registrations.total()
    await kubelet.restart(wait=False)
    expected = {NOISE: (1, 1), NPU: (3, 3), TERMINAL: (1, 1)}
    back = calls + len(expected)
    took = await until(
        kubelet,
        lambda: _numbers(kubelet) == expected and kubelet.metrics.registrations.total() >= back,
        "all resources back",
    )
    story.check(f"all resources are back ({took:.0f} ms)", expected=expected, actual=_numbers(kubelet))
    await until(kubelet, lambda: kubelet.ready, "the kubelet's pods")
    pod = kubelet.pod("train")
    story.check("pod train still runs", expected="Running", actual=pod.phase.value)
    story.check("with the same devices", expected=held, actual=pod.container().devices)


async def _removal(story: Story, kubelet: Any, config: Path) -> None:
    story.step("The NPUs are taken off this node (onNodes: [another-node]) while pod train holds one of them")
    (mine,) = kubelet.pod("train").container().devices[NPU]
    line = f"resource: {NPU}"
    config.write_text(config.read_text().replace(line, f"{line}\n    onNodes: [another-node]"))
    await until(kubelet, lambda: kubelet.node().allocatable[NPU] == 0, "no allocatable NPU")
    story.say(f"nothing new can be scheduled; {mine} stays listed as Unhealthy, because the pod holds it")
    await until(kubelet, lambda: kubelet.node().capacity[NPU] == 1, "one listed NPU")
    story.check("only the held device is still listed", expected=(0, 1), actual=_numbers(kubelet)[NPU])
    await kubelet.delete_pod("train")
    await until(kubelet, lambda: kubelet.node().capacity[NPU] == 0, "no listed NPU")
    story.check("when the pod is gone, so is the device", expected=(0, 0), actual=_numbers(kubelet)[NPU])


async def _end(story: Story, kubelet: Any) -> None:
    story.step("SIGTERM: the plugin ends")
    await until(kubelet, lambda: not any(kubelet.node().allocatable.values()), "nothing allocatable")
    left = sorted(path.name for path in kubelet.device_plugin_dir.glob("vdev-*"))
    story.check("no socket is left behind", expected=[], actual=left)
    story.check("the kubelet saw no error of the plugin", expected=[], actual=[str(each) for each in kubelet.errors])
