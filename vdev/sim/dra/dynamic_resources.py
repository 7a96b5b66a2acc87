"""DRA in a kubelet process: prepares claims before a pod's first container, and unprepares them after the last pod.

A claim is prepared once, in one call per driver and pod. Prepared claims are stored in a file that survives restarts.
Error texts are the kubelet's. `pod_workers` decides when to start or retry a pod.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace

from pydantic import TypeAdapter

from ...errors import HostError
from ...hostfs import write_atomic
from ..api.kinds import BY_NAME, Document
from ..connection import CallError
from ..kubelet.node_state import PodRecord
from ..kubelet_life import Life
from ..lint import error, warning
from ..objects.pods import ContainerClaim, Edits
from . import answer_lint, cdi_directory
from .driver_registry import Answer, ClaimInfo, DriverClient, DriverRegistry, PreparedDevice

_CLAIM = BY_NAME["ResourceClaim"]
STATE_FILE = "dra_manager_state"  # the prepared claims; only the kubelet reads it
RESYNC_SECONDS = 60.0  # the real kubelet reconciles claims every 60 s, and syncs each pod every 60 to 90 s
_CLAIMS = TypeAdapter(list[ClaimInfo])


class ClaimsError(Exception):
    """A pod's claims cannot be prepared or unprepared. The text is the kubelet's."""


class UnresolvedError(Exception):
    """CDI names do not resolve. The text is the container runtime's."""


class DynamicResources:
    def __init__(self, life: Life) -> None:
        self._state_file = life.kubelet.paths.root / STATE_FILE
        self._cdi_dir = life.kubelet.cdi_dir
        self._life = life
        self._journal = life.journal
        self.drivers = DriverRegistry(life)
        self._saving = asyncio.Lock()
        self._claims: dict[tuple[str, str], ClaimInfo] = {}  # by namespace and name, as in the kubelet
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self) -> None:
        """Restore the claims of the previous process, and delete the node's slices."""
        try:
            claims = _CLAIMS.validate_json(await asyncio.to_thread(self._state_file.read_bytes))
            self._claims = {(claim.namespace, claim.name): claim for claim in claims}
        except FileNotFoundError:
            pass  # the first process
        except (OSError, ValueError) as problem:
            self._journal.find([warning("checkpoint-unreadable", "", f"{self._state_file}: {problem}")])
        self.drivers.wipe("", "it starts")
        self._life.every(RESYNC_SECONDS, lambda: self._life.spawn(self._reconcile(), "reconcile claims"))
        self._life.every(RESYNC_SECONDS, self._life.changed)

    # --- for pods -----------------------------------------------------------------------------------------------------

    def prepared(self, namespace: str, claim: str, request: str = "") -> list[PreparedDevice]:
        found = self._claims.get((namespace, claim))
        devices = found.devices if found is not None else []
        return [each for each in devices if not request or not each.requests or request in each.requests]

    async def edits(self, namespace: str, claims: Iterable[ContainerClaim], given: Edits) -> Edits:
        """Apply the CDI names of a container to the edits `given` by plugins: first those of claims, then of plugins.

        Raises UnresolvedError.
        """
        devices = [device for each in claims for device in self.prepared(namespace, each.claim, each.request)]
        names = [*(name for device in devices for name in device.cdi), *given.cdi_devices]
        wanted = replace(given, cdi_devices=tuple(dict.fromkeys(names)))
        if self._cdi_dir is None or not names:
            return wanted
        edits, missing, findings = await asyncio.to_thread(cdi_directory.resolve, self._cdi_dir, wanted)
        self._journal.find(findings)
        if missing:
            text = f"unresolvable CDI devices {', '.join(missing)}"
            raise UnresolvedError(f"failed to create containerd container: CDI device injection failed: {text}")
        return edits

    @contextlib.asynccontextmanager
    async def _locked(self, claims: Iterable[tuple[str, str]]) -> AsyncIterator[None]:
        """Lock these claims, so that a hanging driver does not delay pods with other claims."""
        async with contextlib.AsyncExitStack() as stack:
            for key in sorted(set(claims)):  # sorted, so that two pods cannot deadlock
                await stack.enter_async_context(self._locks[key])
            yield

    async def _save(self) -> None:
        async with self._saving:
            content = _CLAIMS.dump_json([*self._claims.values()], exclude={"__all__": {"prepared"}})
            with contextlib.suppress(HostError):  # a finished test has removed the directory
                await asyncio.to_thread(write_atomic, self._state_file, content)

    # --- prepare ----------------------------------------------------------------------------------------------------

    async def prepare(self, pod: PodRecord) -> None:
        """Prepare the claims of a pod. Raises ClaimsError."""
        async with self._locked((pod.namespace, name) for name in pod.claim_names):
            # First check that all claims and drivers exist, and only then record the pod. A pod that fails here can be
            # deleted without its drivers.
            claims = [self._fetch(pod, name) for name in pod.claim_names]
            for driver in (driver for claim in claims for driver in _results(claim)):
                self._client(driver, "prepare")
            infos = [self._info(claim) for claim in claims]
            batches: dict[str, list[tuple[ClaimInfo, Document]]] = defaultdict(list)
            for claim, info in zip(claims, infos, strict=True):
                info.pods.add(pod.uid)
                for driver in _results(claim) if not info.prepared else ():
                    batches[driver].append((info, claim))
            await self._save()
            for driver, batch in batches.items():
                await self._prepare(driver, batch)
                await self._save()
            for info in infos:
                if not info.prepared:
                    info.prepared = True
                    self._journal.note_claim(info.key, "prepared", [each.id for each in info.devices])

    def _fetch(self, pod: PodRecord, name: str) -> Document:
        """Return a claim that the pod may use. Raises ClaimsError."""
        claim = self._life.kubelet.objects.store.find(_CLAIM, pod.namespace, name)
        if claim is None:
            text = f'resourceclaims.resource.k8s.io "{name}" not found'
            raise ClaimsError(f"prepare dynamic resources: fetch ResourceClaim {name}: {text}")
        status, uid = claim.get("status") or {}, claim["metadata"]["uid"]
        if all(each.get("uid") != pod.uid for each in status.get("reservedFor") or []):
            text = f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({uid})"
            raise ClaimsError(f"prepare dynamic resources: {text}")
        if not status.get("allocation"):
            raise ClaimsError(f"prepare dynamic resources: ResourceClaim {name}: not allocated")
        return claim

    def _info(self, claim: Document) -> ClaimInfo:
        """Return the record of a claim. Creates it if missing. Raises ClaimsError."""
        meta = claim["metadata"]
        key = meta["namespace"], meta["name"]
        info = self._claims.get(key)
        if info is None:
            # Record all drivers first, because Unprepare is also called for drivers whose Prepare failed.
            drivers: dict[str, tuple[PreparedDevice, ...]] = dict.fromkeys(_results(claim), ())
            info = self._claims[key] = ClaimInfo(meta["uid"], meta["name"], meta["namespace"], drivers=drivers)
        if info.uid != meta["uid"]:
            text = f"old ResourceClaim with same name {meta['name']} and different UID {info.uid} still exists"
            raise ClaimsError(f"prepare dynamic resources: {text} (previous pod force-deleted?!)")
        return info

    async def _prepare(self, driver: str, batch: list[tuple[ClaimInfo, Document]]) -> None:
        """Call NodePrepareResources of one driver, and record and check the responses. Raises ClaimsError."""
        answers = await self._call("prepare", driver, [info for info, _ in batch])
        find = self._journal.find
        for info, claim in batch:
            devices, results = answers[info.uid].devices, _results(claim)[driver]
            if self._client(driver, "prepare").service != "v1.DRAPlugin":  # v1beta1 has no field for shares
                results = [{**each, "shareID": ""} for each in results]
            find(answer_lint.prepared(driver, info.name, devices, results))
            others = {other.name: other.drivers.get(driver, ()) for other in self._claims.values() if other is not info}
            find(answer_lint.reused_cdi(driver, info.name, devices, others))
            before = info.drivers.get(driver)  # from an earlier kubelet process
            if before and _ids(before) == _ids(devices):  # otherwise, the claim was reallocated
                find(answer_lint.repeated(driver, "NodePrepareResources", info.name, before, devices))
            info.drivers[driver] = devices
        if self._cdi_dir is not None:
            names = [name for answer in answers.values() for device in answer.devices for name in device.cdi]
            wanted = Edits(cdi_devices=tuple(names))
            _, missing, _ = await asyncio.to_thread(cdi_directory.resolve, self._cdi_dir, wanted)
            if missing:
                text = f"CDI device {missing[0]} does not resolve; the runtime will refuse the container"
                find([error("cdi-unresolved", driver, text)])

    # --- unprepare --------------------------------------------------------------------------------------------------

    async def unprepare(self, uid: str, claims: Iterable[tuple[str, str]]) -> None:
        """Unprepare the claims (namespace and name) that no other pod uses. Raises ClaimsError."""
        keys = list(claims)
        async with self._locked(keys):
            found = [self._claims[key] for key in keys if key in self._claims]
            ended = [info for info in found if not info.pods - {uid}]
            for info in found:
                if info not in ended:
                    info.pods.discard(uid)
            for driver in dict.fromkeys(driver for info in ended for driver in info.drivers):
                await self._call("unprepare", driver, [info for info in ended if driver in info.drivers])
            for info in ended:
                self._claims.pop((info.namespace, info.name), None)
                self._journal.note_claim(info.key, "unprepared")
            await self._save()

    # --- health and reconciliation ------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        """Unprepare the claims of pods that no longer exist. The next reconciliation retries failures."""
        if (active := self._life.active()) is None:
            return
        for info in list(self._claims.values()):
            for uid in sorted(info.pods - active):
                try:
                    await self.unprepare(uid, [(info.namespace, info.name)])
                except ClaimsError:
                    break

    # --- calls --------------------------------------------------------------------------------------------------------

    def _client(self, driver: str, operation: str) -> DriverClient:
        try:
            return self.drivers.get(driver)
        except CallError as error:
            raise ClaimsError(f"{operation} dynamic resources: {error}") from None

    async def _call(self, operation: str, driver: str, infos: list[ClaimInfo]) -> Mapping[str, Answer]:
        """Call a driver, twice if `strict`. Returns the responses by claim UID. Raises ClaimsError."""
        client, method = self._client(driver, operation), f"Node{operation.title()}Resources"
        names = {info.uid: info.name for info in infos}
        prefix = f"{operation} dynamic resources: {method}"
        find = self._journal.find
        try:
            answers = await client.call(method, infos)
            find(answer_lint.keys(driver, method, names, list(answers)))
            for uid, answer in answers.items():
                if uid not in names:
                    raise ClaimsError(f"{prefix} returned result for unknown claim UID {uid}")
                if answer.error:
                    raise ClaimsError(f"{prefix} failed for ResourceClaim {names[uid]}: {answer.error}")
            if skipped := len(names) - len(answers):
                raise ClaimsError(f"{prefix} skipped {skipped} ResourceClaims")
            second = await client.call(method, infos) if self._life.kubelet.strict else answers
        except CallError as error:
            raise ClaimsError(f"{prefix}: {error}") from None
        for uid, name in names.items():
            find(answer_lint.repeated(driver, method, name, answers[uid], second.get(uid)))
        return answers


def _ids(devices: Iterable[PreparedDevice]) -> set[tuple[str, str, str]]:
    return {(each.pool, each.device, each.share) for each in devices}


def _results(claim: Document) -> dict[str, list[Document]]:
    """Return the allocated devices of a claim, by driver."""
    found: dict[str, list[Document]] = {}
    for result in claim["status"]["allocation"]["devices"].get("results") or []:
        found.setdefault(result["driver"], []).append(result)
    return found
