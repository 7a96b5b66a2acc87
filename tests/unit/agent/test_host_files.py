"""What the plan does not need any more stays on the host while anything can name it."""

from dataclasses import replace
from pathlib import Path

import pytest

from vdev.agent.host_files import HostFiles
from vdev.aio.clock import ManualClock, Timing
from vdev.errors import HostError
from vdev.intervals import PRODUCTION
from vdev.planning.in_use import Holdings
from vdev.planning.plan import World, decide


class Names(HostFiles[str, str]):
    """Keeps the names of labels, in memory; what is in `of_pods` is held."""

    name = "keeping names"

    def __init__(self, clock, *there):
        super().__init__({Path("/names")}, Timing(clock=clock))
        self.there = set(there)
        self.of_pods = set()
        self.trouble = ""

    def wanted(self, plan):
        return plan.labels

    def present(self, wanted):
        if self.trouble:
            raise HostError(self.trouble)
        return self.there

    def named(self, plan):
        return plan.told

    def held(self, left, plan):
        return self.of_pods

    def make(self, plan, wanted, kept, gone):
        self.there = {*wanted, *kept}
        return {}


def plan(*names, told=(), complete=True):
    """A plan that needs these, made while the kubelet was told of others."""
    return replace(decide(World()), labels=dict.fromkeys(names, ""), told=told, holdings=Holdings(complete=complete))


@pytest.fixture
def clock():
    return ManualClock()


async def test_it_goes_in_the_turn_after_the_list(clock):
    """Until the kubelet is told, an answer may name it; then the next turn is due at once."""
    files = Names(clock)
    await files.settle(plan("a", "b"))
    for _ in range(2):
        await files.settle(plan("a", told=("a", "b")))
        assert {"a", "b"} == files.there
        assert clock.now() == files.again_at
    await files.settle(plan("a", told=("a",)))
    assert {"a"} == files.there
    assert files.again_at is None


async def test_it_stays_while_a_pod_has_it(clock):
    """No turn is due: one comes when the pod ends."""
    files = Names(clock)
    await files.settle(plan("a"))
    files.of_pods = {"a"}
    for _ in range(3):
        await files.settle(plan())
    assert {"a"} == files.there
    assert files.again_at is None
    files.of_pods = set()
    await files.settle(plan())
    assert set() == files.there


async def test_it_stays_while_nobody_can_tell_who_has_it(clock):
    """That is asked again after a while."""
    files = Names(clock, "left by another process")
    for _ in range(3):
        await files.settle(plan(complete=False))
    assert {"left by another process"} == files.there
    assert clock.now() + PRODUCTION.retire_settle == files.again_at
    await files.settle(plan())
    assert set() == files.there


async def test_what_cannot_be_made_is_tried_again(clock):
    """At each turn, and one comes after a pause; each thing that is wanted says why it is missing."""
    files = Names(clock)
    files.trouble = "no room"
    await files.settle(plan("a", "b"))
    assert {"a": "no room", "b": "no room"} == files.failed
    assert clock.now() + PRODUCTION.retry_host_files == files.again_at
    files.trouble = ""
    await files.settle(plan("a", "b"))
    assert {"a", "b"} == files.there
    assert {} == files.failed
