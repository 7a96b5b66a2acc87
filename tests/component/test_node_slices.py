"""The slices of a node as the API server has them, also when it is another one than before."""

import asyncio
import contextlib

from vdev.agent.node_objects import NodeSlices
from vdev.aio.clock import LeapClock, Timing
from vdev.kube import Changed, Listed


def slice_(name, version):
    """A slice of this version."""
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "spec": {"nodeName": "n"}}


class Told:
    """An API server that tells what it is given."""

    def __init__(self):
        self.changes = asyncio.Queue()

    def follow(self, _kind, *, fields):
        """The changes, forever."""
        assert "spec.nodeName=n" == fields

        async def told():
            while True:
                yield await self.changes.get()

        return contextlib.aclosing(told())


async def test_a_list_of_another_server_takes_what_the_old_one_had():
    """Its versions begin anew, so what is known must not pass for newer; what was just written must."""
    news, api = asyncio.Event(), Told()
    slices = NodeSlices("n", api, on_change=news.set, timing=Timing(clock=LeapClock()))
    task = asyncio.create_task(slices.run())

    async def tell(change):
        news.clear()
        api.changes.put_nowait(change)
        await news.wait()
        return set(await slices.seen())

    assert set() == await tell(Listed((), "100"))
    slices.wrote(slice_("a", 120))
    assert {"a"} == await tell(Listed((), "110"))
    assert {"a"} == await tell(Changed(slice_("a", 120)))
    assert set() == await tell(Listed((), "7"))
    task.cancel()
    await asyncio.wait([task])
