"""A second registration of a resource, in 1.36 and in 1.37."""

import grpc
import pytest

from vdev.sim import Kubelet, ManualClock

NPU = "acme.dev/npu"


@pytest.fixture
async def newer(short_dir):
    """A kubelet with 1.37's behavior."""
    async with Kubelet(short_dir, clock=ManualClock(), compat="1.37") as kubelet:
        yield kubelet


@pytest.mark.parametrize(("pre_start", "preferred"), [(False, False), (True, True)])
async def test_reregistration(kubelet, plugins, shows, pre_start, preferred):
    """Conformance 30: a second and a third instance with other devices replace the list, whatever their options."""
    await plugins(NPU, ["d1", "d2"], pre_start=pre_start, preferred=preferred)
    await plugins(NPU, ["d1", "d2", "d3"], pre_start=pre_start, preferred=preferred)
    await shows(kubelet, NPU, 3, 3)
    await plugins(NPU, ["d3"], pre_start=pre_start, preferred=preferred)
    await shows(kubelet, NPU, 1, 1)


async def test_last_sender_wins(kubelet, plugins, shows):
    """With two open streams, the last list counts."""
    old = await plugins(NPU, ["d1"])
    await plugins(NPU, ["d1", "d2"])
    old.list("d1", "d2", "d3")
    await shows(kubelet, NPU, 3, 3)


async def test_old_stream_takes_the_new_connection_down(kubelet, plugins, shows):
    """1.36: the end of the old instance's stream closes the new instance's connection."""
    old = await plugins(NPU, ["d1"])
    new = await plugins(NPU, ["d1", "d2"])
    await old.stop()
    await shows(kubelet, NPU, 2, 0)
    await kubelet.wait_until(lambda: not new.streams)
    assert "registered-while-streaming" in [finding.code for finding in kubelet.findings]


async def test_old_stream_leaves_the_new_connection_alone(newer, plugins, shows):
    """1.37: the end of the old instance's stream changes nothing for the new instance."""
    old = await plugins(NPU, ["d1"], on=newer)
    new = await plugins(NPU, ["d1", "d2"], on=newer)
    await old.stop()
    new.list("d1", "d2", "d3")
    await shows(newer, NPU, 3, 3)
    assert 1 == len(new.streams)


async def test_new_stream_ends_in_1_37(newer, plugins, shows):
    """1.37: the end of the new instance's stream makes the devices unhealthy, even if the old one is open."""
    await plugins(NPU, ["d1"], on=newer)
    new = await plugins(NPU, ["d1", "d2"], on=newer)
    await new.stop()
    await shows(newer, NPU, 2, 0)


async def test_failed_reregistration_orphans_the_old_stream(kubelet, plugins, shows, refusal):
    """1.36: after a failed second registration, the kubelet does not notice the end of the first plugin."""
    old = await plugins(NPU, ["d1"])
    new = await plugins(NPU, ["d1"], register=False)

    async def fail():
        raise refusal(grpc.StatusCode.UNAVAILABLE, "not yet")

    new.answer_options = fail
    with pytest.raises(grpc.aio.AioRpcError, match="failed to get device plugin options"):
        await new.register()
    await old.stop()
    await kubelet.wait_until(lambda: not old.streams)
    third = await plugins("acme.dev/other", ["o1"])
    third.list("o1", "o2")
    await shows(kubelet, "acme.dev/other", 2, 2)
    await shows(kubelet, NPU, 1, 1)
