"""The DRA part of one kubelet process, as the rest of the kubelet uses it."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..api.server_objects import ServerObjects
from ..kubelet_life import Life
from ..lint import Finding, Severity
from ..objects.container_edits import Edits
from ..objects.pods import ContainerClaim
from . import cdi_directory
from .claim_checkpoint import PreparedDevice
from .claim_manager import ClaimManager
from .driver_registry import DriverRegistry

RECONCILE_SECONDS = 60.0
RESYNC_SECONDS = 60.0  # the real kubelet looks at each pod again after 60 to 90 s


@dataclass(frozen=True, slots=True)
class DraSettings:
    """Settings that all kubelet processes of a node share."""

    objects: ServerObjects
    node: str
    cdi_dir: Path | None  # None: CDI names are not resolved
    strict: bool


class UnresolvedError(Exception):
    """CDI names do not resolve; the text is the container runtime's."""


class DynamicResources:
    """The DRA part of a kubelet process.

    `active` returns the UIDs of its pods, None before it knows them. `changed` updates the status of pods by UID.
    """

    def __init__(
        self,
        root: Path,
        settings: DraSettings,
        life: Life,
        *,
        changed: Callable[[frozenset[str]], None],
        active: Callable[[], Collection[str] | None],
    ) -> None:
        self._settings = settings
        self._life = life
        self._journal = life.journal
        self._active = active
        self._changed = changed
        self.drivers = DriverRegistry(settings.objects, settings.node, life, on_health=self._health_changed)
        self._manager = ClaimManager(
            settings.objects,
            self.drivers,
            journal=life.journal,
            directory=root,
            cdi_dir=settings.cdi_dir,
            strict=settings.strict,
        )
        self.prepare = self._manager.prepare
        self.unprepare = self._manager.unprepare
        self.prepared = self._manager.prepared

    async def start(self) -> None:
        """Take over prepared claims, and delete the node's slices."""
        await self._manager.restore()
        self._life.spawn(self.drivers.wipe("", "it starts"), "wipe slices")
        self._life.every(RECONCILE_SECONDS, self._reconcile)
        self._life.every(RESYNC_SECONDS, self._resync)

    async def close(self) -> None:
        await self.drivers.close()

    # --- for pods -----------------------------------------------------------------------------------------------------

    def devices(self, namespace: str, claim: ContainerClaim) -> list[tuple[str, PreparedDevice]]:
        """Driver and device of each device that a container gets from a claim."""
        return self._manager.prepared(namespace, claim.claim, claim.request)

    def health_of(self, namespace: str, claim: ContainerClaim) -> dict[str, tuple[str, str]]:
        """Health and message by resourceID, which is the first CDI name of a device."""
        return {
            device.cdi[0] if device.cdi else f"{driver}/{device.pool}/{device.device}": self.drivers.health.of(
                driver, device.pool, device.device
            )
            for driver, device in self.devices(namespace, claim)
        }

    async def edits(self, namespace: str, claims: Iterable[ContainerClaim], given: Iterable[str]) -> Edits:
        """The edits of a container's CDI names: those of its claims, then those `given` by device plugins.

        Raises UnresolvedError.
        """
        claimed = [name for claim in claims for _, device in self.devices(namespace, claim) for name in device.cdi]
        names = [*claimed, *given]
        directory = self._settings.cdi_dir
        if directory is None or not names:
            return Edits(cdi_devices=tuple(dict.fromkeys(names)))
        found = await asyncio.to_thread(cdi_directory.resolve, directory, names)
        self._journal.find(Finding("cdi-spec", Severity.ERROR, "", text) for text in found.problems)
        self._journal.find(Finding("cdi-overwritten", Severity.ERROR, "", text) for text in found.overwritten)
        if found.missing:
            text = f"unresolvable CDI devices {', '.join(found.missing)}"
            raise UnresolvedError(f"failed to create containerd container: CDI device injection failed: {text}")
        return found.edits

    # --- inside -----------------------------------------------------------------------------------------------------

    def _health_changed(self, driver: str, devices: Collection[tuple[str, str]]) -> None:
        """Update the pods that have one of these devices, given by pool and name."""
        pods = (
            info.pods
            for info in self._manager.all()
            if any((each.pool, each.device) in devices for each in info.drivers.get(driver, ()))
        )
        self._changed(frozenset[str]().union(*pods))

    def _resync(self) -> None:
        self._changed(frozenset[str]().union(*(info.pods for info in self._manager.all())))

    def _reconcile(self) -> None:
        if (active := self._active()) is not None:
            self._life.spawn(self._manager.reconcile(active), "reconcile claims")
