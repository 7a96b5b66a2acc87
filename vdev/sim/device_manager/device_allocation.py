"""Allocates devices to the containers of a pod, with one Allocate call per container and resource.

Init containers come first, and later containers of the pod reuse their devices. `device_choice` chooses the ids.
"""

import random
from collections.abc import Callable, Collection

from ...pb import deviceplugin_v1beta1_pb2 as api
from .. import lint
from ..go_errors import CallError
from ..journal import Journal
from ..objects.pods import ContainerSpec, Kind, PodSpec
from .device_choice import AdmissionError, ContainerRequest, check_unchanged, select
from .device_table import DeviceTable
from .plugin_client import PluginClient


class Allocator:
    """Allocates devices through the connected plugins.

    Args:
        table: the device manager's state
        rng: for the choices that are random in the real kubelet
        journal: gets findings
        client: the connection to the plugin of a resource
        save: writes the checkpoint
        active: the UIDs of active pods; None if the kubelet does not know all pods yet
    """

    def __init__(
        self,
        table: DeviceTable,
        *,
        rng: random.Random,
        journal: Journal,
        client: Callable[[str], PluginClient | None],
        save: Callable[[], None],
        active: Callable[[], Collection[str] | None],
    ) -> None:
        self._active = active
        self._table = table
        self._rng = rng
        self._journal = journal
        self._client = client
        self._save = save
        self._reusable: dict[str, dict[str, set[str]]] = {}  # by pod UID and resource: devices of init containers
        self._pending = ""  # the UID of the pod that was admitted last
        self.in_flight: dict[str, set[str]] = {}  # by resource: ids in Allocate calls that have not been answered

    def free(self) -> None:
        """Free the devices of pods that are not active.

        As in the kubelet, the pod that was admitted last counts as active, because its admission may go on. Nothing is
        freed before all pods are known.
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
        """Allocate the devices of a container; returns the number of Allocate calls.

        `running`: the container was running when the kubelet started. Raises AdmissionError, CallError,
        KubeletPanic.
        """
        self._pending = pod.uid
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}  # another pod's pool is dropped, as in the kubelet
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
        """Allocate the devices of a container that was admitted before, but has none in the table."""
        calls = 0
        wanted = [resource for resource in container.limits if self._table.is_plugin_resource(resource)]
        self._rng.shuffle(wanted)
        if wanted:
            self.free()
        for resource in wanted:
            request = ContainerRequest(pod.uid, container.name, resource, container.limits[resource], affinity)
            if running:
                check_unchanged(request, self._table.held(request.pod, request.container, request.resource))
                continue
            calls += await self._allocate_one(request)
        if calls:  # like the kubelet, once per container, and not after a failure
            self._save()
        return calls

    async def _allocate_one(self, request: ContainerRequest) -> int:
        resource = request.resource
        reusable = self._reusable.get(request.pod, {}).get(resource, set())
        ids = await select(
            self._table,
            request,
            reusable=reusable,
            rng=self._rng,
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
        order = self._rng.sample(sorted(ids), len(ids))
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=order)])
        try:
            return await self._endpoint(resource).allocate(request)
        except (CallError, AdmissionError):
            self._table.recount()
            raise

    async def _prefer(self, request: ContainerRequest, available: set[str], taken: set[str]) -> set[str]:
        endpoint = self._table.endpoints.get(request.resource)
        if endpoint is None or endpoint.options is None or not endpoint.options.get_preferred_allocation_available:
            return set()
        wanted = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._rng.sample(sorted(available), len(available)),
            must_include_deviceIDs=self._rng.sample(sorted(taken), len(taken)),
            allocation_size=request.count,
        )
        try:
            client = self._endpoint(request.resource)
            response = await client.preferred(api.PreferredAllocationRequest(container_requests=[wanted]))
        except (CallError, AdmissionError) as error:
            raise AdmissionError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        self._journal.find(lint.preferred(request.resource, wanted, response))
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def pre_start(self, pod: PodSpec, container: ContainerSpec, resource: str) -> None:
        """Call PreStartContainer if the plugin asks for it. Raises AdmissionError.

        As in the kubelet, it is not called between a kubelet restart and the plugin's registration.
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
        order = self._rng.sample(sorted(ids), len(ids))
        try:
            await self._endpoint(resource).pre_start(api.PreStartContainerRequest(devices_ids=order))
        except (CallError, AdmissionError) as error:
            raise AdmissionError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _endpoint(self, resource: str) -> PluginClient:
        endpoint = self._table.endpoints[resource]
        client = self._client(resource)
        if endpoint.stopped is not None or client is None:
            # Go prints the whole structure; its addresses are zeros here.
            raise AdmissionError(f"endpoint &{{{{{{}} {{0 0}}}} {resource} 0x0 {{0 0 0x0}} <nil>}} has been stopped")
        return client
