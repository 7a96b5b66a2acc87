"""Devices for the containers of a pod: one Allocate call per container and resource.

Init containers come first, and later containers of the pod reuse the devices of those that have finished.
`device_choice` chooses the ids. Refusals carry the kubelet's texts. When a pod is admitted is up to `pod_workers`.
"""

import random
from collections.abc import Callable, Collection

from ...pb import deviceplugin_v1beta1_pb2 as api
from .. import lint
from ..journal import Journal
from ..objects.pods import ContainerSpec, Kind, PodSpec
from .device_choice import AdmissionError, ContainerRequest, check_unchanged, select
from .device_table import DeviceTable
from .plugin_client import PluginClient, PluginError


class Allocator:
    """Gets devices for containers, through the plugins that are connected now.

    `active` gives the UIDs of the pods that count, None while the kubelet starts and does not know.
    """

    def __init__(
        self,
        table: DeviceTable,
        *,
        dice: random.Random,
        journal: Journal,
        client: Callable[[str], PluginClient | None],
        save: Callable[[], None],
        active: Callable[[], Collection[str] | None],
    ) -> None:
        self._active = active
        self._table = table
        self._dice = dice
        self._journal = journal
        self._client = client
        self._save = save
        self._reusable: dict[str, dict[str, set[str]]] = {}
        self._pending = ""
        self.in_flight: dict[str, set[str]] = {}

    def free(self) -> None:
        """Forget what pods held that are not active, but never the pod that was admitted last.

        It may be in the middle of its admission; as in the kubelet, the next pod's admission ends that. Nothing is
        freed before all pods are known: others would lose their devices.
        """
        active = self._active()
        if active is not None:
            self._table.free_all_but({*active, self._pending})

    async def admit(
        self,
        pod: PodSpec,
        container: ContainerSpec,
        *,
        affinity: frozenset[int] | None,
        running: bool,
    ) -> int:
        """Allocate all that a container asks for; returns the number of Allocate calls.

        `running` says that the runtime had the container running when the kubelet started. Raises AdmissionError,
        PluginError, DeviceVanishedError.
        """
        self._pending = pod.uid
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}
        calls = await self.allocate(pod, container, affinity=affinity, running=running)
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
        affinity: frozenset[int] | None = None,
        running: bool = False,
    ) -> int:
        """As `admit`, for a container that was admitted before but has nothing cached."""
        calls = 0
        wanted = [resource for resource in container.limits if self._table.is_plugin_resource(resource)]
        self._dice.shuffle(wanted)
        if wanted:
            self.free()
        for resource in wanted:
            request = ContainerRequest(pod.uid, container.name, resource, container.limits[resource], affinity)
            if running:
                check_unchanged(request, self._table.held(request.pod, request.container, request.resource))
                continue
            calls += await self._allocate_one(request)
        if calls:  # once per container, and not for one that failed
            self._save()
        return calls

    async def _allocate_one(self, request: ContainerRequest) -> int:
        resource = request.resource
        reusable = self._reusable.get(request.pod, {}).get(resource, set())
        ids = await select(
            self._table,
            request,
            reusable=reusable,
            dice=self._dice,
            prefer=lambda available, taken: self._prefer(request, available, taken),
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
            self._table.hold(request.pod, request.container, resource, ids, encoded)
        finally:
            flight -= ids
        return 1

    async def _call_allocate(self, resource: str, ids: set[str]) -> api.AllocateResponse:
        order = self._dice.sample(sorted(ids), len(ids))
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=order)])
        try:
            return await self._endpoint(resource).allocate(request)
        except (PluginError, AdmissionError):
            self._table.recount()
            raise

    async def _prefer(self, request: ContainerRequest, available: set[str], taken: set[str]) -> set[str]:
        endpoint = self._table.endpoints.get(request.resource)
        if endpoint is None or endpoint.options is None or not endpoint.options.get_preferred_allocation_available:
            return set()
        wanted = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._dice.sample(sorted(available), len(available)),
            must_include_deviceIDs=self._dice.sample(sorted(taken), len(taken)),
            allocation_size=request.count,
        )
        try:
            client = self._endpoint(request.resource)
            response = await client.preferred(api.PreferredAllocationRequest(container_requests=[wanted]))
        except (PluginError, AdmissionError) as error:
            raise AdmissionError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        self._journal.find(lint.preferred(request.resource, wanted, response))
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def pre_start(self, pod: PodSpec, container: ContainerSpec, resource: str) -> None:
        """Call PreStartContainer if the plugin asked for it; not between a kubelet restart and the next registration.

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
            # Go prints the whole endpoint, with addresses where we have none; it does not say which socket it was.
            raise AdmissionError(f"endpoint &{{{{{{}} {{0 0}}}} {resource} 0x0 {{0 0 0x0}} <nil>}} has been stopped")
        return client
