"""What other device plugins are known to do wrong, or did: each a patch of our own code, by name."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from ...agent.outputs.cdi.cdi_files import CdiFiles
from ...agent.outputs.list_record import ListRecord
from ...core.allocation import request
from ...core.health import thresholds
from ...core.inventory.resources import EMPTY
from ...core.retention import retain
from ...health import monitor
from ...plugin import servicer
from ...plugin.service import ResourceService
from ...sockets.socket_server import SocketServer

Patch = Callable[[], contextlib.AbstractContextManager[object]]


def patched(owner: object, name: str, *stand_in: Any, **options: Any) -> Patch:
    """What gives something a stand-in; without one it does nothing."""
    return functools.partial(mock.patch.object, owner, name, *stand_in, **options)


async def _register_again_and_again(self: Any, server: Any, _opened: int) -> bool:
    await self._clock.sleep(30)
    if not self._stopping:
        await self._register(server)
    return False


async def _register_once(self: Any, _server: Any, _opened: int) -> bool:
    while not self._stopping:
        self._wake.clear()
        await self._wait(None)
    return False


@contextlib.contextmanager
def _reuse_sockets() -> Iterator[None]:
    first = ResourceService._serving

    async def always_the_same(self: Any) -> Any:
        return self._server or await first(self)

    with (
        mock.patch.object(SocketServer, "owns_socket", return_value=True),
        mock.patch.object(ResourceService, "_serving", always_the_same),
        mock.patch.object(ResourceService, "_close"),
    ):
        yield


def _never_heal(track: Any, spec: Any, outcome: Any, now: float, **options: Any) -> Any:
    found = thresholds.observe(track, spec, outcome, now, **options)
    sick = track.health is not None and not track.health.healthy
    return replace(found, health=track.health) if sick else found


def _grant_sick(resource: Any, ids: Sequence[str]) -> request.Allocation:
    slots = tuple(resource.by_id[each] for each in ids if each in resource.by_id)
    return request.Allocation(resource, slots, tuple({slot.device.id: slot.device for slot in slots}.values()))


KNOWN: dict[str, Patch] = {
    "drops ids that pods hold": patched(
        retain, "retain", lambda _, fresh, *__, **___: retain.Retained(fresh, {}, None)
    ),
    "hands out partitions of what a pod holds": patched(retain, "_block", lambda fresh, *_: fresh),
    "lists an id in two resources": patched(retain, "_withhold", lambda _, fresh, *__: fresh),
    "registers again beside an open stream": patched(ResourceService, "_until_dropped", _register_again_and_again),
    "registers once and never again": patched(ResourceService, "_until_dropped", _register_once),
    "reuses sockets that a kubelet removed": _reuse_sockets,
    "never heals a device": patched(monitor, "observe", _never_heal),
    "forgets over a restart what it listed": patched(ListRecord, "read", return_value=EMPTY),
    "keeps no record": patched(ListRecord, "settle"),
    "writes no CDI files": patched(CdiFiles, "settle"),
    "grants what is Unhealthy": patched(servicer, "allocate", _grant_sick),
    "tells no change on an open stream": patched(servicer.Servicer, "_wake_streams"),
}
"""What other device plugins are known to do, or did."""
