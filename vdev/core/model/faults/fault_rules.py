"""Rules for failures on demand, as values: which effect, on which devices and nodes, and when.

`config` makes them of the file's section `faults`, the command line of what a person types. `core.faults.schedule` says
when a rule is in force, `core.faults.targets` which devices it selects.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from .fault_effects import (
    KINDS,
    Call,
    ClaimCall,
    Effect,
    FaultKind,
    HealthStream,
    NodeEvent,
    Process,
    Rpc,
    SliceFault,
    Slices,
    Socket,
    Stream,
    StreamFault,
)

ALWAYS = 1.0  # a probability

# --- to what ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFilter:
    """Conditions that a device must meet, all of them; an empty field is no condition. Names are globs.

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
class DeviceSelection:
    """Which devices: those that meet one of the filters, and of these the first `count`, or `pick` at random, or a
    `share` at random (at least one).
    """

    filters: tuple[DeviceFilter, ...] = (DeviceFilter(),)
    count: int | None = None
    pick: int | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelection:
    """Which nodes: those that one of the globs names (none: all) and that have these labels, and of these a `share` at
    random.
    """

    globs: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
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
    """Which of the calls, requests, allocations or repetitions a rule hits: the n-th ones, every n-th one, or some at
    random.
    """

    nth: tuple[int, ...] = ()
    every_nth: int = 1
    probability: float = ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRuleSpec:
    """One failure. `resource` is a glob, for names of resources and of DRA drivers. Two things do not count in
    comparisons: `seed`, its own where it has another one than the rules beside it, and `where`, its place in the file.
    """

    name: str
    effect: Effect
    selection: DeviceSelection = DeviceSelection()
    resource: str = "*"
    nodes: NodeSelection = NodeSelection()
    when: When = When()
    chance: Chance = Chance()
    seed: int | None = field(default=None, compare=False)
    where: str = field(default="", compare=False)

    @property
    def kind(self) -> FaultKind:
        return KINDS[type(self.effect)]

    @property
    def momentary(self) -> bool:
        match self.effect:
            case Process() | NodeEvent():
                return True
            case Stream(fault=StreamFault.CLOSE) | Socket() | Slices(fault=SliceFault.WIPED):
                return self.when.lasts is None
            case _:
                return False

    @property
    def counts_calls(self) -> bool:
        """Whether its chance is about the kubelet's calls, the registrations, or requests to the API server."""
        return self.kind in (FaultKind.RPC, FaultKind.REGISTER, FaultKind.API)

    @property
    def of_resources(self) -> bool:
        if isinstance(self.effect, Call):
            return any(isinstance(each, Rpc) for each in self.effect.rpcs)
        return not self.of_drivers

    @property
    def of_drivers(self) -> bool:
        """Whether `resource` is about DRA drivers. Devices are known by their resource, claimed or allocated."""
        if isinstance(self.effect, Call):
            return any(isinstance(each, ClaimCall) for each in self.effect.rpcs)
        return isinstance(self.effect, (Slices, HealthStream))

    @property
    def triggered(self) -> bool:
        """Whether it waits for something to happen; of what happens by itself, its chance is about how often."""
        return self.when.start in (Start.ALLOCATE, Start.FILE, Start.MANUAL)

    def concerns(self, resource: str) -> bool:
        return fnmatchcase(resource, self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """The section `faults`: the same seed, rules and node give the same run. `kernel_log` is where Xids are written to;
    empty: nowhere.
    """

    seed: int = 0
    kernel_log: str = ""
    rules: tuple[FaultRuleSpec, ...] = ()

    def seed_of(self, rule: FaultRuleSpec) -> int:
        """What the rule draws its lots by."""
        return self.seed if rule.seed is None else rule.seed


NO_RULES = FaultSpec()
