"""Writes into a claim's status whether each of its devices is ready, with the reason.

A task of its own does it, by server-side apply with the driver's own field manager, so that no call waits for it. If
that is not allowed, a problem says so, and everything else goes on.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from ..aio.clock import Timing
from ..aio.tasks import Backoff
from ..errors import ApiServerError
from ..kube import RESOURCE_CLAIMS, Api, Missing, timestamp
from ..kube.answers import Denied, Invalid
from ..model.device import Health
from .checkpoint import Prepared
from .claim import PreparedClaim

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]


class ClaimStatus:
    """The status of the claims of one driver; `trouble` says why it is not written, or is empty."""

    def __init__(self, driver: str, api: Api | None, timing: Timing) -> None:
        self.trouble = ""
        self._driver = driver
        self._api = api
        self._manager = f"vdev-{driver}"
        self._intervals, self._clock = timing
        self._claims: Prepared = {}
        self._health: Mapping[str, Health] | None = None  # by device; None: unknown
        self._due: dict[str, PreparedClaim] = {}  # by uid, the claims whose status may have to be written
        self._news = asyncio.Event()
        self._backoff = Backoff(timing.intervals.api_pause_first, timing.intervals.api_pause_most)

    def update(self, prepared: Prepared) -> None:
        """Take all claims that are prepared now."""
        was, self._claims = self._claims, prepared
        for uid in was.keys() | prepared.keys():
            if was.get(uid) != prepared.get(uid):
                self._due[uid] = prepared.get(uid) or was[uid]
        self._news.set()

    def update_health(self, health: Mapping[str, Health]) -> None:
        was, self._health = self._health or {}, health
        for claim in self._claims.values():
            if any(was.get(each.device) != health.get(each.device) for each in claim.devices):
                self._due[claim.uid] = claim
        self._news.set()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        attempt, pause = 0, None
        while True:
            await self._clock.wait(self._news, pause)
            self._news.clear()
            pause, trouble = None, ""
            for claim in list(self._due.values()) if self._api and self._health is not None else ():
                del self._due[claim.uid]
                try:
                    await self._write(claim)
                    attempt = 0
                except Missing:
                    continue
                except ApiServerError as failed:
                    self._due.setdefault(claim.uid, claim)
                    trouble = f"the status of claims of {self._driver} is not written: {failed}"
                    if isinstance(
                        failed, Invalid
                    ):  # concerns this claim alone; from 1.36 on, also the answer to a missing permission
                        pause = self._intervals.watch_again
                        continue
                    is_denied = isinstance(failed, Denied)
                    pause = self._intervals.watch_again if is_denied else self._backoff.pause(attempt)
                    attempt += 1
                    await self._clock.sleep(failed.wait)
                    break
            if trouble and trouble != self.trouble:
                log.warning("status of a claim not written", driver=self._driver, reason=trouble)
            self.trouble = trouble

    async def _write(self, claim: PreparedClaim) -> None:
        assert self._api is not None
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
