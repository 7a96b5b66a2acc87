"""The health streams: complete lists, at once and again and again, in both versions; and failures on demand."""

import asyncio

import grpc
import pytest

from tests.kit.dra import NoFaults
from tests.kit.rules import rule
from vdev.faults.effects import ClaimCall
from vdev.faults.rules import CallFault
from vdev.model.device import Health


def healths(*states):
    """Devices gpu-0, gpu-1 … with these states: an empty string if they are healthy, or why not."""
    return {f"gpu-{number}": Health(healthy=not why, reason=why) for number, why in enumerate(states)}


def shown(message):
    """Device, health and message of each."""
    return [(each.device.device_name, each.health, each.message) for each in message.devices]


@pytest.mark.parametrize("version", ["v1alpha1", "v1"])
async def test_a_stream_says_all_and_then_each_change(start_driver, kubelet, version):
    """At once when something changes; nothing where nothing does."""
    running = await start_driver(None)
    running.driver.update(healths("", "broken"))
    stream = (await kubelet.register()).watch(version)
    first = await stream.read()
    assert [("gpu-0", 1, ""), ("gpu-1", 2, "broken")] == shown(first)
    assert {"node-1"} == {each.device.pool_name for each in first.devices}
    assert {3000} == {each.health_check_timeout_seconds for each in first.devices}
    assert running.clock.wall() - 60 < first.devices[0].last_updated_time <= running.clock.wall()
    assert 1 == running.driver.health_streams
    running.driver.update(healths("", "broken"))
    running.driver.update(healths("", ""))
    assert [("gpu-0", 1, ""), ("gpu-1", 1, "")] == shown(await stream.read())
    stream.cancel()
    await running.until(lambda: running.driver.health_streams == 0)


async def test_it_is_repeated_before_it_is_forgotten(start_driver, kubelet):
    """A device reads Unknown after the time-out; the list comes three times as often."""
    running = await start_driver(None, repeat_health=1.0)
    running.driver.update(healths(""))
    stream = (await kubelet.register()).watch()
    assert 3 == (await stream.read()).devices[0].health_check_timeout_seconds
    for _ in range(3):
        running.clock.advance(1.1)
        assert 1 == len((await stream.read()).devices)


async def test_streams_stay_open_until_the_driver_ends(start_driver, kubelet):
    """Two of them, which a kubelet of 1.37 may have for a moment; also with no devices at all."""
    running = await start_driver(None)
    called = await kubelet.register()
    streams = [called.watch("v1alpha1"), called.watch("v1")]
    assert [0, 0] == [len((await each.read()).devices) for each in streams]
    assert 2 == running.driver.health_streams
    await running.stop()
    for each in streams:
        assert grpc.aio.EOF == await each.read() or (await each.code()) is not grpc.StatusCode.OK


# --- faults -----------------------------------------------------------------------------------------------------------


class Faults(NoFaults):
    """What a test sets."""

    def __init__(self):
        self.prepare = self.unprepare = self.health = None
        self.asked = self.hangs = False

    def on_call(self, call, driver):
        """As set."""
        self.asked = True
        return self.prepare if call is ClaimCall.PREPARE else self.unprepare

    def has(self, rule):
        """As long as it is set."""
        return self.prepare is not None

    def holds(self, rule):
        """While it is set."""
        self.hangs = True
        return self.prepare is not None

    def on_health(self, driver):
        """As set."""
        return self.health


def fault(delay=0.0, **effect):
    """What a rule does to calls about claims."""
    return CallFault(rule=rule(name="r", rpc=[*ClaimCall], **effect), delay=delay)


@pytest.fixture
async def faulty(api, start_driver, kubelet, allocate):
    """A driver, its faults, and two claims."""
    faults = Faults()
    running = await start_driver(api, faults=faults)
    claims = [await allocate(f"c{number}", ("r", f"gpu-{number}")) for number in (0, 1)]
    return running, faults, await kubelet.register(), claims


async def test_calls_fail_as_a_whole(faulty):
    """With code and text of the rule."""
    _, faults, called, claims = faulty
    faults.prepare = faults.unprepare = fault(error={"code": "RESOURCE_EXHAUSTED", "message": "no more"})
    for call in (called.prepare, called.unprepare):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(*claims)
        assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "no more") == (failed.value.code(), failed.value.details())


async def test_each_claim_fails(faulty):
    """With the text of the rule; nothing is prepared."""
    running, faults, called, claims = faulty
    faults.prepare = faults.unprepare = fault(answer={"claim_error": "out of order"})
    assert {"out of order"} == {each.error for each in (await called.prepare(*claims)).values()}
    assert {"out of order"} == {*(await called.unprepare(*claims)).values()}
    assert {} == running.driver.prepared


async def test_a_claim_is_skipped(faulty):
    """The kubelet says how many."""
    _, faults, called, claims = faulty
    faults.prepare = faults.unprepare = fault(answer={"skip_claim": True})
    assert {claims[1]["metadata"]["uid"]} == (await called.prepare(*claims)).keys()
    assert {claims[1]["metadata"]["uid"]} == (await called.unprepare(*claims)).keys()


async def test_another_device_is_answered(faulty):
    """One that exists nowhere, with CDI names that nobody can resolve."""
    _, faults, called, claims = faulty
    faults.prepare = fault(answer={"wrong_device": True})
    for answer in (await called.prepare(*claims)).values():
        assert {"vdev-bogus"} == {each.device_name for each in answer.devices}
        assert {"vdev-bogus"} == {cdi.partition("=")[2] for each in answer.devices for cdi in each.cdi_device_ids}


async def test_a_call_is_late(faulty):
    """By as much as the rule says."""
    running, faults, called, claims = faulty
    faults.prepare = fault(20.0)
    answer = asyncio.ensure_future(called.prepare(*claims))
    await running.until(lambda: faults.asked)
    assert {} == running.driver.prepared
    running.clock.advance(20)
    assert {""} == {each.error for each in (await answer).values()}


async def test_a_call_hangs_until_the_rule_ends(faulty):
    """Then it fails, and the next one does not."""
    running, faults, called, claims = faulty
    faults.prepare = fault(hang=True)
    answer = asyncio.ensure_future(called.prepare(*claims))
    await running.until(lambda: faults.hangs)
    await called.unprepare(*claims)
    assert not answer.done()
    faults.prepare = None
    running.driver.poke()
    with pytest.raises(grpc.aio.AioRpcError, match="the call hung until the fault 'r' ended"):
        await answer
    assert {""} == {each.error for each in (await called.prepare(*claims)).values()}


async def test_health_streams_end_or_are_silent(faulty):
    """Until the rule ends."""
    running, faults, called, _ = faulty
    running.driver.update(healths(""))
    stream = called.watch()
    await stream.read()
    faults.health = "silent"
    running.driver.update(healths("broken"))
    faults.health = None
    running.driver.poke()
    assert [("gpu-0", 2, "broken")] == shown(await stream.read())
    faults.health = "ended"
    running.driver.poke()
    assert grpc.aio.EOF == await stream.read()
    assert grpc.aio.EOF == await called.watch().read()
