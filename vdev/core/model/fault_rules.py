"""Failures on demand, as values: what fails, on which devices and nodes, and when.

`config` makes rules of the file's section `faults`, the command line makes them of what a person types. `schedule` says
when a rule is in force, `targets` which devices it means; who acts are the hooks in `faults` and `plugin`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

ALWAYS = 1.0  # a probability


class Kind(StrEnum):
    """The part of the plugin that a rule breaks."""

    DEVICE = "device"
    RPC = "rpc"
    REGISTER = "register"
    STREAM = "stream"
    SOCKET = "socket"
    CDI = "cdi"
    POD_RESOURCES = "podResources"
    PROCESS = "process"


class Rpc(StrEnum):
    """The calls that the kubelet makes."""

    OPTIONS = "GetDevicePluginOptions"
    LIST = "ListAndWatch"
    PREFERRED = "GetPreferredAllocation"
    ALLOCATE = "Allocate"
    PRE_START = "PreStartContainer"


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
class Verdict:
    """The device is said to be so, whatever its probes find."""

    healthy: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Flap:
    """The device is well for `up` seconds, then Unhealthy for `down` seconds, and so on."""

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
class Delay:
    """Seconds that a call waits: half of all calls less than `median`, none more than `most`."""

    median: float
    most: float


class Wrong(StrEnum):
    """An answer that is none."""

    EMPTY = "empty"  # no container responses at all
    BOGUS_IDS = "bogusIds"  # devices that nobody listed
    OVERSIZED = "oversized"  # more than the 4 MiB that the kubelet receives


@dataclass(frozen=True, slots=True)
class Fail:
    """The call ends with an error."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of these RPCs wait, and then are answered as they should be, hang until cancelled, fail, or are answered
    wrong.
    """

    rpcs: frozenset[Rpc]
    delay: Delay | None = None
    hang: bool = False
    fail: Fail | None = None
    wrong: Wrong | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """Registrations come `delay` seconds late, or never, or with another version of the API, or twice."""

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
    """The resource's socket file is deleted, or gives way to one that nobody answers on."""

    fault: SocketFault


class CdiFault(StrEnum):
    """What becomes of the CDI specification files."""

    MISSING = "missing"
    LATE = "late"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Cdi:
    """The resource's CDI file is not there, comes `delay` seconds after it is needed, or breaks off in the middle."""

    fault: CdiFault
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class PodResources:
    """The kubelet's PodResources API does not answer this plugin."""


@dataclass(frozen=True, slots=True)
class Process:
    """The plugin's process ends at once with this exit code, as if it had been killed."""

    exit: int


Effect = Verdict | Flap | Remove | Call | Register | Stream | Socket | Cdi | PodResources | Process

KINDS: Mapping[type, Kind] = MappingProxyType(
    {
        Verdict: Kind.DEVICE,
        Flap: Kind.DEVICE,
        Remove: Kind.DEVICE,
        Call: Kind.RPC,
        Register: Kind.REGISTER,
        Stream: Kind.STREAM,
        Socket: Kind.SOCKET,
        Cdi: Kind.CDI,
        PodResources: Kind.POD_RESOURCES,
        Process: Kind.PROCESS,
    }
)

# --- to what ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Conditions that a device must meet, all of them; what is empty is none. Names are globs.

    `indices` are ranges of the index in the entry, `partition` is a partition's number on its device (None: any).
    """

    entry: str = ""
    indices: tuple[range, ...] = ()
    partition: int | None = None
    id: str = ""
    resource: str = ""
    profile: str = ""
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Which devices: those that meet one of the wants, and of these the first `count`, or `pick` of them by lot, or a
    `share` of them by lot (at least one).
    """

    wants: tuple[Want, ...] = (Want(),)
    count: int | None = None
    pick: int | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Which nodes: those that one of the globs names (none: all), and of these a `share` by lot."""

    globs: tuple[str, ...] = ()
    share: float = ALWAYS


# --- when -------------------------------------------------------------------------------------------------------------


class Start(StrEnum):
    """What sets a rule's time to zero."""

    LOAD = "load"  # the rule was read
    START = "start"  # the plugin started
    ALLOCATE = "allocate"  # a pod was given one of the devices
    FILE = "file"  # a file appeared
    MANUAL = "manual"  # `vdev fault trigger`


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Times in seconds from the rule's zero. `lasts` None: until the end of the rule, or only a moment where the effect
    is one. `every` is the period of repetition, `times` bounds it, `jitter` is the part of the period (of a flap's up
    time, or of `at`) by which each start is moved at random, both ways.
    """

    start: Start = Start.LOAD
    at: float = 0.0
    lasts: float | None = None
    every: float | None = None
    times: int | None = None
    jitter: float = 0.0
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Which of the calls, allocations or repetitions a rule hits: the n-th ones, every n-th one, or by lot."""

    nth: tuple[int, ...] = ()
    every_nth: int = 1
    probability: float = ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One failure. `resource` is a glob; `where` its place in the file, which does not make it another rule."""

    name: str
    effect: Effect
    aim: Aim = Aim()
    resource: str = "*"
    nodes: Nodes = Nodes()
    when: When = When()
    chance: Chance = Chance()
    where: str = field(default="", compare=False)

    @property
    def kind(self) -> Kind:
        """The part that it breaks."""
        return KINDS[type(self.effect)]

    @property
    def momentary(self) -> bool:
        """Whether it is an event rather than a state."""
        match self.effect:
            case Process():
                return True
            case Stream(fault=StreamFault.CLOSE) | Socket():
                return self.when.lasts is None
            case _:
                return False

    @property
    def counts_calls(self) -> bool:
        """Whether its chance is about the kubelet's calls and the registrations."""
        return self.kind in (Kind.RPC, Kind.REGISTER)

    @property
    def triggered(self) -> bool:
        """Whether it waits for something to happen; then its chance is about how often that happens."""
        return self.when.start in (Start.ALLOCATE, Start.FILE, Start.MANUAL)

    def concerns(self, resource: str) -> bool:
        """Whether it is for that resource."""
        return fnmatchcase(resource, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """The section `faults`: the same seed, rules and node give the same run."""

    seed: int = 0
    rules: tuple[Rule, ...] = ()


NO_RULES = FaultSpec()


# --- what the hooks are told ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """What happens to one call: it waits `delay` seconds, then the rest."""

    rule: str
    delay: float = 0.0
    hang: bool = False
    fail: Fail | None = None
    wrong: Wrong | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFault:
    """What happens to a registration: it must wait (`hold`), or goes out with another version, or twice."""

    rule: str
    hold: bool = False
    version: str = ""
    twice: bool = False
