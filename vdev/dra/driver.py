"""The life cycle of one DRA driver on a node. It serves registration, claims and health on one socket.

    restore claims ─► serve the socket ─► the kubelet finds the socket
          ▲                                           │
          └─ the socket or a directory is gone, or ◄──┘
             could not be used

A kubelet that restarts finds the socket again, so the driver does not react to restarts. It only creates missing files
again.
"""

import asyncio
import os
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import structlog

from ..deviceplugin.socket_server import SocketServer, is_dead
from ..errors import HostError, SocketError
from ..model.problem import Problem, error
from ..pb import pluginregistration_v1_pb2 as pb
from ..pb import pluginregistration_v1_pb2_grpc as rpc
from .checkpoint import Places, Prepared
from .claim_status import ClaimStatus
from .claims import Claims
from .published_devices import PublishedPool
from .servicer import SERVICES, DraServicer

if TYPE_CHECKING:
    from ..agent.agent import Agent

log = structlog.get_logger(__name__)


class DriverState(StrEnum):
    STARTING = "starting"
    WAITING = "waiting for the kubelet"
    REGISTERED = "registered"
    REFUSED = "refused by the kubelet"
    FAILING = "cannot serve"


class DraDriver(rpc.RegistrationServicer):
    """One driver. `run` serves until it is cancelled; all other methods may be called at any time.

    `prepared` are the claims that an earlier process recorded. The agent's `on_claims` is called when the state, the
    problems or the prepared claims may have changed.
    """

    def __init__(self, agent: "Agent", places: Places, prepared: Prepared) -> None:
        timing = agent.options.timing
        self.name = places.driver
        self.places = places
        self.claims = Claims(agent, places, prepared, self._on_prepared)
        self._on_change = agent.on_claims
        self._intervals, self._clock = timing
        self._retrier = agent.retrier
        self._status = ClaimStatus(places.driver, agent.node_api.api, timing.clock)
        self.servicer = DraServicer(agent, places.driver, self.claims)
        self._socket = SocketServer(self._add_services, places.socket, timing)
        self._serves = False
        self._refusal: str | None = None  # why the kubelet refused the driver; None: it has not seen the socket yet
        self._recheck = True  # the files of claims must be checked
        self._trouble = ""
        self._look = asyncio.Event()

    # --- for the agent: state ----------------------------------------------------------------------------------------

    @property
    def state(self) -> DriverState:
        if self._trouble:
            return DriverState.FAILING
        if not self._serves:
            return DriverState.STARTING
        if self._refusal is None:
            return DriverState.WAITING
        return DriverState.REFUSED if self._refusal else DriverState.REGISTERED

    @property
    def problems(self) -> tuple[Problem, ...]:
        errors = (self._trouble, self._refusal, self.claims.trouble)
        return tuple(error(f"dra driver {self.name}", each) for each in errors if each)

    @cached_property
    def directories(self) -> frozenset[Path]:
        """The directories to watch: `recheck` should follow a change in them."""
        return frozenset({self.places.registry, self.places.directory, self.places.cdi_dir})

    # --- for the agent: actions ---------------------------------------------------------------------------------------

    def update(self, pool: PublishedPool) -> None:
        """Set the published devices, and report their health to the kubelet and in the status of claims."""
        before, self.claims.pool = self.claims.pool, pool
        health = {each.name: each.health for each in pool.devices}
        if health != {each.name: each.health for each in before.devices}:
            self.servicer.calls.wake()  # the streams send the health again
        self._status.update_health(health)

    def recheck(self) -> None:
        """Check the socket and files soon, because they may have changed."""
        self._recheck = True
        self._look.set()

    async def run(self) -> None:
        """Serve until cancelled. After that, the kubelet deregisters the driver; prepared claims stay."""
        step = self._status.name
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._retrier.run_forever(step, self._status.work), name=step)
                while True:
                    self._look.clear()
                    await self._restore()
                    await self._clock.wait(self._look, self._intervals.look_at_driver)
        finally:
            self._retrier.forget(step)
            self.servicer.calls.close()
            await self._socket.stop()

    # --- its socket ---------------------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Restore the claims' files and the socket; `problems` contains the errors."""
        before = self._trouble, self._serves
        try:
            if self._recheck:
                self._recheck = False
                await self.claims.restore()
            if not await asyncio.to_thread(self._socket.owns_socket):
                # Under the lock, so that two instances that start at the same time do not both pass the check.
                await self.claims.exclusively(self._check)
                self._refusal = None
                await self._socket.start()
                log.info("serving DRA", driver=self.name, socket=str(self.places.socket))
            self._trouble, self._serves = "", True
        except (SocketError, HostError) as failed:
            self._recheck = True
            self._trouble = str(failed)
            if self._trouble != before[0]:
                log.error("DRA driver cannot serve", driver=self.name, reason=self._trouble)
        if before != (self._trouble, self._serves):
            self._on_change()

    def _check(self) -> None:
        """Check that the socket can be created and that no other process serves it. Raises SocketError."""
        registry, socket = self.places.registry, self.places.socket
        if not os.path.isdir(registry):
            raise SocketError(f"there is no directory {registry}; is --kubelet-dir right, and mounted?")
        for path in self.places.remove_leftovers():
            log.info("removed the socket of a process that is gone", socket=str(path))
        if os.path.exists(socket) and not is_dead(socket):
            raise SocketError(
                f"another process serves {socket}; is another driver named {self.name} on this node? stop one "
                "of them, or let one have another name"
            )

    def _on_prepared(self, prepared: Prepared) -> None:
        self._status.update(prepared)
        self._on_change()

    # --- registration -------------------------------------------------------------------------------------------------

    def _add_services(self, server: grpc.aio.Server) -> None:
        self.servicer.add_to(server)
        rpc.add_RegistrationServicer_to_server(self, server)

    async def GetInfo(self, request: pb.InfoRequest, context: object) -> pb.PluginInfo:
        endpoint = str(self.places.socket.absolute())
        return pb.PluginInfo(type="DRAPlugin", name=self.name, endpoint=endpoint, supported_versions=SERVICES)

    async def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, context: object
    ) -> pb.RegistrationStatusResponse:
        before, self._refusal = self._refusal, ""
        if not request.plugin_registered:
            reason = request.error or "it gives no reason"
            self._refusal = f"the kubelet does not take the DRA driver {self.name}: {reason}"
        if self._refusal != before:
            if self._refusal:
                log.error("DRA driver refused by the kubelet", driver=self.name, reason=request.error)
            else:
                log.info("DRA driver registered", driver=self.name)
        self._on_change()
        return pb.RegistrationStatusResponse()
