"""Fixtures of the component tests: the plugin and the embedded kubelet in one process, connected by real sockets.

A call that blocks the event loop inside the plugin fails the test.
"""

import asyncio
import contextlib
import importlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import inotify_simple
import pytest
import structlog
import yaml

from tests.kit import quick
from tests.kit.api_server import ApiServer
from tests.kit.blocking import no_blocking
from vdev import config
from vdev.agent import config_files, status
from vdev.agent.agent import Agent
from vdev.agent.options import Options
from vdev.aio.clock import LeapClock, Timing
from vdev.api_server import ApiServerAddress
from vdev.intervals import Intervals
from vdev.kube.api import Api
from vdev.kube.connection import Connection
from vdev.sim import Kubelet

INTERVALS = frozenset(each.name for each in fields(Intervals))


@dataclass(slots=True)
class RunningAgent:
    """A running plugin. The result of `task` is its exit code."""

    agent: Agent
    config_file: Path
    task: asyncio.Task[int]
    logs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def clock(self) -> LeapClock:
        """Its clock, which runs, and which a test can advance."""
        clock = self.agent.options.clock
        assert isinstance(clock, LeapClock)
        return clock

    @property
    def cdi_dir(self) -> Path:
        """The directory of its CDI specifications."""
        return self.agent.options.cdi_dir

    def edit(self, text: str) -> None:
        """Replace the configuration as editors do: write a new file, and rename it over the old one."""
        fresh = self.config_file.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.config_file)

    async def serves(self, number: int, kubelet: Kubelet) -> None:
        """Wait until the `number`-th applied configuration is served, and its reconciliation has ended."""
        await kubelet.wait_until(lambda: self.agent.config.applied == number, what="the edit")
        await self.settled(kubelet)

    async def settled(self, kubelet: Kubelet) -> None:
        """Wait for the end of a reconciliation: the kubelet gets the lists before the last appliers run."""
        is_done = self.agent.pending.is_done
        self.agent.pending.add()  # one more, because the last one may have ended
        await kubelet.wait_until(lambda: self.task.done() or is_done.is_set(), what="a reconciliation")

    async def calls_unhealthy(self, kubelet: Kubelet, resource: str, id_: str, reason: str) -> None:
        """Wait until the device is listed as Unhealthy for this reason, which may come later than the health."""

        def condition() -> bool:
            listed = self.agent.reconciler.advertised.resources.get(resource)
            slot = listed.by_id.get(id_) if listed else None
            return slot is not None and not slot.health.healthy and slot.health.reason == reason

        await kubelet.wait_until(condition, what=f"{id_} Unhealthy: {reason}")

    async def has_named(self, kubelet: Kubelet, count: int = 1) -> None:
        """Wait until PodResources has named the pods of this many devices.

        The devices of a pod that ends before that stay listed for ten minutes.
        """
        holders = self.agent.holders
        await kubelet.wait_until(lambda: len(holders.holders or ()) >= count, what="the pod's name")

    async def stop(self) -> int:
        """End it gracefully. Returns the exit code."""
        self.agent.stop()
        return await self.task


@pytest.fixture(scope="session")
def _inotify():
    """Make calls that block at their first use in a process: inotify_simple runs `ldconfig`, metrics read /proc."""
    inotify_simple.INotify().close()
    importlib.import_module("prometheus_client")


@pytest.fixture
async def kubelet(directory):
    """A running kubelet of 1.36. Its node status follows at once, and it knows its pods soon after a restart."""
    async with Kubelet(directory / "kubelet", rate_limit=False, timings=quick.KUBELET) as running:
        yield running


@pytest.fixture
def config_dir(directory):
    """The directory of the configuration. The agent reads the file again after each change in this directory."""
    place = directory / "config"
    place.mkdir()
    return place


@pytest.fixture
async def start_agent(kubelet, directory, config_dir, _inotify, monkeypatch):
    """Start a plugin beside the kubelet, with the text of its configuration.

    With `wait`, it returns when every resource is registered and listed, and all appliers have run. A second plugin of
    the same test finds the files of the first. `overrides` replace values of the file. `options` are those of
    `vdev.agent.Options` and of its intervals. `appliers` run in addition to the agent's own. `load` reads
    the files.
    """
    started = []

    async def start(text, *, wait=True, overrides=None, preset_dirs=(), appliers=(), load=config.load, **options):
        file = config_dir / "vdev.yaml"
        file.write_text(text)
        monkeypatch.setattr(config_files, "load", load)
        chosen = Options(
            node_name="node-1",
            config_files=[file],
            overrides=overrides or {},
            preset_dirs=preset_dirs,
            kubelet_dir=directory / "kubelet",
            kubelet_socket=kubelet.socket,
            cdi_dir=directory / "cdi",
            device_dir=directory / "devices",
            state_dir=directory / "state",
            clock=LeapClock(),
        )
        derived = {"smi_dir": directory / "smi", "boot_id": "", "run_dir": None, "service_manager": None}
        intervals = quick.INTERVALS | {name: options.pop(name) for name in INTERVALS & options.keys()}
        options = derived | options | {"intervals": Intervals(**intervals)}
        assert options.keys() <= {*dir(chosen)}
        agent = Agent(chosen.model_copy(update=options), appliers=appliers)
        running = RunningAgent(agent, file, asyncio.create_task(agent.run(), name="agent"), logs)
        started.append(running)
        if wait:
            await kubelet.wait_until(lambda: running.task.done() or _is_up(agent, kubelet), what="the agent")
            if running.task.done():
                await running.task  # raises the error that ended it
            await running.settled(kubelet)
        return running

    with (
        structlog.testing.capture_logs() as logs,
        no_blocking() as blocking,
    ):
        # If no kubelet is left, the end of the last agent waits for gRPC's thread.
        blocking.functions["threading.Lock.acquire"].can_block_in("vdev/agent/agent.py", "_live")
        for each in blocking.functions.values():  # gRPC in memory does in the loop what gRPC does in its own thread
            each.can_block_in("tests/worlds/grpc_channel.py", {"_look"})
            each.can_block_in("tests/worlds/grpc_server.py", {"add_insecure_port", "remove_socket"})
            each.can_block_in("vdev/sim/kubelet_life.py", {"save"})
        yield start
        for running in started:
            if not running.task.done():
                await running.stop()


def _is_up(agent: Agent, kubelet: Kubelet) -> bool:
    """Whether the node shows the served devices. An open stream does not mean that the kubelet has its list.

    Of the devices of an earlier agent, nothing is allocatable any more.
    """
    served = agent.reconciler.advertised.resources
    some = served or agent.reconciler.spec.entries == ()
    shown = kubelet.node().allocatable
    return (
        bool(some) and not status.not_ready(agent) and all(shown.get(each) == of.healthy for each, of in served.items())
    )


@pytest.fixture
async def shows(kubelet):
    """Wait until the node shows a resource's capacity and, if given, how much of it is allocatable."""

    async def wait(resource, capacity, allocatable=None):
        def condition():
            node = kubelet.node()
            return node.capacity.get(resource) == capacity and (
                allocatable is None or node.allocatable.get(resource) == allocatable
            )

        await kubelet.wait_until(condition, what=f"{resource} {capacity}/{allocatable}")

    return wait


@pytest.fixture
async def api_server():
    """An API server on loopback that accepts the token `secret`."""
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def node(api_server):
    """The Node of the agent."""
    return await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")


@pytest.fixture
def events(api_server, node):
    """The Events about the node, by reason."""

    def by_reason():
        return {each["reason"]: each for each in api_server.all("events", "default")}

    return by_reason


@pytest.fixture
def account(api_server, directory):
    """The address of the API server, with a valid service account."""
    (directory / "token").write_text("secret\n")
    return ApiServerAddress(address=api_server.address, token=directory / "token")


@pytest.fixture
async def start_api(account):
    """Make clients of the API server, with short intervals and a clock that can be advanced."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(no_blocking())

        async def start(*, server=account, clock=None, **options):
            intervals = Intervals(**quick.INTERVALS | {key: options.pop(key) for key in INTERVALS & options.keys()})
            connection = Connection(server, Timing(intervals, clock or LeapClock()))
            await stack.enter_async_context(contextlib.aclosing(connection))
            return Api(connection, **options)

        yield start


@pytest.fixture
async def api(start_api):
    """A client of the API server."""
    return await start_api()


@pytest.fixture
def kubeconfig(api_server, directory):
    """A kubeconfig for the API server."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api_server.address}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file
