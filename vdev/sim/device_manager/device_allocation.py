"""Allocates devices to the containers of a pod, with one Allocate call per container and resource.

Init containers come first, and later containers of the pod reuse their devices. As in the kubelet, a container gets
reusable devices first, then devices on the requested NUMA nodes, then devices that the plugin prefers. The remaining
choice is random, because it depends on the order of a Go map in the real kubelet.
"""

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from ...pb import deviceplugin_v1beta1_pb2 as api
from .. import lint
from ..connection import CallError
from ..kubelet.node_state import PodRecord
from ..kubelet_life import Life
from ..objects.pods import ContainerStatus, DeviceNode, Edits, Kind, Mount
from .registration_server import PluginClient

_V = TypeVar("_V")


class AdmissionError(Exception):
    """The device manager rejects a container. The text is the kubelet's, without the pod status prefix."""


class Allocator:
    def __init__(self, life: Life) -> None:
        self._table = life.table
        self._life = life
        self._rng = life.rng
        self._journal = life.journal
        self._reusable: dict[str, dict[str, set[str]]] = {}  # devices of init containers, by pod UID and resource
        self._pending = ""  # the UID of the last admitted pod

    def free(self) -> None:
        """Free the devices of pods that are not active.

        As in the kubelet, the last admitted pod counts as active, because its admission may still be in progress.
        Nothing is freed before all pods are known.
        """
        active = self._life.active()
        if active is None:
            return
        table = self._table
        kept = {key: held for key, held in table.holders.items() if held.pod in active or held.pod == self._pending}
        if len(kept) < len(table.holders):
            table.holders = kept
            table.recount()

    async def admit(self, pod: PodRecord, container: ContainerStatus) -> None:
        """Allocate the devices of a container.

        A container that was running when the kubelet started keeps its devices without checks. Raises AdmissionError,
        CallError, KubeletPanic.
        """
        self._pending = pod.uid
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}  # drops other pods' entries, as in the kubelet
        if self._life.pods_known or not container.running:
            await self.allocate(pod, container)
        for held in self._table.held_by(pod.uid, container.name):
            pool = self._reusable[pod.uid].setdefault(held.resource, set())
            if container.kind is Kind.INIT:
                pool |= held.ids
            else:
                pool -= held.ids

    async def allocate(self, pod: PodRecord, container: ContainerStatus) -> None:
        """Allocate the devices of an admitted container that has no devices in the table yet."""
        limits, before = pod.spec.container(container.name).limits, container.allocations
        wanted = [resource for resource in limits if self._table.is_plugin_resource(resource)]
        self._rng.shuffle(wanted)
        if wanted:
            self.free()
        for resource in wanted:
            if ids := await self._choose(pod, container, resource, limits[resource]):
                await self._allocate(pod, container, resource, ids)
        if container.allocations > before:  # like the kubelet, once per container, and not after a failure
            self._life.save()

    async def _allocate(self, pod: PodRecord, container: ContainerStatus, resource: str, ids: set[str]) -> None:
        """Call Allocate for the chosen devices, and record that the container holds them."""
        flight = self._table.in_flight.setdefault(resource, set())
        flight |= ids
        try:
            request = api.ContainerAllocateRequest(devices_ids=self._shuffled(ids))
            try:
                response: api.AllocateResponse = await self._endpoint(resource).call(
                    "Allocate", api.AllocateRequest(container_requests=[request])
                )
            except CallError:
                self._table.recount()
                raise
            self._journal.find(lint.allocation(resource, response))
            if not response.container_responses:
                # The devices stay marked as allocated until the next recount, as in the real kubelet.
                raise AdmissionError("no containers return in allocation response ")  # Go prints the empty message
            encoded = response.container_responses[0].SerializeToString(deterministic=True)
            self._table.hold(pod.uid, container.name, resource, ids, encoded)
            container.allocations += 1
        finally:
            flight -= ids

    async def _choose(self, pod: PodRecord, container: ContainerStatus, resource: str, count: int) -> set[str]:
        """Choose devices and mark them as allocated; empty if the container already has them. Raises AdmissionError.

        As in the kubelet, a container can be rejected even if it already has its devices.
        """
        table = self._table
        before = table.held(pod.uid, container.name, resource)
        if resource not in table.healthy:
            raise AdmissionError(f"cannot allocate unregistered device {resource}")
        if not table.healthy[resource]:
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not table.healthy[resource].issuperset(before or ()):
            text = f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            raise AdmissionError(text)
        if before is not None:
            return set()
        taken: set[str] = set()

        def take(ids: Collection[str]) -> None:
            """Take ids in random order until the container has enough."""
            for id_ in self._rng.sample(sorted(ids), len(ids)):
                if len(taken) < count and id_ not in taken:
                    table.allocated.setdefault(resource, set()).add(id_)
                    taken.add(id_)

        take(self._reusable.get(pod.uid, {}).get(resource, set()))
        missing = count - len(taken)
        if not missing:
            return taken
        available = table.healthy[resource] - table.allocated.get(resource, set())
        if len(available) < missing:
            text = f"requested number of devices unavailable for {resource}."
            raise AdmissionError(f"{text} Requested: {missing}, Available: {len(available)}")
        aligned, unaligned, anywhere = table.by_affinity(resource, pod.affinity, available)
        if missing < len(aligned):
            take(await self._preferred(resource, count, aligned | taken, taken) & aligned)
            take(aligned)
            return taken
        take(aligned)
        if len(taken) < count:
            take(await self._preferred(resource, count, available | taken, taken) & available)
            take(unaligned)
            take(anywhere)
        return taken

    async def _preferred(self, resource: str, count: int, available: set[str], taken: set[str]) -> set[str]:
        """Call GetPreferredAllocation if supported. `available` includes `taken`. Raises AdmissionError."""
        endpoint = self._table.endpoints.get(resource)
        if endpoint is None or not endpoint.options.get_preferred_allocation_available:
            return set()
        wanted = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._shuffled(available),
            must_include_deviceIDs=self._shuffled(taken),
            allocation_size=count,
        )
        request = api.PreferredAllocationRequest(container_requests=[wanted])
        response: api.PreferredAllocationResponse = await self._call(resource, "GetPreferredAllocation", request)
        self._journal.find(lint.preferred(resource, wanted, response))
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def pre_start(self, pod: PodRecord, container: ContainerStatus, resource: str) -> None:
        """Call PreStartContainer if the plugin requires it. Raises AdmissionError.

        As in the kubelet, it is not called between a kubelet restart and the plugin's registration.
        """
        endpoint = self._table.endpoints.get(resource)
        if endpoint is None or not endpoint.options.pre_start_required:
            return
        ids = self._table.held(pod.uid, container.name, resource)
        if ids is None:
            raise AdmissionError(
                f"no devices found allocated in local cache for pod {pod.uid}, "
                f"container {container.name}, resource {resource}"
            )
        request = api.PreStartContainerRequest(devices_ids=self._shuffled(ids))
        # The real kubelet sets a deadline only for this call.
        await self._call(resource, "PreStartContainer", request, timeout=self._life.timings.pre_start)

    async def _call(self, resource: str, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """Call a method of a plugin. Raises AdmissionError."""
        try:
            return await self._endpoint(resource).call(method, request, timeout=timeout)
        except CallError as error:
            raise AdmissionError(f"device plugin {method} rpc failed with err: {error}") from error

    def _endpoint(self, resource: str) -> PluginClient:
        endpoint = self._table.endpoints.get(resource)
        if endpoint is None or endpoint.stopped is not None or endpoint.client is None:
            # Go prints the whole structure; here its addresses are zero.
            raise CallError(f"endpoint &{{{{{{}} {{0 0}}}} {resource} 0x0 {{0 0 0x0}} <nil>}} has been stopped")
        return endpoint.client

    def _shuffled(self, ids: Collection[str]) -> list[str]:
        return self._rng.sample(sorted(ids), len(ids))


def merge(responses: Iterable[tuple[str, api.ContainerAllocateResponse]]) -> tuple[Edits, list[str]]:
    """Merge the Allocate responses of a container by resource. Also returns the conflicts as texts.

    For the same variable, path, annotation or CDI name, the first response wins. The kubelet merges in random order,
    and only logs conflicts.
    """
    envs: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    nodes: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    cdi: dict[str, None] = {}
    conflicts: list[str] = []

    def put(kind: str, table: dict[str, _V], key: str, value: _V, resource: str) -> None:
        if table.setdefault(key, value) != value:
            conflicts.append(f"{kind} {key}: {resource} gives {value!r}, but another resource gives {table[key]!r}")

    for resource, response in responses:
        for name, text in sorted(response.envs.items()):
            put("environment variable", envs, name, text, resource)
        for spec in response.devices:
            node = DeviceNode(spec.host_path, spec.container_path, spec.permissions)
            put("device", nodes, spec.container_path, node, resource)
        for item in response.mounts:
            mount = Mount(item.host_path, item.container_path, item.read_only)
            put("mount", mounts, item.container_path, mount, resource)
        for name, text in sorted(response.annotations.items()):
            put("annotation", annotations, name, text, resource)
        cdi.update(dict.fromkeys(device.name for device in response.cdi_devices))
    return Edits(envs, tuple(mounts.values()), tuple(nodes.values()), annotations, tuple(cdi)), conflicts
