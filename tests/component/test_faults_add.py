"""Rules that people add, against those in force."""

import pytest

from vdev.aio.clock import ManualClock
from vdev.errors import UsageError

CONFIG = """version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 4}}
faults:
  rules:
    - {name: sick, devices: ["acme/*"], at: 10s, for: 10s, health: Unhealthy}
"""


@pytest.fixture
async def run(start_agent):
    """A plugin with a rule, the clock, and what adds another."""
    clock = ManualClock(1000.0)
    started = await start_agent(CONFIG, clock=clock, fault_injection=True)

    async def add(rule):
        return await started.agent.faults.commands["fault-add"]({"rules": rule})

    return clock, add


async def test_a_rule_against_one_in_force_is_refused(run):
    """The sentence names both rules."""
    _, add = run
    with pytest.raises(UsageError, match="'sick', from configuration, and 'well' contradict each other"):
        await add("{name: well, devices: [acme-0], health: Healthy}")


async def test_a_rule_after_one_that_is_over_is_taken(run):
    """Times count from when each rule was read."""
    clock, add = run
    clock.advance(30)
    assert {"added": ["well"], "warnings": []} == await add("{name: well, devices: [acme-0], health: Healthy}")
