"""Which devices a container gets, and the calls that get them.

Owns the kubelet's order of choice (`select`) and the admission of one pod's containers (`Admission`): init containers
first, devices of finished init containers reused, one Allocate per container and resource. It works on the tables of
`state` and talks through the connection it is given; pods' lives are in `process`.
"""

import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from ...pb import deviceplugin_v1beta1_pb2 as api
from .. import lint
from ..journal import Journal
from ..objects.pods import ContainerSpec, Kind, PodSpec
from .device_table import DeviceTable
from .plugin_client import PluginClient, PluginError

Prefer = Callable[[set[str], set[str]], Awaitable[set[str]]]


class AdmissionError(Exception):
    """The device manager refuses. The text is the kubelet's, without what the pod's status puts around it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one container wants of one resource. `affinity` are the NUMA nodes to align with, None for no matter."""

    pod: str
    container: str
    resource: str
    count: int
    affinity: frozenset[int] | None = None


async def select(
    table: DeviceTable, claim: Claim, *, reusable: Iterable[str], dice: random.Random, prefer: Prefer
) -> set[str]:
    """Choose devices and mark them as allocated; empty if there is nothing to do. Raises AdmissionError.

    `prefer` asks the plugin: from the available ids and those already taken to the ids it would like.
    """
    resource = claim.resource
    needed = _needed(table, claim)
    taken: set[str] = set()

    def take(ids: Collection[str]) -> bool:
        """Take at random from `ids` until there are enough; the real kubelet's order is that of a Go map."""
        for id_ in dice.sample(sorted(ids), len(ids)):
            if len(taken) == needed:
                break
            if id_ not in taken:
                table.take(resource, id_)
                taken.add(id_)
        return len(taken) == needed

    if needed == 0 or take(set(reusable)):
        return taken
    available = table.healthy[resource] - table.allocated.get(resource, set())
    missing = needed - len(taken)
    if len(available) < missing:
        raise AdmissionError(
            f"requested number of devices unavailable for {resource}. Requested: {missing}, Available: {len(available)}"
        )
    aligned, unaligned, anywhere = _by_affinity(table, claim, available)
    if missing < len(aligned):
        enough = take(await prefer(aligned | taken, taken) & aligned) or take(aligned)
    else:
        enough = (
            take(aligned)
            or take(await prefer(available | taken, taken) & available)
            or take(unaligned)
            or take(anywhere)
        )
    if not enough:
        raise AdmissionError(
            f"unexpectedly allocated less resources than required. Requested: {claim.count}, Got: {len(taken)}"
        )
    return taken


class Admission:
    """Gets devices for containers, through the plugins that are connected now."""

    def __init__(
        self,
        table: DeviceTable,
        *,
        dice: random.Random,
        journal: Journal,
        client: Callable[[str], PluginClient | None],
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self._table = table
        self._dice = dice
        self._journal = journal
        self._client = client
        self._save = save
        self._reusable: dict[str, dict[str, set[str]]] = {}
        self._pending = ""
        self.in_flight: dict[str, set[str]] = {}

    def free(self, active: Collection[str]) -> None:
        """Forget what pods held that are not active (UIDs), but never the pod that was admitted last.

        It may be in the middle of its admission; as in the kubelet, the next pod's admission ends that.
        """
        self._table.free_all_but({*active, self._pending})

    async def admit(
        self,
        pod: PodSpec,
        container: ContainerSpec,
        *,
        active: Collection[str] | None,
        affinity: frozenset[int] | None,
        running: bool,
    ) -> int:
        """Allocate all that a container asks for; returns the number of Allocate calls.

        `active` are the UIDs of the pods that count, None while the kubelet starts and does not know; `running` says
        that the runtime had the container running then. Raises AdmissionError, PluginError, DeviceVanishedError.
        """
        self._pending = pod.uid
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}
        calls = await self.allocate(pod, container, active=active, affinity=affinity, running=running)
        for resource, held in self._table.holders.get(pod.uid, {}).get(container.name, {}).items():
            pool = self._reusable[pod.uid].setdefault(resource, set())
            if container.kind is Kind.INIT:
                pool |= held.ids
            else:
                pool -= held.ids
        return calls

    async def allocate(
        self,
        pod: PodSpec,
        container: ContainerSpec,
        *,
        active: Collection[str] | None,
        affinity: frozenset[int] | None = None,
        running: bool = False,
    ) -> int:
        """As `admit`, for a container that was admitted before but has nothing cached."""
        calls = 0
        wanted = [resource for resource in container.limits if self._table.is_plugin_resource(resource)]
        self._dice.shuffle(wanted)
        if wanted and active is not None:
            self.free(active)
        for resource in wanted:
            claim = Claim(pod.uid, container.name, resource, container.limits[resource], affinity)
            if running:
                _check_unchanged(claim, self._table.held(claim.pod, claim.container, claim.resource))
                continue
            calls += await self._allocate_one(claim)
        if calls:  # once per container, and not for one that failed
            await self._save()
        return calls

    async def _allocate_one(self, claim: Claim) -> int:
        resource = claim.resource
        reusable = self._reusable.get(claim.pod, {}).get(resource, set())
        ids = await select(
            self._table,
            claim,
            reusable=reusable,
            dice=self._dice,
            prefer=lambda available, taken: self._prefer(claim, available, taken),
        )
        if not ids:
            return 0
        if resource not in self._table.endpoints:
            self._table.recount()
            raise AdmissionError(f"unknown Device Plugin {resource}")
        flight = self.in_flight.setdefault(resource, set())
        flight |= ids
        try:
            response = await self._call_allocate(resource, ids)
            self._journal.find(lint.allocation(resource, response))
            if not response.container_responses:
                # The devices stay marked as allocated until the next recount, as in the real kubelet.
                raise AdmissionError("no containers return in allocation response ")  # Go prints the empty message
            encoded = response.container_responses[0].SerializeToString(deterministic=True)
            self._table.hold(claim.pod, claim.container, resource, ids, encoded)
        finally:
            flight -= ids
        return 1

    async def _call_allocate(self, resource: str, ids: set[str]) -> api.AllocateResponse:
        order = self._dice.sample(sorted(ids), len(ids))
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=order)])
        started = time.perf_counter()
        try:
            return await self._endpoint(resource).allocate(request)
        except (PluginError, AdmissionError):
            self._table.recount()
            raise
        finally:
            self._journal.metrics.alloc_seconds[resource].append(time.perf_counter() - started)

    async def _prefer(self, claim: Claim, available: set[str], taken: set[str]) -> set[str]:
        endpoint = self._table.endpoints.get(claim.resource)
        if endpoint is None or endpoint.options is None or not endpoint.options.preferred_allocation:
            return set()
        wanted = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._dice.sample(sorted(available), len(available)),
            must_include_deviceIDs=self._dice.sample(sorted(taken), len(taken)),
            allocation_size=claim.count,
        )
        try:
            client = self._endpoint(claim.resource)
            response = await client.preferred(api.PreferredAllocationRequest(container_requests=[wanted]))
        except (PluginError, AdmissionError) as error:
            raise AdmissionError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        self._journal.find(lint.preferred(claim.resource, wanted, response))
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def pre_start(self, pod: PodSpec, container: ContainerSpec, resource: str) -> None:
        """PreStartContainer, if the plugin asked for it; silently not after a kubelet restart until it is back.

        Raises AdmissionError with the text of the container's waiting state.
        """
        endpoint = self._table.endpoints.get(resource)
        if endpoint is None or endpoint.options is None or not endpoint.options.pre_start_required:
            return
        ids = self._table.held(pod.uid, container.name, resource)
        if ids is None:
            raise AdmissionError(
                f"no devices found allocated in local cache for pod {pod.uid}, "
                f"container {container.name}, resource {resource}"
            )
        order = self._dice.sample(sorted(ids), len(ids))
        try:
            await self._endpoint(resource).pre_start(api.PreStartContainerRequest(devices_ids=order))
        except (PluginError, AdmissionError) as error:
            raise AdmissionError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _endpoint(self, resource: str) -> PluginClient:
        endpoint = self._table.endpoints[resource]
        client = self._client(resource)
        if endpoint.stopped is not None or client is None:
            raise AdmissionError(f"endpoint {endpoint.socket} has been stopped")
        return client


def _needed(table: DeviceTable, claim: Claim) -> int:
    """How many devices the container lacks. The other refusals hold even where it lacks none, as in the kubelet."""
    resource = claim.resource
    before = table.held(claim.pod, claim.container, resource)
    _check_unchanged(claim, before)
    if resource not in table.healthy:
        raise AdmissionError(f"cannot allocate unregistered device {resource}")
    if not table.healthy[resource]:
        raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if not table.healthy[resource].issuperset(before or ()):
        raise AdmissionError(
            f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        )
    return claim.count - len(before or ())


def _check_unchanged(claim: Claim, before: frozenset[str] | None) -> None:
    if before is not None and len(before) != claim.count:
        raise AdmissionError(
            f'pod "{claim.pod}" container "{claim.container}" changed request for resource "{claim.resource}" '
            f"from {len(before)} to {claim.count}"
        )


def _by_affinity(table: DeviceTable, claim: Claim, available: set[str]) -> tuple[set[str], set[str], set[str]]:
    """Split into devices on the wanted NUMA nodes, on others, and without topology; all are alike without a hint."""
    if claim.affinity is None or not table.has_topology(claim.resource):
        return set(), set(), set(available)
    listed = table.devices[claim.resource]
    aligned = {id_ for id_ in available if claim.affinity.intersection(listed[id_].numa)}
    anywhere = {id_ for id_ in available if not listed[id_].numa}
    return aligned, available - aligned - anywhere, anywhere
