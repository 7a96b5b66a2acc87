"""The five RPCs of a device plugin: answers, error codes, and streams."""

import asyncio

import grpc
import pytest

from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as rpc

NPU = "acme.dev/npu"
CONFIG = """
version: v1
devices:
  - name: acme
    resource: acme.dev/npu
    virtual: {count: 4, numa: [0, 0, 1, 1]}
  - {name: sink, resource: example.com/sink, glob: /dev/null}
"""


@pytest.fixture
async def client(start_agent):
    """A stub for the socket of acme.dev/npu; `agent` is its plugin."""
    agent = await start_agent(CONFIG)
    async with grpc.aio.insecure_channel(f"unix:{agent.agent.lists.services[NPU].socket}") as channel:
        stub = rpc.DevicePluginStub(channel)
        stub.agent = agent
        yield stub


def allocate(*containers):
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers])


async def test_allocate_answers_each_container_in_order(client):
    """A request may have several containers."""
    answer = await client.Allocate(allocate(["acme-1"], ["acme-0", "acme-3"]))
    variable = "ACME_DEV_NPU_VISIBLE_DEVICES"
    assert ["acme-1", "acme-0,acme-3"] == [each.envs[variable] for each in answer.container_responses]


SICK = CONFIG + "faults: {rules: [{name: sick, devices: [acme/0], health: Unhealthy, reason: broke}]}\n"
OTHER = CONFIG.replace("[0, 0, 1, 1]}", "[0, 0, 1, 1]}\n    container: {env: {MODE: other}}")


async def test_a_repeated_allocate_follows_the_present_state(client, kubelet):
    """A device that has failed is refused. If the entry's container edits have changed, so does the answer."""
    request = allocate(["acme-0"])
    first = await client.Allocate(request)
    client.agent.edit(SICK)
    await client.agent.serves(2, kubelet)
    with pytest.raises(grpc.aio.AioRpcError, match="broke"):
        await client.Allocate(request)
    client.agent.edit(CONFIG)
    await client.agent.serves(3, kubelet)
    assert first == await client.Allocate(request)
    client.agent.edit(OTHER)
    await client.agent.serves(4, kubelet)
    assert "other" == (await client.Allocate(request)).container_responses[0].envs["MODE"]


async def test_malformed_bytes_are_an_error_of_one_call(client):
    """The next call is answered."""
    async with grpc.aio.insecure_channel(f"unix:{client.agent.agent.lists.services[NPU].socket}") as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="Error parsing message"):
            await channel.unary_unary("/v1beta1.DevicePlugin/Allocate")(b"\x0a\xff")
    assert await client.Allocate(allocate(["acme-0"]))


REFUSED = [
    (
        [["nope"]],
        grpc.StatusCode.NOT_FOUND,
        "unknown device: 'nope' is not a device of acme.dev/npu; its devices: acme-0",
    ),
    ([["acme-0"], ["nope"]], grpc.StatusCode.NOT_FOUND, "'nope'"),
    ([["acme-0", "acme-0"]], grpc.StatusCode.INVALID_ARGUMENT, "names device 'acme-0' twice"),
    ([[]], grpc.StatusCode.INVALID_ARGUMENT, "names no device"),
]


async def test_allocate_errors_have_a_code_and_a_message(client):
    """A pod's event shows the message."""
    for containers, code, text in REFUSED:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.Allocate(allocate(*containers))
        assert code is refused.value.code()
        assert text in refused.value.details()


async def test_allocate_refuses_an_unhealthy_device(kubelet, client, shows):
    """The message has the reason."""
    client.agent.edit(CONFIG.replace("count: 4, numa: [0, 0, 1, 1]", "count: 1"))
    await shows(NPU, 4, 1)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.Allocate(allocate(["acme-3"]))
    assert grpc.StatusCode.FAILED_PRECONDITION is refused.value.code()
    assert "device 'acme-3' of acme.dev/npu is unhealthy: removed" in refused.value.details()


async def test_preferred_devices_are_of_one_numa_node(client):
    """The answer includes the required device and another one of its NUMA node."""
    request = pb.PreferredAllocationRequest(
        container_requests=[
            pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=["acme-0", "acme-1", "acme-2", "acme-3"],
                must_include_deviceIDs=["acme-3"],
                allocation_size=2,
            )
        ]
    )
    answer = await client.GetPreferredAllocation(request)
    assert {"acme-2", "acme-3"} == set(answer.container_responses[0].deviceIDs)


async def test_a_slow_reader_gets_the_newest_list(client):
    """Each list is complete, so a slow stream skips to the latest one."""
    stream = client.ListAndWatch(pb.Empty())
    await stream.read()
    for count in range(5, 30):
        client.agent.edit(CONFIG.replace("count: 4, numa: [0, 0, 1, 1]", f"count: {count}"))
        await asyncio.sleep(0)
    while len((await stream.read()).devices) != 29:
        pass
    stream.cancel()
