"""What an embedded kubelet shows: its places on disk, the node, pods, drivers, and what happened."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ...errors import UsageError
from ..device_manager.device_table import DeviceTable
from ..dra.driver_registry import DriverStatus
from ..journal import Event, Journal, Metrics
from ..lint import Finding, Severity
from ..objects.node_devices import Capacity
from ..objects.pods import PodStatus
from .kubelet_directory import KubeletPaths
from .kubelet_process import KubeletProcess
from .node_status import NodeStatus
from .pod_records import PodStore

_POLL_FIRST, _POLL_MOST = 0.001, 0.05  # seconds


class KubeletView:
    """The part of a kubelet that changes nothing. What it shows outlives the process, which may be down."""

    journal: Journal
    _root: Path | None
    _process: KubeletProcess | None
    _store: PodStore
    _node: NodeStatus

    @property
    def alive(self) -> bool:
        """Whether the kubelet process runs."""
        return self._process is not None and self._process.alive

    @property
    def ready(self) -> bool:
        """Whether the kubelet has learned of its pods since its start, and admitted them."""
        return self._process is not None and self._process.sources_ready

    # --- places --------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's directory, for `vdev run --kubelet-dir`. Without `root=`, it exists after the first start."""
        if self._root is None:
            raise UsageError("the kubelet has no directory before its first start; start it, or pass root")
        return self._root

    @property
    def device_plugin_dir(self) -> Path:
        """Where plugins put their sockets."""
        return KubeletPaths(self.root).device_plugins

    @property
    def socket(self) -> Path:
        """Where plugins register."""
        return KubeletPaths(self.root).registration_socket

    @property
    def pod_resources_socket(self) -> Path:
        """Where the PodResources API is served."""
        return KubeletPaths(self.root).pod_resources_socket

    # --- what it shows -------------------------------------------------------------------------------------------

    def node(self) -> Capacity:
        """Capacity and allocatable of plugin resources in the node status, as of the last tick."""
        return self._node.shown

    def devices(self) -> Capacity:
        """The same in the device manager, now; empty while the kubelet is down."""
        return Capacity({}, {}) if self._process is None else self._process.table.view()

    def drivers(self) -> dict[str, list[DriverStatus]]:
        """The registered instances of DRA drivers by name, oldest first; empty while the kubelet is down."""
        registry = None if self._process is None else self._process.dra.drivers
        return {} if registry is None else {name: registry.instances(name) for name in registry.names()}

    def listed(self) -> dict[str, dict[str, str]]:
        """The current lists of connected plugins: by resource, health by device id."""
        table = DeviceTable() if self._process is None else self._process.table
        return {
            resource: {id_: each.health for id_, each in devices.items()}
            for resource, devices in table.devices.items()
            if table.lists_now(resource)
        }

    @property
    def findings(self) -> list[Finding]:
        """Mistakes that the real kubelet would not have reported, oldest first."""
        return list(self.journal.findings)

    @property
    def errors(self) -> list[Finding]:
        """The findings that break something; a test that ends with `assert not kubelet.errors` is a good test."""
        return [finding for finding in self.journal.findings if finding.severity is Severity.ERROR]

    @property
    def events(self) -> list[Event]:
        """The Warning events on pods, oldest first."""
        return list(self.journal.events)

    @property
    def metrics(self) -> Metrics:
        """The kubelet's counters."""
        return self.journal.metrics

    async def wait_until(self, condition: Callable[[], object], *, timeout: float = 30.0, what: str = "") -> None:
        """Return once `condition()` is true; it is called at every change. TimeoutError describes the whole node."""
        pause = _POLL_FIRST
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self.journal.next_change(at_most=pause)  # a condition may be about other things, too
                    pause = min(2 * pause, _POLL_MOST)  # which mostly come soon or take their time
        except TimeoutError:
            raise TimeoutError(f"waited {timeout:g} s for {what or 'a condition'}; {self._in_words()}") from None

    def pod(self, name: str, *, namespace: str = "default") -> PodStatus:
        """A pod as it is now. KeyError if there is none."""
        return self._store.record(name, namespace).status()

    def pods(self) -> list[PodStatus]:
        """All pods, in the order of their creation."""
        return [record.status() for record in self._store.records.values()]

    def _in_words(self) -> str:
        node = self._node.shown
        shown = [f"{pod.spec.key}: {pod.phase.value} {pod.message}".rstrip() for pod in self.pods()]
        return (
            f"node {dict(node.capacity)} capacity, {dict(node.allocatable)} allocatable; "
            f"pods {shown}; findings {[str(f) for f in self.findings]}"
        )
