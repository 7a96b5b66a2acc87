"""The record of what happened: entries, findings, Warning events on pods, and counters.

It outlives kubelet processes, as the API server's records do, and notifies listeners. `render` turns entries into text.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from .lint import Finding
from .objects.node_devices import Capacity, PluginOptions
from .objects.pods import PodStatus

KEPT_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The kubelet started, stopped, crashed or panicked. `detail` says more, where there is more."""

    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """A plugin registered; `again` if the resource was known before."""

    resource: str
    endpoint: str
    options: PluginOptions
    again: bool = False


@dataclass(frozen=True, slots=True)
class RegistrationWaits:
    """A plugin called Register, and for a second nothing has answered at its socket."""

    resource: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """A registration was answered with an error, whose text this is."""

    resource: str
    endpoint: str
    error: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A device list arrived."""

    resource: str
    healthy: int
    unhealthy: int


@dataclass(frozen=True, slots=True)
class PluginLost:
    """A ListAndWatch stream ended; all devices of the resource became unhealthy."""

    resource: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """The node status changed."""

    node: Capacity


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod's status changed."""

    pod: PodStatus


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod is gone."""

    pod: PodStatus


@dataclass(frozen=True, slots=True)
class ManifestRefused:
    """A file in the pods directory is wrong, at this line if it is known, else 0."""

    path: str
    error: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class PodWaiting:
    """A pod of the directory waits to be scheduled; `reason` is what the scheduler would say."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class DriverRegistered:
    """A DRA driver registered; `service` is what the kubelet calls of it."""

    driver: str
    endpoint: str
    service: str


@dataclass(frozen=True, slots=True)
class DriverRefused:
    """A plugin of plugins_registry was not registered; this is the kubelet's error."""

    socket: str
    error: str


@dataclass(frozen=True, slots=True)
class DriverGone:
    """A registered DRA driver is no longer there: `why` says what went."""

    driver: str
    endpoint: str
    why: str


@dataclass(frozen=True, slots=True)
class SlicesDeleted:
    """The kubelet deleted ResourceSlices of its node: of one driver, or of all (empty)."""

    driver: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class ClaimChanged:
    """A claim was allocated, prepared, unprepared or released. `devices` are `driver/pool/device`."""

    claim: str
    what: str
    devices: tuple[str, ...] = ()


Entry: TypeAlias = (
    Lifecycle
    | Registered
    | RegistrationWaits
    | RegistrationFailed
    | Listed
    | PluginLost
    | NodeChanged
    | PodChanged
    | PodDeleted
    | ManifestRefused
    | PodWaiting
    | DriverRegistered
    | DriverRefused
    | DriverGone
    | SlicesDeleted
    | ClaimChanged
    | Finding
)


@dataclass(frozen=True, slots=True)
class Event:
    """A Warning event on a pod, as `kubectl describe` shows it."""

    pod: str
    reason: str
    message: str


@dataclass(slots=True)
class Metrics:
    """The kubelet's counters that concern devices, by their label value (section of the real metric's name)."""

    registrations: Counter[str] = field(default_factory=Counter)  # device_plugin_registration_total{resource_name}
    watched: Counter[str] = field(default_factory=Counter)  # device plugins of plugins_registry, which no metric counts
    alloc_seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    admission_rejections: Counter[str] = field(default_factory=Counter)  # admission_rejections_total{reason}
    pod_resources_requests: Counter[str] = field(default_factory=Counter)  # by method: list, get, get_allocatable
    pod_resources_errors: Counter[str] = field(default_factory=Counter)
    driver_calls: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # driver, method, gRPC status code


class Journal:
    """The record of one embedded kubelet, over all its restarts."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=KEPT_ENTRIES)
        self.findings: list[Finding] = []
        self.events: list[Event] = []
        self.metrics = Metrics()
        self._listeners: list[Callable[[Entry], None]] = []
        self._changed = asyncio.Event()

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Call `listener` with each entry from now on, on the event loop; it must not block."""
        self._listeners.append(listener)

    def note(self, entry: Entry) -> None:
        """Record an entry and notify listeners."""
        self.entries.append(entry)
        for listener in self._listeners:
            listener(entry)
        self.changed()

    def find(self, findings: Iterable[Finding]) -> None:
        """Record findings, except those recorded already."""
        for finding in findings:
            if finding not in self.findings:
                self.findings.append(finding)
                self.note(finding)

    def changed(self) -> None:
        """Wake all that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def next_change(self, *, at_most: float | None = None) -> None:
        """Return at the next change, or after `at_most` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._changed.wait()
