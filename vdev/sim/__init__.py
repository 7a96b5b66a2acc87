"""An embedded kubelet: the other side of a device plugin's socket, for tests and for trying things out.

It behaves as Kubernetes 1.36 does, is never kinder, and reports what the real one lets pass. It imports nothing of the
plugin, so that no mistake is shared. Start with `Kubelet`.
"""

from .clock import Clock, LeapClock, ManualClock, SystemClock
from .device_manager.device_table import Capacity
from .device_manager.plugin_client import Timings
from .device_manager.registration_server import Compat
from .journal import Entry, Event
from .kubelet.kubelet import Kubelet, KubeletPanic
from .lint import Finding, Severity
from .objects.container_edits import DeviceNode, Edits, Mount
from .objects.pods import ContainerStatus, Kind, ManifestError, Phase, PodStatus, manifest

__all__ = [
    "Capacity",
    "Clock",
    "Compat",
    "ContainerStatus",
    "DeviceNode",
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
