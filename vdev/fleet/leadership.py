"""One of several controllers works: the one that holds the Lease. The others wait for it.

The times are those of Kubernetes' own controllers (client-go, leaderelection). Whether a Lease has run out is measured
by this process's own clock, from when it saw the Lease change, so that no two clocks have to agree.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from ..aio.timing import Timing
from ..errors import ApiServerError
from ..kube import LEASES, Api, Conflict, Missing

log = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """The Lease could not be renewed: somebody else may work by now."""


class Leadership:
    """The Lease of this name, for the process of this `identity`."""

    def __init__(self, api: Api, timing: Timing, *, namespace: str, name: str, identity: str) -> None:
        self.holder = ""
        self.trouble = ""  # why the last attempt came to nothing
        self._api = api
        self._intervals, self._clock = timing
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._is_known = asyncio.Event()
        self._seen: Mapping[str, Any] = {}
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")
        self._said = ""

    @property
    def where(self) -> str:
        """Namespace and name of the Lease."""
        return f"{self._namespace}/{self._name}"

    @property
    def is_held(self) -> bool:
        """Whether this process holds it."""
        return self.holder == self._identity

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can hold it at this very moment, also where this process just slept for long."""
        return self.is_held and self._clock.now() < self._renewed_at + self._intervals.renew_lease

    async def known(self) -> None:
        """Wait until it is known who has it: this process, or another one."""
        await self._is_known.wait()

    async def acquire(self) -> None:
        """Wait until this process holds it. Failures are told and tried again."""
        while not await self._try():
            if self.holder != self._said:
                self._said = self.holder
                log.info("standing by", lease=self.where, holder=self.holder)
            await self._clock.sleep(self._intervals.retry_lease)
        log.info("leading", lease=self.where)

    async def keep(self) -> None:
        """Renew it again and again. Raises LeaseLost."""
        while True:
            try:
                async with self._clock.timeout(self._renewed_at + self._intervals.renew_lease - self._clock.now()):
                    await self._clock.sleep(self._intervals.retry_lease)
                    while not await self._try():
                        if not self.is_held:
                            raise LeaseLost(f"{self.holder or 'nobody'} has the Lease {self.where} now")
                        await self._clock.sleep(self._intervals.retry_lease)
            except TimeoutError:
                raise LeaseLost(
                    f"the Lease {self.where} could not be renewed for {self._intervals.renew_lease:g} s"
                ) from None

    async def release(self) -> None:
        """Let another process have it at once; where that fails, it waits until the Lease runs out."""
        if not self.is_held:
            return
        spec = {**self._seen["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        self.holder = ""
        try:
            async with self._clock.timeout(self._intervals.retry_lease):
                await self._api.update(LEASES, {**self._seen, "spec": spec})
        except (ApiServerError, TimeoutError) as failed:
            log.warning("lease not released", lease=self.where, reason=str(failed))

    async def _try(self) -> bool:
        """Take it or renew it; whether this process holds it afterwards."""
        begun = self._clock.now()
        try:
            async with self._clock.timeout(self._intervals.renew_lease / 2):
                taken = await self._take()
        except (ApiServerError, TimeoutError) as failed:
            self.trouble = str(failed) or f"no answer within {self._intervals.renew_lease / 2:g} s"
            log.log(logging.DEBUG if self.is_held else logging.WARNING, "lease not had", reason=self.trouble)
            return False
        self.trouble = ""
        self._renewed_at = begun if taken else self._renewed_at
        self._is_known.set()
        return taken

    async def _take(self) -> bool:
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            lease = await self._api.get(LEASES, self._name, namespace=self._namespace)
        except Missing:
            spec = self._spec(now, acquired=now, transitions=0)
            document = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
            self._note(await self._api.create(LEASES, document, namespace=self._namespace))
            return True
        self._note(lease)
        spec = lease.get("spec") or {}
        if not self.is_held and self.holder:
            left = self._seen_at + float(spec.get("leaseDurationSeconds") or self._intervals.lease) - self._clock.now()
            if left > 0:
                return False
        transitions = int(spec.get("leaseTransitions") or 0)
        acquired = str(spec.get("acquireTime") or now) if self.is_held else now
        mine = self._spec(now, acquired=acquired, transitions=transitions + (not self.is_held))
        try:
            self._note(await self._api.update(LEASES, {**lease, "spec": mine}))
        except Conflict:
            return False  # somebody was faster
        return True

    def _spec(self, now: str, *, acquired: str, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._intervals.lease),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _note(self, lease: Mapping[str, Any]) -> None:
        if (lease.get("spec") or {}) != (self._seen.get("spec") or {}):
            self._seen_at = self._clock.now()
        self._seen = lease
        self.holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
