"""The wall clock is set while the plugin runs and between two runs: held devices do not depend on it."""

import json

import pytest

from vdev.agent import status
from vdev.aio.clock import LeapClock
from vdev.sim import manifest

TWO, ONE = "acme.dev/mig-2x", "acme.dev/mig-1x"
CONFIG = """
flags: {{migStrategy: mixed, plugin: {{deviceListStrategy: [envvar, cdi-cri]}}}}
devices:
  - name: acme
    resource: acme.dev/npu
    virtual:
      count: 1
      memory: 4Gi
      partitioning: {{slices: 4, profiles: {{1x: {{slices: 1, memory: 1Gi}}, 2x: {{slices: 2, memory: 2Gi}}}}}}
    partitions: {{"0": [{layout}]}}
    health: {{probe: file, path: {probed}, content: ok, interval: 50ms}}
"""
BEGIN, NOW, LATE = 1.0, 1_800_000_000.0, 4_000_000_000.0  # a board without a battery, today, and the year 2096


class SetClock(LeapClock):
    """A clock whose wall time is set. Its monotonic time goes on."""

    def __init__(self, wall):
        super().__init__()
        self.shown = wall

    def wall(self):
        """The time that was set."""
        return self.shown


@pytest.mark.parametrize("moments", [(NOW, BEGIN, LATE), (LATE, NOW, BEGIN)])
async def test_a_clock_that_jumps_releases_nothing(kubelet, start_agent, shows, directory, moments):
    """It jumps in both directions, while the plugin runs and between two runs."""
    first, then, next_start = moments
    probed = directory / "probed"
    probed.write_text("ok")
    clock = SetClock(first)
    agent = await start_agent(CONFIG.format(layout="2x@0", probed=probed), clock=clock)
    await kubelet.run_pod(manifest("holder", {TWO: 1}))
    clock.shown = then
    agent.edit(CONFIG.format(layout="1x@0, 1x@2", probed=probed))
    await shows(ONE, 2, 1)
    probed.write_text("no")
    await shows(ONE, 2, 0)
    probed.write_text("ok")
    await shows(ONE, 2, 1)
    assert then == agent.agent.config.applied_at
    await agent.stop()
    clock = SetClock(next_start)
    agent = await start_agent(CONFIG.format(layout="1x@0, 1x@1, 1x@2", probed=probed), clock=clock)
    await shows(ONE, 3, 1)
    clock.shown = first
    assert [] == status.not_ready(agent.agent)
    assert json.dumps(status.status(agent.agent))
    await kubelet.delete_pod("holder")
    await shows(ONE, 3, 3)
    await kubelet.wait_until(lambda: TWO not in agent.agent.reconciler.advertised.resources, what="the partition to go")
    assert [] == kubelet.errors
