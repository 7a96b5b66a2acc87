"""A plugin that runs in the test's process, with the interface of a plugin process. It starts and stops quickly."""

import argparse
import asyncio

from tests.kit import quick
from vdev.agent.agent import Agent
from vdev.aio.clock import LeapClock
from vdev.cli import options
from vdev.intervals import Intervals
from vdev.sim.scenarios.scenario import ScenarioError

GRACE = 0.5  # seconds; longer than the kubelet of `quick` needs to load its pods


class AgentHere:
    """The agent of `vdev run` with these flags and shorter intervals. Start and stop it from one task."""

    def __init__(self, flags):
        parser = argparse.ArgumentParser()
        options.add_all(parser)
        intervals = Intervals(**quick.INTERVALS | {"kubelet_grace": GRACE})
        chosen = options.read(parser.parse_args(flags), {})
        self._options = chosen.model_copy(update={"intervals": intervals, "clock": LeapClock()})
        self._agent = self._task = None

    @classmethod
    def at(cls, places):
        """Create the agent of a node's places, as `VdevNode` needs it."""
        return cls(places.flags())

    async def start(self):
        """Start the agent without waiting until it is ready."""
        self._agent = Agent(self._options)
        self._task = asyncio.create_task(self._agent.run(), name="agent")

    async def stop(self):
        """Stop the agent as SIGTERM does. No effect if it is not running."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._agent.stop()
        async with asyncio.timeout(30):
            assert 0 == await task

    async def check(self):
        """Raise ScenarioError if the agent has exited."""
        if self._task is not None and self._task.done():
            raise ScenarioError(f"the plugin ended: {self._task.exception() or self._task.result()}")
