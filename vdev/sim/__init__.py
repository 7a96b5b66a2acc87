"""An embedded kubelet: the other side of a device plugin's socket, for tests and for trying things out.

It behaves as Kubernetes 1.36 does, is never kinder, and reports what the real one lets pass. It imports nothing of the
plugin, so that no mistake is shared. Start with `Kubelet`.
"""

from .client import Timings
from .clock import Clock, LeapClock, ManualClock, SystemClock
from .journal import Entry, Event
from .kubelet import Kubelet, KubeletPanic
from .lint import Finding, Severity
from .merge import DeviceNode, Edits, Mount
from .pods import ContainerStatus, Kind, ManifestError, Phase, PodStatus, manifest
from .registration import Compat
from .state import Capacity

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
