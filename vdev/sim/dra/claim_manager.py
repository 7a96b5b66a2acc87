"""The kubelet's DRA manager: it prepares claims before a pod's first container, and unprepares them after the last pod.

Prepare happens once per claim, in one call per driver and pod. What is prepared stands in a file that outlives the
process. The texts of errors are the kubelet's. When a pod is started or retried is up to `pod_workers`.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..api.kinds import Document
from ..api.server_objects import ApiObjectError, ServerObjects
from ..journal import Journal
from ..lint import warning
from . import answer_lint, cdi_directory, claim_checkpoint
from .claim_checkpoint import ClaimInfo, PreparedDevice
from .driver_client import Answer, CallError, DriverClient
from .driver_registry import DriverRegistry


class ClaimsError(Exception):
    """Claims of a pod cannot be prepared or unprepared; the text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod and the names of its ResourceClaims."""

    name: str
    namespace: str
    uid: str
    claims: tuple[str, ...]


class ClaimManager:
    """Prepares and unprepares claims. With `strict` every driver is asked twice, and both answers must agree.

    Its file is in `directory`; without `cdi_dir` CDI names are not resolved.
    """

    def __init__(
        self,
        objects: ServerObjects,
        drivers: DriverRegistry,
        *,
        journal: Journal,
        directory: Path,
        cdi_dir: Path | None,
        strict: bool,
    ) -> None:
        self._objects = objects
        self._drivers = drivers
        self._journal = journal
        self._directory = directory
        self._cdi_dir = cdi_dir
        self._strict = strict
        self._saving = asyncio.Lock()
        self._claims: dict[tuple[str, str], ClaimInfo] = {}  # by namespace and name, as in the kubelet
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def restore(self) -> None:
        """Take over what an earlier process prepared; for a pod that starts anew it is prepared again."""
        claims, problem = await asyncio.to_thread(claim_checkpoint.read, self._directory)
        if problem:
            self._journal.find([warning("checkpoint-unreadable", "", problem)])
        self._claims = {(claim.namespace, claim.name): claim for claim in claims}

    async def _save(self) -> None:
        async with self._saving:
            content = claim_checkpoint.take(self.all())
            with contextlib.suppress(FileNotFoundError):  # the directory of a test that is over
                await asyncio.to_thread(claim_checkpoint.write, self._directory, content)

    def all(self) -> list[ClaimInfo]:
        """The claims that the kubelet works with."""
        return list(self._claims.values())

    def prepared(self, namespace: str, claim: str, request: str = "") -> list[tuple[str, PreparedDevice]]:
        """Driver and device of what is prepared for a claim, or for one request of it."""
        found = self._claims.get((namespace, claim))
        return [
            (driver, device)
            for driver, devices in (found.drivers.items() if found is not None else ())
            for device in devices
            if not request or not device.requests or request in device.requests
        ]

    # --- prepare ----------------------------------------------------------------------------------------------------

    async def prepare(self, pod: PodClaims) -> None:
        """Prepare all claims of a pod. Raises ClaimsError."""
        async with self._alone([(pod.namespace, name) for name in pod.claims]):
            await self._prepare(pod)

    @contextlib.asynccontextmanager
    async def _alone(self, claims: Iterable[tuple[str, str]]) -> AsyncIterator[None]:
        """Nobody else works on these claims meanwhile; other pods go on, whatever hangs here."""
        async with contextlib.AsyncExitStack() as stack:
            for key in sorted(set(claims)):  # in one order, so that two never wait for each other
                await stack.enter_async_context(self._locks[key])
            yield

    async def _prepare(self, pod: PodClaims) -> None:
        batches: dict[str, list[ClaimInfo]] = {}
        results: dict[str, list[Document]] = {}
        # First everything is looked at and nothing is noted: a pod that fails here can be deleted without its drivers.
        claims = [await self._fetch(pod, name) for name in pod.claims]
        for claim in claims:
            for driver in _drivers(claim):
                self._client(driver, "prepare")
        for claim in claims:
            info = self._know(claim)
            info.pods.add(pod.uid)
            results[info.uid] = list(claim["status"]["allocation"]["devices"].get("results") or [])
            for driver in _drivers(claim) if not info.prepared else ():
                batches.setdefault(driver, []).append(info)
        await self._save()
        for driver, infos in batches.items():
            answers = await self._ask(driver, infos)
            self._look(driver, infos, answers, results)
            if self._cdi_dir is not None:
                names = [name for answer in answers.values() for device in answer.devices for name in device.cdi]
                resolved = await asyncio.to_thread(cdi_directory.resolve, self._cdi_dir, names)
                self._journal.find(answer_lint.unresolved(driver, resolved.missing))
            for info in infos:
                answered = answers[info.uid].devices
                before = info.drivers.get(driver)  # of an earlier life of the kubelet
                if before and _names(before) == _names(answered):  # else the claim was allocated anew since
                    self._journal.find(answer_lint.again(driver, info.name, before, answered))
                info.drivers[driver] = answered
            await self._save()
        for name in pod.claims:
            info = self._claims[pod.namespace, name]
            if not info.prepared:
                info.prepared = True
                devices = tuple(f"{d}/{each.pool}/{each.device}" for d, all_ in info.drivers.items() for each in all_)
                self._journal.tell_claim(f"{info.namespace}/{info.name}", "prepared", devices)
        await self._save()

    async def _fetch(self, pod: PodClaims, name: str) -> Document:
        """The claim, if this pod may use it. Raises ClaimsError."""
        try:
            claim = await self._objects.get("ResourceClaim", name, pod.namespace)
        except ApiObjectError as error:
            raise ClaimsError(f"prepare dynamic resources: fetch ResourceClaim {name}: {error}") from error
        if claim is None:
            text = f'resourceclaims.resource.k8s.io "{name}" not found'
            raise ClaimsError(f"prepare dynamic resources: fetch ResourceClaim {name}: {text}")
        status = claim.get("status") or {}
        uid = claim["metadata"]["uid"]
        if all(each.get("uid") != pod.uid for each in status.get("reservedFor") or []):
            raise ClaimsError(
                f"prepare dynamic resources: pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim "
                f"{name} ({uid})"
            )
        if not status.get("allocation"):
            raise ClaimsError(f"prepare dynamic resources: ResourceClaim {name}: not allocated")
        return claim

    def _know(self, claim: Document) -> ClaimInfo:
        meta = claim["metadata"]
        key = meta["namespace"], meta["name"]
        info = self._claims.get(key)
        if info is not None and info.uid != meta["uid"]:
            raise ClaimsError(
                f"prepare dynamic resources: old ResourceClaim with same name {meta['name']} and different UID "
                f"{info.uid} still exists (previous pod force-deleted?!)"
            )
        if info is None:
            # Every driver is there from the start: Unprepare comes to those as well whose Prepare failed.
            drivers: dict[str, tuple[PreparedDevice, ...]] = dict.fromkeys(_drivers(claim), ())
            info = self._claims[key] = ClaimInfo(meta["uid"], meta["name"], meta["namespace"], drivers=drivers)
        return info

    async def _ask(self, driver: str, infos: list[ClaimInfo]) -> Mapping[str, Answer]:
        """One NodePrepareResources. Raises ClaimsError."""
        answers, second = await self._call("prepare", driver, infos)
        if second is not None:
            for info in infos:
                self._journal.find(answer_lint.again(driver, info.name, answers[info.uid], second.get(info.uid)))
        return answers

    def _look(
        self,
        driver: str,
        infos: list[ClaimInfo],
        answers: Mapping[str, Answer],
        results: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        for info in infos:
            devices = answers[info.uid].devices
            mine = [each for each in results[info.uid] if each["driver"] == driver]
            if self._client(driver, "prepare").service != "v1.DRAPlugin":  # which has no field for shares
                mine = [{**each, "shareID": ""} for each in mine]
            self._journal.find(answer_lint.prepared(driver, info.name, devices, mine))
            others = {i.name: i.drivers.get(driver, ()) for i in self._claims.values() if i is not info}
            self._journal.find(answer_lint.reused_cdi(driver, info.name, devices, others))

    # --- unprepare --------------------------------------------------------------------------------------------------

    async def unprepare(self, uid: str, claims: Iterable[tuple[str, str]]) -> None:
        """Unprepare what no other pod uses of these claims (namespace and name). Raises ClaimsError."""
        keys = list(claims)
        async with self._alone(keys):
            await self._unprepare(uid, keys)

    async def _unprepare(self, uid: str, claims: Iterable[tuple[str, str]]) -> None:
        batches: dict[str, list[ClaimInfo]] = {}
        ended = []
        for key in claims:
            info = self._claims.get(key)
            if info is None:
                continue
            if info.pods - {uid}:
                info.pods.discard(uid)
                continue
            ended.append(info)
            for driver in info.drivers:
                batches.setdefault(driver, []).append(info)
        for driver, infos in batches.items():
            _, second = await self._call("unprepare", driver, infos)
            if second is not None:
                for info in infos:
                    error = second[info.uid].error if info.uid in second else "nothing"
                    self._journal.find(answer_lint.unprepared_again(driver, info.name, error))
        for info in ended:
            self._claims.pop((info.namespace, info.name), None)
            self._journal.tell_claim(f"{info.namespace}/{info.name}", "unprepared")
        await self._save()

    async def reconcile(self, active: Collection[str]) -> None:
        """Unprepare what pods used that are gone; errors wait for the next time."""
        for info in self.all():
            for uid in sorted(info.pods - set(active)):
                try:
                    await self.unprepare(uid, [(info.namespace, info.name)])
                except ClaimsError:
                    break

    def _client(self, driver: str, what: str) -> DriverClient:
        try:
            return self._drivers.get(driver)
        except CallError as error:
            raise ClaimsError(f"{what} dynamic resources: {error}") from None

    async def _call(
        self, what: str, driver: str, infos: Sequence[ClaimInfo]
    ) -> tuple[Mapping[str, Answer], Mapping[str, Answer] | None]:
        """The answers to one call, and to the same once more where that is asked for. Raises ClaimsError."""
        client, method = self._client(driver, what), f"Node{what.title()}Resources"
        call = client.prepare if what == "prepare" else client.unprepare
        names = {info.uid: info.name for info in infos}
        try:
            answers = await call(infos)
            self._journal.find(answer_lint.keys(driver, method, names, list(answers)))
            _check(what, method, names, answers)
            return answers, await call(infos) if self._strict else None
        except CallError as error:
            raise ClaimsError(f"{what} dynamic resources: {method}: {error}") from None


def _names(devices: Iterable[PreparedDevice]) -> set[tuple[str, str, str]]:
    """What the devices are called in an allocation."""
    return {(each.pool, each.device, each.share) for each in devices}


def _drivers(claim: Document) -> list[str]:
    """The drivers of a claim's devices."""
    results = claim["status"]["allocation"]["devices"].get("results") or []
    return list(dict.fromkeys(result["driver"] for result in results))


def _check(what: str, method: str, names: Mapping[str, str], answers: Mapping[str, Answer]) -> None:
    """Raise ClaimsError for the first thing that the kubelet finds wrong with an answer."""
    prefix = f"{what} dynamic resources: {method}"
    for uid, answer in answers.items():
        if uid not in names:
            raise ClaimsError(f"{prefix} returned result for unknown claim UID {uid}")
        if answer.error:
            raise ClaimsError(f"{prefix} failed for ResourceClaim {names[uid]}: {answer.error}")
    if skipped := len(names) - len(answers):
        raise ClaimsError(f"{prefix} skipped {skipped} ResourceClaims")
