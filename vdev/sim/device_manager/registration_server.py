"""The registered device plugins and the connections to them.

Plugins register with the service on kubelet.sock, or with a socket in plugins_registry, which the plugin watcher finds.
Registrations are validated in the kubelet's order and with its error texts. The plugin is dialed before Register
returns. Each ListAndWatch stream has a task. Kubernetes 1.36 keys connections by the resource alone, so the end of an
old instance's stream closes the connection of the new instance; 1.37 keys them by socket.
"""

import asyncio
import posixpath
import re
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from ...model.names import resource_name_problem
from ...pb import deviceplugin_v1beta1_pb2 as api
from ...pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from .. import lint
from ..connection import CallError, Connection, RegistrationError, call_errors
from ..kubelet_life import Compat, Life
from ..lint import LIST_LIMIT_BYTES, error, warning
from .device_table import Endpoint

VERSION = "v1beta1"
RENEWAL_SECONDS = 10.0  # after the end of a stream
_TOO_LARGE = re.compile(r"code = ResourceExhausted .*(\((\d+) vs\. \d+\))")


class PluginClient(Connection):
    """The connection of one registration, with the parameters of the real client.

    It dials for up to 10 s, with the authority `localhost`, a receive limit of 4 MiB and no keepalive. The real
    kubelet sets no deadline for Allocate and GetPreferredAllocation. Here, a slow call is a finding, and a call that
    exceeds `Timings.bound` is cancelled.
    """

    def __init__(self, resource: str, socket: str, life: Life) -> None:
        limits = ("grpc.max_receive_message_length", LIST_LIMIT_BYTES), ("grpc.max_send_message_length", -1)
        super().__init__(socket, *limits)
        self.resource = resource
        self.streaming = False  # whether ListAndWatch is open
        self.stub: api_grpc.DevicePluginAsyncStub = api_grpc.DevicePluginStub(self.channel)
        self._timings = life.timings
        self._report = life.journal.find

    async def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """Call a unary method. The call may take up to `Timings.bound`. Raises CallError."""
        text = f"{method} takes longer than {self._timings.slow:g} s; every pod of the node is waiting for it"
        finding = warning("slow-rpc", self.resource, text)
        slow = asyncio.get_running_loop().call_later(self._timings.slow, self._report, [finding])
        try:
            async with asyncio.timeout(self._timings.bound):
                with call_errors():
                    return await getattr(self.stub, method)(request, timeout=timeout)
        except TimeoutError:
            text = f"{method} did not answer within {self._timings.bound:g} s; the real kubelet would wait forever"
            self._report([error("hung-rpc", self.resource, text)])
            raise CallError("rpc error: code = DeadlineExceeded desc = context deadline exceeded") from None
        finally:
            slow.cancel()


class Registry(api_grpc.RegistrationServicer):
    """Handles registrations and keeps the connections to plugins.

    It implements the registration service and the plugin watcher's handler for the type DevicePlugin. The name of such
    a plugin is its resource.
    """

    def __init__(self, life: Life) -> None:
        self._table = life.table
        self._life = life
        self._journal = life.journal
        self._directory = str(life.kubelet.paths.device_plugins)  # of kubelet.sock
        self._is_1_37 = life.kubelet.compat is Compat.V1_37
        self._clients: dict[tuple[str, str], PluginClient] = {}  # the kubelet's connections; see `_key`
        self._opened: list[PluginClient] = []  # all open connections
        self._watched: set[tuple[str, str]] = set()  # plugins of plugins_registry: resource and socket

    async def Register(
        self, request: api.RegisterRequest, context: grpc.aio.ServicerContext[api.RegisterRequest, api.Empty]
    ) -> api.Empty:
        """Register a plugin. The kubelet calls the plugin before this method returns."""
        try:
            await self._register(request)
        except RegistrationError as refused:
            resource, endpoint, why = request.resource_name, request.endpoint, str(refused)
            text = f"{resource or 'unnamed'} refused ({endpoint}): {why}"
            self._journal.note("registrationFailed", "plugin", text, resource=resource, endpoint=endpoint, error=why)
            await context.abort(grpc.StatusCode.UNKNOWN, why)
        return api.Empty()

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._opened))

    async def _register(self, request: api.RegisterRequest) -> None:
        resource = request.resource_name
        self._journal.metrics.registrations[resource] += 1
        text = f'requested API version "{request.version}" is not supported by kubelet. '
        self._check(resource, [request.version], f'{text}Supported version is ["{VERSION}"]')
        self._journal.find(lint.registration(request, self._directory, streams_open=self._streams(resource)))
        # As with Go's filepath.Join, an absolute endpoint stays below the directory, "" is the directory, ".." escapes.
        socket = posixpath.normpath(f"{self._directory}/{request.endpoint}")
        if resource in self._table.endpoints:
            advice = "a kubelet that starts removes all sockets of the directory; serve again before you register"
        else:
            advice = "serve before you register"
        text = f"{resource} called Register, but nothing answers at {request.endpoint}: {advice}"

        def report() -> None:
            fields = {"resource": resource, "endpoint": request.endpoint}
            self._journal.note("registrationWaits", "plugin", text, **fields)

        timer = asyncio.get_running_loop().call_later(self._life.timings.slow, report)
        try:
            options = await self._connect(resource, socket, endpoint=request.endpoint)
        finally:
            timer.cancel()
        self._journal.find(lint.options(request, options))

    def _check(self, resource: str, versions: Sequence[str], wrong_version: str, *, place: str = "") -> None:
        """Check the versions and the name of a resource. Raises RegistrationError."""
        if VERSION not in versions:
            given = " ".join(map(repr, versions)) or "none"
            text = f"registered with API version {given}, expected {VERSION!r}; the kubelet refuses it"
            self._journal.find([error("api-version", resource, text)])
            raise RegistrationError(wrong_version)
        if resource_name_problem(resource):
            text = f"registered as {resource!r}, which is not the name of an extended resource; expected DOMAIN/NAME"
            text += ", with a domain outside of kubernetes.io; the kubelet refuses it"
            self._journal.find([error("resource-name", "", text)])
            raise RegistrationError(f'{place}the ResourceName "{resource}" is invalid')

    # --- plugins_registry ---------------------------------------------------------------------------------------------

    def validate(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Check a GetInfo response. Raises RegistrationError."""
        text = f"manager version, {VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
        self._check(name, versions, text, place="invalid name of device plugin socket: ")
        streams = self._streams(name)
        self._journal.find(lint.watched_registration(name, endpoint, self._directory, streams_open=streams))

    async def register(self, name: str, endpoint: str, versions: list[str]) -> None:  # 1.36 has one version
        """Connect to a plugin. `endpoint` is a full path. Raises RegistrationError."""
        await self._connect(name, _path(endpoint), endpoint=endpoint)
        self._watched.add((name, _path(endpoint)))

    async def deregister(self, name: str, endpoint: str) -> None:
        """Disconnect a plugin whose registration socket was removed."""
        self._watched.discard((name, _path(endpoint)))
        victim = self._clients.pop(self._key(name, _path(endpoint)), None)
        if victim is not None:
            await self._close(victim, f"the registration socket for {endpoint} is gone")

    def _find_not_renewed(self, ended: PluginClient) -> None:
        """Report a plugin whose stream ended and which did not recreate its registration socket."""
        resource, socket = ended.resource, ended.socket
        if (resource, socket) in self._watched and not self._streams(resource):
            text = f"its ListAndWatch stream at {socket} ended {RENEWAL_SECONDS:g} s ago and its registration socket"
            text += " remains; the kubelet registers it again only after that socket was removed and created again"
            self._journal.find([warning("not-registered-anew", resource, text)])

    # --- connections --------------------------------------------------------------------------------------------------

    def _streams(self, resource: str) -> int:
        """Return the number of open ListAndWatch streams of a resource."""
        return sum(client.streaming for client in self._opened if client.resource == resource)

    async def _connect(self, resource: str, socket: str, *, endpoint: str) -> api.DevicePluginOptions:
        """Connect to a plugin and watch its device list. Raises RegistrationError.

        `endpoint` is the plugin's name for its socket.
        """
        client = PluginClient(resource, socket, self._life)
        self._opened.append(client)
        self._clients[self._key(resource, socket)] = client  # the stream of an old client stays open
        step = "failed to dial device plugin"
        try:
            if not await client.dial(self._life.timings.dial):
                text = f"nothing listened on {socket} when it registered; serve first: the kubelet dials for 10 s"
                self._journal.find([warning("registered-before-serving", resource, text)])
            step = "failed to get device plugin options"
            options: api.DevicePluginOptions = await client.call("GetDevicePluginOptions", api.Empty())
        except (CallError, asyncio.CancelledError) as ended:
            self._clients.pop(self._key(resource, socket), None)
            if isinstance(ended, CallError):
                raise RegistrationError(f"{step}: {ended}") from ended
            raise
        again = resource in self._table.endpoints
        # The health sets remain until the plugin's first list.
        self._table.endpoints[resource] = Endpoint(client, options)
        self._life.spawn(self._run(client), f"list-and-watch {resource}")
        text = f"{resource} registered{' again' if again else ''} ({endpoint}"
        text += f"{', pre-start' * options.pre_start_required}"
        text += f"{', preferred allocation' * options.get_preferred_allocation_available})"
        shown = {
            "preStartRequired": options.pre_start_required,
            "getPreferredAllocationAvailable": options.get_preferred_allocation_available,
        }
        self._journal.note(
            "registered", "plugin", text, resource=resource, endpoint=endpoint, options=shown, again=again
        )
        return options

    async def _run(self, client: PluginClient) -> None:
        """Run ListAndWatch, without retries. When it ends, close the connection with the same key."""
        resource, socket = client.resource, client.socket
        client.streaming = True
        why = "EOF"
        try:
            with call_errors():
                async for response in client.stub.ListAndWatch(api.Empty()):
                    self._received(resource, response)
        except CallError as failed:
            why = str(failed)
            if (size := _TOO_LARGE.search(why)) is not None:
                why = f"rpc error: code = ResourceExhausted desc = grpc: received message larger than max {size[1]}"
                text = f"a list of {size[2]} bytes, the kubelet receives at most {LIST_LIMIT_BYTES}"
                self._journal.find([error("list-over-limit", resource, text)])
        finally:
            client.streaming = False
        if (resource, socket) in self._watched:
            self._life.later(RENEWAL_SECONDS, lambda: self._find_not_renewed(client))
        victim = self._clients.pop(self._key(resource, socket), None)
        # If a failed registration has removed the entry, the devices stay healthy forever, as in the kubelet.
        if victim is not None:
            await self._close(victim, why)

    def _key(self, resource: str, socket: str) -> tuple[str, str]:
        """Return the key of a connection. In 1.36, it is the resource alone, so instances of a plugin share it."""
        return resource, socket if self._is_1_37 else ""

    async def _close(self, victim: PluginClient, why: str) -> None:
        """Close a connection and mark its devices as unhealthy."""
        await victim.close()
        self._opened.remove(victim)
        if self._table.disconnected(victim, now=self._life.clock.now(), is_1_37=self._is_1_37):
            text = f"{victim.resource} disconnected: {why}; all its devices are unhealthy now"
            self._journal.note("pluginLost", "plugin", text, resource=victim.resource, error=why)
            self._life.changed()  # like the kubelet, without writing the checkpoint

    def _received(self, resource: str, response: api.ListAndWatchResponse) -> None:
        devices, held = response.devices, self._held(resource)
        elsewhere: dict[str, str] = {}  # ids that are held or that a connected plugin lists
        for other, listed in self._table.devices.items():
            if other != resource:
                known = {*(listed if self._table.lists_now(other) else ()), *self._held(other)}
                elsewhere |= dict.fromkeys(known, other)
        size = response.ByteSize()
        self._journal.find(lint.device_list(resource, devices, size=size, held=held, elsewhere=elsewhere))
        self._table.listed(resource, devices)
        healthy, unhealthy = len(self._table.healthy[resource]), len(self._table.unhealthy[resource])
        # Without a text, because the entry about the node has the same numbers.
        self._journal.note("listed", "plugin", "", resource=resource, healthy=healthy, unhealthy=unhealthy)
        self._life.save()
        self._life.changed()

    def _held(self, resource: str) -> set[str]:
        """The ids that containers hold, or that are in an unanswered Allocate call."""
        used = {id_ for _, held in self._life.used() if held.resource == resource for id_ in held.ids}
        return used | self._table.in_flight.get(resource, set())


def _path(endpoint: str) -> str:
    """The path that the kubelet dials. A relative one starts at its working directory, which is the root."""
    return endpoint if endpoint.startswith("/") else f"/{endpoint}"
