"""The kubelet's plugin watcher: finds registration sockets below plugins_registry and registers their plugins.

It scans the directory every second (`Timings.look`), deregisters removed sockets, then registers new ones. Failures are
retried with exponential back-off. A recreated socket is a new plugin, but its path keeps the back-off.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

from ...pb import pluginregistration_v1_pb2 as api
from ...pb import pluginregistration_v1_pb2_grpc as api_grpc
from ..connection import CallError, Connection, RegistrationError, call_errors
from ..device_manager.registration_server import Registry
from ..dra.driver_registry import DriverRegistry
from ..kubelet_life import Life

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 122.0
_UNQUOTED = "!$&'()*+,;=:[]@"  # characters that Go does not quote in the authority (the socket's path)
_Stamp: TypeAlias = tuple[int, int, int]
Handler: TypeAlias = Registry | DriverRegistry


@dataclass(frozen=True, slots=True)
class _Instance:
    stamp: _Stamp
    handler: Handler
    name: str
    endpoint: str


class PluginWatcher:
    """Registers the plugins whose sockets are in a directory. `handlers` are by plugin type."""

    def __init__(self, handlers: Mapping[str, Handler], life: Life) -> None:
        self._directory = str(life.kubelet.paths.plugins_registry)
        self._handlers = handlers
        self._life = life
        self._registered: dict[str, _Instance] = {}  # by path
        self._busy: set[str] = set()  # paths with a registration in progress
        self._pauses: dict[str, tuple[float, float]] = {}  # length and end of the back-off, by path

    async def run(self) -> None:
        """Register and deregister plugins until cancelled."""
        while True:
            await self._reconcile()
            await self._life.clock.sleep(self._life.timings.look)

    async def _reconcile(self) -> None:
        found = await asyncio.to_thread(_sockets, self._directory)
        for path, instance in list(self._registered.items()):
            if found.get(path) != instance.stamp and path not in self._busy:  # one operation on a path at a time
                del self._registered[path]
                await instance.handler.deregister(instance.name, instance.endpoint)
        for path, stamp in found.items():
            waits = path in self._pauses and self._life.clock.now() < self._pauses[path][1]
            if path not in self._registered and path not in self._busy and not waits:
                self._busy.add(path)
                self._life.spawn(self._try(path, stamp), f"register plugin {path}")

    async def _try(self, path: str, stamp: _Stamp) -> None:
        """Register a plugin. After a failure, report it and start a longer pause."""
        try:
            problem = await self._register(path, stamp)
        finally:
            self._busy.discard(path)
        before = self._pauses.pop(path, None)
        if problem:
            seconds = min(before[0] * 2, _LONGEST_PAUSE) if before else _FIRST_PAUSE
            self._pauses[path] = seconds, self._life.clock.now() + seconds
            text = f"refused ({path}): {problem}"
            self._life.journal.note("driverRefused", "plugin", text, socket=path, error=problem)

    async def _register(self, path: str, stamp: _Stamp) -> str:
        """Call GetInfo, register the plugin, and call NotifyRegistrationStatus. Returns why this failed, or ""."""
        timings, call = self._life.timings, "dial"
        connection = Connection(path, authority=quote(path, safe=_UNQUOTED))
        stub: api_grpc.RegistrationAsyncStub = api_grpc.RegistrationStub(connection.channel)
        try:
            await connection.dial(timings.dial)
            with call_errors():
                call = "GetInfo"
                info = await stub.GetInfo(api.InfoRequest(), timeout=timings.get_info)
                problem = await self._take(path, stamp, info)
                call = "NotifyRegistrationStatus"
                status = api.RegistrationStatus(plugin_registered=not problem, error=problem)
                await stub.NotifyRegistrationStatus(status, timeout=timings.notify)
                return problem
        except CallError as error:
            if instance := self._registered.pop(path, None):
                await instance.handler.deregister(instance.name, instance.endpoint)
            return f"{call} failed: {error}"
        finally:
            await connection.close()

    async def _take(self, path: str, stamp: _Stamp, info: api.PluginInfo) -> str:
        """Register a plugin with the handler of its type. Returns the kubelet's error, or an empty text."""
        handler = self._handlers.get(info.type)
        if handler is None:
            return f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}"
        endpoint, versions = info.endpoint or path, list(info.supported_versions)
        step = "validation"
        try:
            handler.validate(info.name, endpoint, versions)
            step = "registration"
            self._registered[path] = _Instance(stamp, handler, info.name, endpoint)
            await handler.register(info.name, endpoint, versions)
        except RegistrationError as error:
            self._registered.pop(path, None)
            return f"RegisterPlugin error -- plugin {step} failed with err: {error}"
        return ""


def _sockets(directory: str) -> dict[str, _Stamp]:
    """Return the sockets below a directory: the identity of each file by path. Blocks."""
    found: dict[str, _Stamp] = {}
    for here, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for path in (os.path.join(here, name) for name in files if not name.startswith(".")):
            with contextlib.suppress(FileNotFoundError):
                seen = os.lstat(path)
                if stat.S_ISSOCK(seen.st_mode):
                    found[path] = seen.st_dev, seen.st_ino, seen.st_mtime_ns
    return found
