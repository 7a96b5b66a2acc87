"""An embedded kubelet for tests of device plugins and DRA drivers, and for experiments.

It behaves like Kubernetes 1.36, and reports mistakes that the real kubelet accepts silently. It shares no decisions
with the plugin, so they cannot share a mistake. Start with `Kubelet`.
"""

from ..aio.clock import Clock, LeapClock, ManualClock, SystemClock
from .api.kinds import Refused as ApiObjectError
from .api.store import ApiObjects
from .device_manager.device_table import Capacity, KubeletPanic
from .dra.driver_registry import DriverStatus
from .journal import Entry, Event
from .kubelet.kubelet import Kubelet
from .kubelet_life import Compat, Timings
from .lint import Finding, Severity
from .objects.pod_manifest import ManifestError, manifest
from .objects.pods import ContainerStatus, DeviceNode, Edits, Kind, Mount, Phase, PodStatus

__all__ = [
    "ApiObjectError",
    "ApiObjects",
    "Capacity",
    "Clock",
    "Compat",
    "ContainerStatus",
    "DeviceNode",
    "DriverStatus",
    "Edits",
    "Entry",
    "Event",
    "Finding",
    "Kind",
    "Kubelet",
    "KubeletPanic",
    "LeapClock",
    "ManifestError",
    "ManualClock",
    "Mount",
    "Phase",
    "PodStatus",
    "Severity",
    "SystemClock",
    "Timings",
    "manifest",
]
