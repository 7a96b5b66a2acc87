"""Failures on demand, as values: what happens. `fault_rules` says to which devices, on which nodes, and when.

Device faults are applied by the agent, the others by the code that asks `faults.engine` through its hooks, which
answer with `fault_answers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class FaultKind(StrEnum):
    """The part of the plugin that a rule breaks."""

    DEVICE = "device"
    RPC = "rpc"
    REGISTER = "register"
    STREAM = "stream"
    SOCKET = "socket"
    CDI = "cdi"
    POD_RESOURCES = "podResources"
    PROCESS = "process"
    EVENT = "event"
    CONDITION = "condition"
    API = "api"
    SLICES = "slices"
    HEALTH_STREAM = "healthStream"


class Rpc(StrEnum):
    """The calls that the kubelet makes on a device plugin."""

    OPTIONS = "GetDevicePluginOptions"
    LIST = "ListAndWatch"
    PREFERRED = "GetPreferredAllocation"
    ALLOCATE = "Allocate"
    PRE_START = "PreStartContainer"


class ClaimCall(StrEnum):
    """The calls that the kubelet makes on a DRA driver, about claims."""

    PREPARE = "NodePrepareResources"
    UNPREPARE = "NodeUnprepareResources"


class Code(StrEnum):
    """The gRPC status codes that mean an error."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


# --- what happens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetHealth:
    """The device is reported Healthy or Unhealthy, whatever its probes find."""

    healthy: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Flap:
    """The device is Healthy for `up` seconds, then Unhealthy for `down` seconds, and so on."""

    up: float
    down: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Remove:
    """The device is unplugged. While a pod may hold it its id stays listed as Unhealthy, unless `drop_held`, which
    drops it all the same and can crash a 1.36 kubelet.
    """

    drop_held: bool = False


@dataclass(frozen=True, slots=True)
class Xid:
    """The driver reports an error of this number of the device; `health` None leaves its health alone."""

    number: int
    health: SetHealth | None = None


@dataclass(frozen=True, slots=True)
class SetTaint:
    """The device has this taint in ResourceSlices, whatever its health; `effect` is NoSchedule, NoExecute or None."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Overheat:
    """The device comes to the temperature `to` (°C) within so many seconds, whatever its load."""

    to: float
    within: float


@dataclass(frozen=True, slots=True)
class CountErrors:
    """The device counts so many errors a minute: of its memory, corrected or not, packets sent again, rows lost."""

    corrected: float = 0.0
    uncorrected: float = 0.0
    replays: float = 0.0
    remapped: float = 0.0


SensorFault = Overheat | CountErrors
"""What only a device's sensors and counters show."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds that a call waits: half of all calls less than `median`, none more than `most`."""

    median: float
    most: float


class FaultyAnswer(StrEnum):
    """How an answer is wrong on purpose."""

    EMPTY = "empty"  # no container responses at all
    BOGUS_IDS = "bogusIds"  # devices that nobody listed
    OVERSIZED = "oversized"  # more than the 4 MiB that the kubelet receives


class FaultyClaims(StrEnum):
    """How an answer about claims is wrong on purpose."""

    WRONG_DEVICE = "wrongDevice"  # another device than the allocated one
    SKIP_CLAIM = "skipClaim"  # the first claim is not in it


@dataclass(frozen=True, slots=True)
class Fail:
    """The call ends with an error."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of these RPCs wait, and then are answered as they should be, hang until cancelled, fail, or are answered
    wrong. Of calls about claims, `refuse` is the error of each claim in the answer.
    """

    rpcs: frozenset[Rpc | ClaimCall]
    delay: Delay | None = None
    hang: bool = False
    fail: Fail | None = None
    faulty_answer: FaultyAnswer | None = None
    faulty_claims: FaultyClaims | None = None
    refuse: str = ""


@dataclass(frozen=True, slots=True)
class Register:
    """Registrations are `delay` seconds late, are never made, name another version of the API, or are made twice."""

    delay: float = 0.0
    never: bool = False
    version: str = ""
    twice: bool = False


class StreamFault(StrEnum):
    """What becomes of the ListAndWatch streams."""

    CLOSE = "close"
    STALL = "stall"
    DUPLICATE_IDS = "duplicateIds"
    FLOOD = "flood"
    OVERSIZED = "oversized"


@dataclass(frozen=True, slots=True)
class Stream:
    """The streams end, say nothing new, list each id twice, repeat the list `rate` times a second, or pass 4 MiB."""

    fault: StreamFault
    rate: float = 0.0


class SocketFault(StrEnum):
    """What becomes of a resource's socket file."""

    DELETE = "delete"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Socket:
    """The resource's socket file is deleted, or replaced by one that nobody answers on."""

    fault: SocketFault


class CdiFault(StrEnum):
    """What becomes of the CDI specification files."""

    MISSING = "missing"
    LATE = "late"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Cdi:
    """The resource's CDI file is missing, comes `delay` seconds after it is needed, or is cut off in the middle."""

    fault: CdiFault
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class PodResources:
    """The kubelet's PodResources API does not answer this plugin."""


@dataclass(frozen=True, slots=True)
class Process:
    """The plugin's process ends at once with this exit code, as if it had been killed."""

    exit: int


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about the Node, once at each beginning."""

    reason: str
    message: str
    warning: bool = True


@dataclass(frozen=True, slots=True)
class SetCondition:
    """The Node has this condition, whatever its devices say."""

    type: str
    status: bool
    reason: str
    message: str


class ApiVerb(StrEnum):
    """What the plugin does with the API server, in RBAC's words."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"


class ApiResource(StrEnum):
    """What it does that with, in RBAC's words."""

    NODES = "nodes"
    NODES_STATUS = "nodes/status"
    EVENTS = "events"
    PODS = "pods"
    RESOURCE_SLICES = "resourceslices"
    RESOURCE_CLAIMS = "resourceclaims"
    RESOURCE_CLAIMS_STATUS = "resourceclaims/status"


ApiRequest = tuple[ApiVerb, ApiResource]

API_REQUESTS: frozenset[ApiRequest] = frozenset(
    {
        *((verb, ApiResource.NODES) for verb in (ApiVerb.GET, ApiVerb.LIST, ApiVerb.WATCH, ApiVerb.PATCH)),
        (ApiVerb.PATCH, ApiResource.NODES_STATUS),
        (ApiVerb.CREATE, ApiResource.EVENTS),
        (ApiVerb.LIST, ApiResource.PODS),
        (ApiVerb.WATCH, ApiResource.PODS),
        (ApiVerb.PATCH, ApiResource.EVENTS),
        *((verb, ApiResource.RESOURCE_SLICES) for verb in ApiVerb if verb not in (ApiVerb.GET, ApiVerb.PATCH)),
        (ApiVerb.GET, ApiResource.RESOURCE_CLAIMS),
        (ApiVerb.PATCH, ApiResource.RESOURCE_CLAIMS_STATUS),
    }
)
"""All requests that the plugin makes."""


@dataclass(frozen=True, slots=True)
class ApiFailure:
    """The API server answers requests of these verbs and resources (none: of all) with an HTTP status, 0 for none at
    all; `after` seconds it asks to wait.
    """

    status: int = 0
    after: int | None = None
    verbs: frozenset[ApiVerb] = frozenset()
    resources: frozenset[ApiResource] = frozenset()

    def concerns(self, verb: str, resource: str) -> bool:
        return (not self.verbs or verb in self.verbs) and (not self.resources or resource in self.resources)

    @property
    def requests(self) -> frozenset[ApiRequest]:
        """Those of the plugin's requests that it is about."""
        return frozenset(each for each in API_REQUESTS if self.concerns(*each))

    @property
    def ends_watches(self) -> bool:
        """Whether a watch that is open must end, since it could not begin."""
        return any(verb is ApiVerb.WATCH for verb, _ in self.requests)


class SliceFault(StrEnum):
    """What becomes of a driver's ResourceSlices."""

    LATE = "late"
    WITHHELD = "withheld"
    INCOMPLETE = "incomplete"
    OLD_GENERATION = "oldGeneration"
    DUPLICATE_NAME = "duplicateName"
    WIPED = "wiped"


@dataclass(frozen=True, slots=True)
class Slices:
    """What changes in the slices is written `delay` seconds late, or not at all; the pool has fewer slices than it
    says, one of an older generation, or a device twice; or its slices are deleted.
    """

    fault: SliceFault
    delay: float = 0.0


class HealthStreamFault(StrEnum):
    """What becomes of the health streams: nothing comes any more, or they end."""

    SILENT = "silent"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class HealthStream:
    """The streams on which a DRA driver tells the health of its devices say nothing more, or end."""

    fault: HealthStreamFault


Effect = (
    SetHealth
    | Flap
    | Remove
    | Xid
    | SetTaint
    | Overheat
    | CountErrors
    | Call
    | Register
    | Stream
    | Socket
    | Cdi
    | PodResources
    | Process
    | NodeEvent
    | SetCondition
    | ApiFailure
    | Slices
    | HealthStream
)

KINDS: Mapping[type, FaultKind] = MappingProxyType(
    {
        **dict.fromkeys((SetHealth, Flap, Remove, Xid, SetTaint, Overheat, CountErrors), FaultKind.DEVICE),
        Call: FaultKind.RPC,
        Register: FaultKind.REGISTER,
        Stream: FaultKind.STREAM,
        Socket: FaultKind.SOCKET,
        Cdi: FaultKind.CDI,
        PodResources: FaultKind.POD_RESOURCES,
        Process: FaultKind.PROCESS,
        NodeEvent: FaultKind.EVENT,
        SetCondition: FaultKind.CONDITION,
        ApiFailure: FaultKind.API,
        Slices: FaultKind.SLICES,
        HealthStream: FaultKind.HEALTH_STREAM,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """What happens to one call: it waits `delay` seconds, then the rest of the effect."""

    rule: str
    effect: Call
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class XidError:
    """An Xid that a device has now, and the rule that says so."""

    number: int
    rule: str
