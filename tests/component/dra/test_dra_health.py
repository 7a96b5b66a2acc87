"""The health streams: complete lists, at once, at each change and at intervals, in both versions."""

import grpc
import pytest

from vdev.model.device import Health


def healths(*states):
    """Devices gpu-0, gpu-1 … with these reasons of Unhealthy; empty means healthy."""
    return {f"gpu-{number}": Health(healthy=not why, reason=why) for number, why in enumerate(states)}


def shown(message):
    """Name, health and message of each device."""
    return [(each.device.device_name, each.health, each.message) for each in message.devices]


@pytest.mark.parametrize("version", ["v1alpha1", "v1"])
async def test_a_stream_has_the_complete_list_and_each_change(start_driver, kubelet, version):
    """An update without a change sends nothing."""
    running = await start_driver(None)
    running.publish(healths("", "broken"))
    stream = (await kubelet.register()).watch(version)
    first = await stream.read()
    assert [("gpu-0", 1, ""), ("gpu-1", 2, "broken")] == shown(first)
    assert {"node-1"} == {each.device.pool_name for each in first.devices}
    assert {3000} == {each.health_check_timeout_seconds for each in first.devices}
    assert running.clock.wall() - 60 < first.devices[0].last_updated_time <= running.clock.wall()
    assert 1 == running.driver.servicer.health_streams
    running.publish(healths("", "broken"))
    running.publish(healths("", ""))
    assert [("gpu-0", 1, ""), ("gpu-1", 1, "")] == shown(await stream.read())
    stream.cancel()
    await running.until(lambda: running.driver.servicer.health_streams == 0)


async def test_the_list_is_repeated_before_the_timeout(start_driver, kubelet):
    """The kubelet shows a device as Unknown after the timeout, so the list is sent three times in that time."""
    running = await start_driver(None, repeat_health=1.0)
    running.publish(healths(""))
    stream = (await kubelet.register()).watch()
    assert 3 == (await stream.read()).devices[0].health_check_timeout_seconds
    for _ in range(3):
        running.clock.advance(1.1)
        assert 1 == len((await stream.read()).devices)


async def test_streams_stay_open_until_the_driver_ends(start_driver, kubelet):
    """Two streams, which a kubelet of 1.37 may have for a moment."""
    running = await start_driver(None)
    called = await kubelet.register()
    streams = [called.watch("v1alpha1"), called.watch("v1")]
    assert [3, 3] == [len((await each.read()).devices) for each in streams]
    assert 2 == running.driver.servicer.health_streams
    await running.stop()
    for each in streams:
        assert grpc.aio.EOF == await each.read() or (await each.code()) is not grpc.StatusCode.OK


# --- faults -----------------------------------------------------------------------------------------------------------
