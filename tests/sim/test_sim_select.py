"""Properties of the choice of devices and of the device table."""

import asyncio
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim.device_manager.device_checkpoint import dump, restore
from vdev.sim.device_manager.device_choice import AdmissionError, ContainerRequest, select
from vdev.sim.device_manager.device_table import Device, DeviceTable

NPU = "acme.dev/npu"
IDS = [f"d{i}" for i in range(8)]
devices = st.dictionaries(st.sampled_from(IDS), st.tuples(st.booleans(), st.sets(st.integers(0, 2)))).map(
    lambda made: [Device(i, "Healthy" if ok else "Unhealthy", tuple(sorted(numa))) for i, (ok, numa) in made.items()]
)
some = st.sets(st.sampled_from(IDS))


@given(devices, some, some, st.integers(0, 8), st.none() | st.frozensets(st.integers(0, 2)), st.integers(0, 9))
def test_select(listed, taken, wish, count, affinity, seed):
    """The choice has the right number of free, healthy devices, for any preference; or it is refused and takes none."""
    table = DeviceTable()
    table.connected(NPU, socket="s", options=api.DevicePluginOptions())
    table.listed(NPU, listed)
    for id_ in taken:
        table.mark_allocated(NPU, id_)
    free = {device.id for device in listed if device.healthy} - taken

    async def prefer(available, must):
        assert must <= available <= free
        return set(wish)

    async def choose():
        request = ContainerRequest("pod", "main", NPU, count, affinity)
        return await select(table, request, reusable=(), rng=random.Random(seed), prefer=prefer)

    try:
        chosen = asyncio.run(choose())
    except AdmissionError:
        assert count > len(free) or not any(device.healthy for device in listed)
        assert taken == table.allocated.get(NPU, set())
    else:
        assert (count, True) == (len(chosen), chosen <= free)
        assert chosen | taken == table.allocated.get(NPU, set())


@given(devices, st.lists(some, max_size=3))
def test_checkpoint_round_trip(listed, holders):
    """After a restart, the holders are the same, and resources are known without devices."""
    table = DeviceTable()
    table.connected(NPU, socket="s", options=api.DevicePluginOptions())
    table.listed(NPU, listed)
    known = {device.id for device in listed}
    for number, ids in enumerate(holders):
        if held := ids & known:
            table.hold(f"pod-{number}", "main", NPU, held, b"\x00answer")
    table.recount()
    again = DeviceTable()
    restore(again, json.loads(dump(table))["Data"], now=5.0)
    assert (table.holders, table.allocated) == (again.holders, again.allocated)
    assert {NPU: 0} == again.view().capacity
