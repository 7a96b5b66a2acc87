"""What the driver says in a claim's status: for each of its devices whether it is ready, with the reason.

Written beside the calls, never before their answers, by server-side apply under a field manager of the driver's own.
Where that is not allowed it is said once, and everything else goes on.
"""

import asyncio
import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any

import structlog

from ..aio.clock import Timing
from ..aio.tasks import Backoff
from ..errors import ApiServerError
from ..kube import RESOURCE_CLAIMS, Api, Missing
from ..kube.answers import Denied, Invalid
from .checkpoint import Prepared
from .claim import PreparedClaim
from .health import DeviceHealth, Health

log = structlog.get_logger(__name__)

_LONGEST_MANAGER = 128
_LONGEST_MESSAGE = 1024
Document = Mapping[str, Any]


class ClaimStatus:
    """The status of the claims of one driver; `trouble` says why it is not written, or is empty."""

    def __init__(self, driver: str, api: Api | None, timing: Timing) -> None:
        self.trouble = ""
        self._driver = driver
        self._api = api
        self._manager = f"vdev-{driver}"[:_LONGEST_MANAGER]
        self._intervals, self._clock = timing
        self._claims: dict[str, PreparedClaim] = {}
        self._health: Mapping[tuple[str, str], DeviceHealth] | None = None  # None: nothing was said of it yet
        self._due: dict[str, PreparedClaim] = {}  # by uid, those whose status may have to be written
        self._news = asyncio.Event()
        self._backoff = Backoff(timing.intervals.api_pause_first, timing.intervals.api_pause_most)

    def update(self, prepared: Prepared) -> None:
        """These claims are prepared now, and no others."""
        was, self._claims = self._claims, dict(prepared)
        for uid in was.keys() | self._claims.keys():
            if was.get(uid) != self._claims.get(uid):
                self._note(self._claims.get(uid) or was[uid])

    def update_health(self, devices: Health) -> None:
        was, self._health = self._health or {}, {(each.pool, each.device): each for each in devices}
        if self._due:
            self._news.set()
        for claim in self._claims.values():
            if any(was.get(key) != self._health.get(key) for key in _keys(claim)):
                self._note(claim)

    def _note(self, claim: PreparedClaim) -> None:
        if self._api is not None:
            self._due[claim.uid] = claim
            self._news.set()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        attempt = 0
        while True:
            await self._news.wait()
            self._news.clear()
            pause, refused = None, dict[str, PreparedClaim]()
            for claim in list(self._due.values()) if self._health is not None else ():
                del self._due[claim.uid]
                try:
                    await self._write(claim)
                    attempt, self.trouble = 0, ""
                except Missing:
                    continue
                except Invalid as why:  # also, from 1.36 on, for want of a permission of the driver's
                    refused[claim.uid] = claim
                    self._say(str(why))
                except ApiServerError as failed:
                    self._due.setdefault(claim.uid, claim)
                    self._say(str(failed))
                    pause = self._intervals.watch_again if isinstance(failed, Denied) else self._backoff.pause(attempt)
                    pause = max(pause, failed.wait)
                    attempt += 1
                    break
            if refused:
                self._clock.call_later(self._intervals.watch_again, functools.partial(self._try_again, refused))
            if pause is not None:
                await self._clock.sleep(pause)
                self._news.set()

    def _try_again(self, refused: Mapping[str, PreparedClaim]) -> None:
        for uid, claim in refused.items():
            if self._claims.get(uid, claim) == claim:  # or it is not prepared any more, which is to be said as well
                self._due.setdefault(uid, claim)
        self._news.set()

    def _say(self, why: str) -> None:
        trouble = f"the status of claims of {self._driver} is not written: {why}"
        if trouble != self.trouble:
            log.warning("status of a claim not written", driver=self._driver, reason=why)
        self.trouble = trouble

    async def _write(self, claim: PreparedClaim) -> None:
        assert self._api is not None
        found = await self._api.get(RESOURCE_CLAIMS, claim.name, namespace=claim.namespace)
        if (found.get("metadata") or {}).get("uid") != claim.uid:
            return
        there = {
            _key(each): each
            for each in (found.get("status") or {}).get("devices") or ()
            if each.get("driver") == self._driver
        }
        wanted = self._devices(claim, there) if claim.uid in self._claims else []
        if {_key(each): each for each in wanted} == there:
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

    def _devices(self, claim: PreparedClaim, there: Mapping[tuple[str, ...], Document]) -> list[dict[str, Any]]:
        found, health = [], self._health or {}
        for each in {(one.pool, one.device, one.share_id): one for one in claim.devices}.values():
            device: dict[str, Any] = {"driver": self._driver, "pool": each.pool, "device": each.device}
            if each.share_id:
                device["shareID"] = each.share_id
            before = (there.get(_key(device)) or {}).get("conditions") or ()
            device["conditions"] = [self._ready(health.get((each.pool, each.device)), before)]
            data: dict[str, Any] = {"id": each.id} if each.id else {}
            if each.ignored:
                data["ignoredConfig"] = list(each.ignored)
            if data:
                device["data"] = data
            found.append(device)
        return found

    def _ready(self, health: DeviceHealth | None, before: Any) -> dict[str, Any]:
        """The condition Ready; the time of its last change stays while its status does."""
        if health is None:
            status, reason, message = "Unknown", "NotPublished", "the device is not published any more"
        elif health.healthy is None:
            status, reason, message = "Unknown", "HealthUnknown", health.message
        elif health.healthy:
            status, reason, message = "True", "Prepared", health.message
        else:
            status, reason, message = "False", "Unhealthy", health.message
        same = next((each for each in before if each.get("type") == "Ready" and each.get("status") == status), None)
        now = dt.datetime.fromtimestamp(self._clock.wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "lastTransitionTime": (same or {}).get("lastTransitionTime") or now,
        }


def _keys(claim: PreparedClaim) -> set[tuple[str, str]]:
    return {(each.pool, each.device) for each in claim.devices}


def _key(device: Document) -> tuple[str, ...]:
    return tuple(str(device.get(name) or "") for name in ("driver", "pool", "device", "shareID"))
