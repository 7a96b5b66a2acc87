"""Writes into a claim's status whether each of its devices is ready, with the reason.

A separate task writes it by server-side apply with the driver's field manager, so that no gRPC call waits for it.
"""

from collections.abc import Mapping
from typing import Any

from ..aio.clock import Clock
from ..errors import ApiServerError
from ..kube.api import Api
from ..kube.errors import Invalid, Missing
from ..kube.objects import RESOURCE_CLAIMS, timestamp
from ..model.device import Health
from ..node.api_applier import Writer
from .checkpoint import Prepared
from .claim import PreparedClaim

Document = Mapping[str, Any]


class ClaimStatus(Writer):
    def __init__(self, driver: str, api: Api, clock: Clock) -> None:
        super().__init__()
        self.name = f"writing the status of claims of {driver}"
        self._driver = driver
        self._api = api
        self._manager = f"vdev-{driver}"
        self._clock = clock
        self._claims: Prepared = {}
        self._health: Mapping[str, Health] | None = None  # by device; None: unknown
        self._due: dict[str, PreparedClaim] = {}  # by uid: the claims whose status may be out of date

    def update(self, prepared: Prepared) -> None:
        was, self._claims = self._claims, prepared
        for uid in was.keys() | prepared.keys():
            if was.get(uid) != prepared.get(uid):
                self._due[uid] = prepared.get(uid) or was[uid]
        self._is_due.set()

    def update_health(self, health: Mapping[str, Health]) -> None:
        was, self._health = self._health or {}, health
        for claim in self._claims.values():
            if any(was.get(each.device) != health.get(each.device) for each in claim.devices):
                self._due[claim.uid] = claim
        self._is_due.set()

    async def _write_due(self) -> None:
        if self._health is None or not self._api.connection.server:
            return
        refused: Invalid | None = None
        for claim in list(self._due.values()):
            del self._due[claim.uid]  # before the request: a change during it makes the claim due again
            try:
                await self._write(claim)
            except Missing:
                continue
            except ApiServerError as failed:
                self._due.setdefault(claim.uid, claim)
                if not isinstance(failed, Invalid):
                    raise
                refused = failed  # continue: the error may concern only this claim
        if refused is not None:
            raise refused

    async def _write(self, claim: PreparedClaim) -> None:
        found = await self._api.get(RESOURCE_CLAIMS, claim.name, namespace=claim.namespace)
        if (found.get("metadata") or {}).get("uid") != claim.uid:
            return
        present = {
            _key(each): each
            for each in (found.get("status") or {}).get("devices") or ()
            if each.get("driver") == self._driver
        }
        wanted = self._devices(claim, present) if claim.uid in self._claims else []
        if {_key(each): each for each in wanted} == present:
            return
        document = {"metadata": {"uid": claim.uid}, "status": {"devices": wanted} if wanted else {}}
        await self._api.apply(
            RESOURCE_CLAIMS,
            claim.name,
            document,
            force=True,
            manager=self._manager,
            namespace=claim.namespace,
            subresource="status",
        )

    def _devices(self, claim: PreparedClaim, present: Mapping[tuple[str, ...], Document]) -> list[dict[str, Any]]:
        found, health = [], self._health or {}
        for each in {(one.pool, one.device, one.share_id): one for one in claim.devices}.values():
            device: dict[str, Any] = {"driver": self._driver, "pool": each.pool, "device": each.device}
            if each.share_id:
                device["shareID"] = each.share_id
            before = (present.get(_key(device)) or {}).get("conditions") or ()
            device["conditions"] = [self._ready(health.get(each.device), before)]
            data: dict[str, Any] = {"id": each.id} if each.id else {}
            if each.ignored:
                data["ignoredConfig"] = list(each.ignored)
            if data:
                device["data"] = data
            found.append(device)
        return found

    def _ready(self, health: Health | None, before: Any) -> dict[str, Any]:
        """The condition Ready, with the time of its last change."""
        if health is None:
            status, reason, message = "Unknown", "NotPublished", "the device is no longer published"
        elif health.healthy:
            status, reason, message = "True", "Prepared", health.reason
        else:
            status, reason, message = "False", "Unhealthy", health.reason
        same = next((each for each in before if each.get("type") == "Ready" and each.get("status") == status), None)
        now = timestamp(self._clock.wall())
        return {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": (same or {}).get("lastTransitionTime") or now,
        }


def _key(device: Document) -> tuple[str, ...]:
    return tuple(str(device.get(name) or "") for name in ("driver", "pool", "device", "shareID"))
