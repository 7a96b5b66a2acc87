"""The life of one DRA driver on a node: its two sockets, kept as they should be, and what it knows of its devices.

    restore claims ─► serve the driver's socket ─► serve the registration socket ─► the kubelet comes by itself
          ▲                                                                              │
          └───────────── a socket or a directory is gone, or could not be used ◄─────────┘

A kubelet that restarts finds the registration socket again and asks anew: nothing is to be done. What must be done anew
is only what is gone from the disk.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..aio.tasks import Interrupted, Interruption
from ..deviceplugin.registration import KubeletSocket
from ..deviceplugin.rpc import ObserveRpc
from ..deviceplugin.socket_server import SocketServer, is_dead
from ..errors import HostError, SocketError
from ..faults.engine import Engine
from ..hostfs.files import exists, is_directory
from ..kube import Api
from ..model.problem import Problem, error, warning
from .checkpoint import Prepared
from .claim import PreparedClaim
from .claim_status import ClaimStatus
from .claims import Claims
from .health import Health
from .places import Places
from .preparation import Find
from .registration import RegistrationServicer
from .servicer import DraServicer

log = structlog.get_logger(__name__)


class DriverState(StrEnum):
    """What a driver is doing."""

    STARTING = "starting"
    WAITING = "waiting for the kubelet"
    REGISTERED = "registered"
    REFUSED = "refused by the kubelet"
    FAILING = "cannot serve"
    STOPPED = "stopped"


class DraDriver:
    """One driver: `run()` until `stop()`; everything else at any time in between.

    `find` tells what is published, and is called in a thread. `on_change` is called when state, problems or prepared
    claims may be others than before. `renew` is that of `Claims`. `watch` looks at the sockets; None: the driver does.
    """

    def __init__(
        self,
        places: Places,
        *,
        api: Api | None,
        find: Find,
        on_change: Callable[[], None] = lambda: None,
        renew: Callable[[str], None] = lambda _raw: None,
        observe: ObserveRpc,
        faults: Engine,
        timing: Timing = PRODUCTION_TIMING,
        watch: KubeletSocket | None = None,
    ) -> None:
        self.places = places
        self._watch = watch
        self._on_change = on_change
        self._intervals, self._clock = timing
        self._status = ClaimStatus(places.driver, api, timing)
        self._claims = Claims(places, api, find, on_change=self._prepared, renew=renew, timing=timing)
        self._servicer = DraServicer(places.driver, self._claims, faults=faults, observe=observe, timing=timing)
        self._registration = RegistrationServicer(places.driver, places.dra_socket, on_change=self._on_change)
        self._sockets: tuple[SocketServer[DraServicer], SocketServer[RegistrationServicer]] = (
            SocketServer(self._servicer, places.dra_socket, timing),
            SocketServer(self._registration, places.registration_socket, timing),
        )
        self._serves = False
        self._restored = False  # at the last attempt
        self._recheck = False
        self._tidied = False
        self._trouble = ""  # with the sockets
        self._files_trouble = ""
        self._look = asyncio.Event()
        self._standing = Interruption()
        self._stopping = False
        self._stopped = False

    # --- what the agent sees ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.places.driver

    @property
    def state(self) -> DriverState:
        if self._stopped:
            return DriverState.STOPPED
        if self._trouble:
            return DriverState.FAILING
        if not self._serves:
            return DriverState.STARTING
        if self._registration.registered:
            return DriverState.REGISTERED
        return DriverState.REFUSED if self._registration.refusal else DriverState.WAITING

    @property
    def health_streams(self) -> int:
        """How many health streams are open: a kubelet of 1.36 opens one."""
        return self._servicer.health.open

    @property
    def prepared(self) -> Mapping[str, PreparedClaim]:
        """The prepared claims by uid, as last seen."""
        return self._claims.prepared

    @property
    def preparing(self) -> frozenset[str]:
        """The devices that claims may be about to get, by published name; to be read before `prepared`."""
        return self._claims.preparing

    @property
    def is_idle(self) -> bool:
        """Whether its record was read, and no claim is prepared, or about to be."""
        return self._restored and not self._claims.preparing and not self._claims.prepared

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What a person should know."""
        errors = (self._trouble, self._files_trouble, self._registration.refusal, *self._claims.troubles)
        found = [error(f"dra driver {self.name}", each) for each in errors if each]
        if self._status.trouble:
            found.append(warning(f"dra driver {self.name}", self._status.trouble))
        return tuple(found)

    @cached_property
    def directories(self) -> frozenset[Path]:
        """The directories whose changes are worth a `recheck`."""
        return frozenset({self.places.registry, self.places.directory, self.places.cdi_dir})

    # --- what the agent does ------------------------------------------------------------------------------------------

    def update(self, devices: Health) -> None:
        """This is the health of all published devices: streams, and the status of claims, follow."""
        self._servicer.health.update(devices)
        self._status.update_health(devices)

    def poke(self) -> None:
        """Ask the fault rules again."""
        self._servicer.poke()

    def recheck(self) -> None:
        """Look at sockets and files soon: something may have changed there."""
        self._recheck = True
        self._look.set()

    def stop(self) -> None:
        """Let `run` end: the kubelet forgets the driver, and what was prepared stays."""
        self._stopping = True
        self._standing.interrupt()
        self._look.set()

    async def run(self) -> None:
        """Serve until `stop`; where that was ended by a failure, it may be called again."""
        self._stopped = False
        self._servicer.open()
        if self._watch is not None:
            self._watch.subscribe(self._look, self._are_there)
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._status.run(), name=f"claim status of {self.name}")
                while not self._stopping:
                    self._look.clear()
                    with contextlib.suppress(Interrupted):
                        async with self._standing:
                            await self._stand()
                    await self._clock.wait(self._look, self._pause())
                writing.cancel()
        finally:
            if self._watch is not None:
                self._watch.unsubscribe(self._look)
            driver, registration = self._sockets
            await registration.stop()  # first: the kubelet stops asking
            await driver.stop()
            self._stopped = True
            self._on_change()

    def _pause(self) -> float | None:
        """Seconds before the next look at everything; None: the watch tells when to look."""
        good = self._restored and self._serves
        return None if good and self._watch is not None else self._intervals.look_at_kubelet

    # --- its sockets --------------------------------------------------------------------------------------------------

    async def _stand(self) -> None:
        """Let the claims' files be there and both sockets be served; what is wrong is told by `problems`."""
        before = self._restored, self._files_trouble, self._trouble, self._serves
        if self._recheck or not self._restored:
            self._recheck = False
            self._files_trouble = await self._restore()
            self._restored = not self._files_trouble
        try:
            if not await asyncio.to_thread(self._are_there):
                await self._claims.exclusively(self._check)  # so that of two instances that start one is first
                for socket in self._sockets:
                    if not await asyncio.to_thread(socket.owns_socket):
                        if socket.servicer is self._registration:
                            self._registration.forget()  # of the other one a kubelet knows the path, and dials again
                        await socket.restore()
                log.info("serving DRA", driver=self.name, socket=str(self.places.dra_socket))
            self._trouble, self._serves = "", True
        except (SocketError, HostError) as failed:
            self._trouble, self._serves = str(failed), False
            if self._trouble != before[2]:
                log.error("DRA driver cannot serve", driver=self.name, reason=self._trouble)
        if before != (self._restored, self._files_trouble, self._trouble, self._serves):
            self._on_change()

    async def _restore(self) -> str:
        """Let prepared claims have their files; why they may not have them, or the empty string."""
        try:
            await self._claims.restore()
        except HostError as failed:
            return str(failed)
        except TimeoutError:
            return f"another vdev, or the disk, does not let go of {self.places.directory}"
        return ""

    def _are_there(self) -> bool:
        return all(socket.owns_socket() for socket in self._sockets)

    def _check(self) -> None:
        """See that the sockets can be made, and that nobody else serves them. Raises SocketError."""
        registry = self.places.registry
        if not is_directory(registry):
            raise SocketError(f"there is no directory {registry}; is --kubelet-dir right, and mounted?")
        if not self._tidied:
            self._tidied = True
            for path in self.places.remove_leftovers():
                log.info("removed the socket of a process that is gone", socket=str(path))
        for socket in self._sockets:
            if exists(socket.path) and not socket.owns_socket() and not is_dead(socket.path):
                raise SocketError(
                    f"somebody else serves {socket.path}: is another driver named {self.name} on this node? stop one "
                    "of them, or let one have another name"
                )

    def _prepared(self, prepared: Prepared) -> None:
        self._status.update(prepared)
        self._on_change()
