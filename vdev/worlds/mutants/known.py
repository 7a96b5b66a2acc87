"""What other device plugins are known to do wrong, or did: each a patch of our own code, by name."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from ...agent.outputs.cdi.cdi_files import CdiFiles
from ...agent.outputs.record import Record
from ...core.allocation import request
from ...core.health import thresholds
from ...core.inventory.resources import EMPTY
from ...core.retention import retain
from ...health import monitor
from ...plugin import servicer
from ...plugin.service import ResourceService
from ...sockets.server import SocketServer

Patch = Callable[[], contextlib.AbstractContextManager[object]]


def _drop_held() -> contextlib.AbstractContextManager[object]:
    def dropped(_served: object, fresh: Any, *_: object, **__: object) -> retain.Retained:
        return retain.Retained(fresh, {}, None)

    return mock.patch.object(retain, "retain", dropped)


def _give_parts_away() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(retain, "_block", lambda fresh, *_: fresh)


def _list_twice() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(retain, "_withhold", lambda _served, fresh, *_: fresh)


def _register_again_and_again() -> contextlib.AbstractContextManager[object]:
    async def until(self: Any, server: Any, _opened: int) -> bool:
        await self._clock.sleep(30)
        if not self._stopping:
            await self._register(server)
        return False

    return mock.patch.object(ResourceService, "_until_dropped", until)


def _register_once() -> contextlib.AbstractContextManager[object]:
    async def until(self: Any, _server: Any, _opened: int) -> bool:
        while not self._stopping:
            self._wake.clear()
            await self._wait(None)
        return False

    return mock.patch.object(ResourceService, "_until_dropped", until)


@contextlib.contextmanager
def _reuse_sockets() -> Iterator[None]:
    first = ResourceService._serving

    async def always_the_same(self: Any) -> Any:
        return self._server or await first(self)

    async def nothing(_: Any) -> None:
        pass

    with (
        mock.patch.object(SocketServer, "owns_socket", return_value=True),
        mock.patch.object(ResourceService, "_serving", always_the_same),
        mock.patch.object(ResourceService, "_close", nothing),
    ):
        yield


def _never_heal() -> contextlib.AbstractContextManager[object]:
    observe = thresholds.observe

    def once(track: Any, spec: Any, outcome: Any, now: float, **options: Any) -> Any:
        found = observe(track, spec, outcome, now, **options)
        sick = track.health is not None and not track.health.healthy
        return replace(found, health=track.health) if sick else found

    return mock.patch.object(monitor, "observe", once)


def _forget_over_restarts() -> contextlib.AbstractContextManager[object]:
    async def nothing(_: object) -> Any:
        return EMPTY

    return mock.patch.object(Record, "read", nothing)


def _keep_no_record() -> contextlib.AbstractContextManager[object]:
    async def nothing(*_: object) -> None:
        pass

    return mock.patch.object(Record, "settle", nothing)


def _no_cdi_files() -> contextlib.AbstractContextManager[object]:
    async def nothing(*_: object) -> None:
        pass

    return mock.patch.object(CdiFiles, "settle", nothing)


def _grant_sick() -> contextlib.AbstractContextManager[object]:
    def grant(resource: Any, ids: Sequence[str]) -> request.Allocation:
        slots = tuple(resource.by_id[each] for each in ids if each in resource.by_id)
        return request.Allocation(resource, slots, tuple({slot.device.id: slot.device for slot in slots}.values()))

    return mock.patch.object(servicer, "allocate", grant)


def _say_nothing_new() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(servicer.Servicer, "_wake_streams")


KNOWN: dict[str, Patch] = {
    "drops ids that pods hold": _drop_held,
    "hands out partitions of what a pod holds": _give_parts_away,
    "lists an id in two resources": _list_twice,
    "registers again beside an open stream": _register_again_and_again,
    "registers once and never again": _register_once,
    "reuses sockets that a kubelet removed": _reuse_sockets,
    "never heals a device": _never_heal,
    "forgets over a restart what it listed": _forget_over_restarts,
    "keeps no record": _keep_no_record,
    "writes no CDI files": _no_cdi_files,
    "grants what is Unhealthy": _grant_sick,
    "tells no change on an open stream": _say_nothing_new,
}
"""What other device plugins are known to do, or did."""
