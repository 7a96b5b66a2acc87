"""Rules for failures on demand, as values: which effect, on which devices and nodes, and when.

`config` makes them of the file's section `faults`, the command line of what a person types. `faults.schedule` says
when a rule is in force, `faults.targets` which devices it selects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import assert_never

from . import effects as effects
from .effects import (
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


TEXTS: Mapping[int, str] = MappingProxyType(
    {
        8: "GPU stopped processing",
        13: "Graphics Engine Exception",
        31: "GPU memory page fault",
        32: "Invalid or corrupted push buffer stream",
        43: "GPU stopped processing",
        45: "Preemptive cleanup, due to previous errors",
        46: "GPU stopped processing",
        48: "Double Bit ECC Error",
        54: "Auxiliary power is not connected to the GPU board",
        61: "Internal micro-controller breakpoint",
        62: "Internal micro-controller halt",
        63: "GPU memory remapping event",
        64: "GPU memory remapping failure",
        68: "NVDEC0 Exception",
        69: "Graphics Engine class error",
        74: "NVLINK Error",
        78: "vGPU Start Error",
        79: "GPU has fallen off the bus",
        92: "High single-bit ECC error rate",
        94: "Contained memory error",
        95: "Uncontained memory error",
        109: "Context Switch Timeout Error",
        110: "Security Fault Error",
        119: "GSP RPC Timeout",
        120: "GSP Error",
        121: "C2C Error",
        136: "Link Training Failed",
        137: "NVLink Privilege Error",
        140: "ECC Unrecovered Error",
        143: "GPU Initialization Error",
        154: "GPU Recovery Action Changed",
        155: "NVLINK: SW Defined Error",
        156: "Resource Retirement Event",
        158: "GPU Fatal Timeout",
    }
)

APPLICATION_ERRORS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes: NVIDIA's device plugin leaves the device Healthy."""

MOST = 999
"""The catalog ends at 172 and grows."""


def described(number: int) -> str:
    """The number and what it means: `Xid 79: GPU has fallen off the bus`."""
    text = TEXTS.get(number)
    return f"Xid {number}: {text}" if text else f"Xid {number}"


_OF_SLICES = {
    effects.SliceFault.WITHHELD: "changes are not written",
    effects.SliceFault.INCOMPLETE: "the pool has one less than it says",
    effects.SliceFault.OLD_GENERATION: "one of an older generation is left",
    effects.SliceFault.DUPLICATE_NAME: "one device is in two of them",
    effects.SliceFault.WIPED: "all are deleted",
}


def words(rule: FaultRuleSpec) -> str:
    where = "" if rule.resource == "*" else f" of {rule.resource}"
    match rule.effect:
        case effects.SetHealth() as health:
            return _health(health)
        case effects.Xid() as error:
            return _xid(error)
        case effects.Flap(up=up, down=down, reason=reason):
            return f"Unhealthy, up {up:g} s and down {down:g} s in turns: {reason}"
        case effects.Remove(drop_held=drop):
            return "dropped from the list, held or not" if drop else "unplugged"
        case effects.Call() as call:
            calls = " and ".join(sorted(call.rpcs))
            return f"{_which(rule.chance)} {calls}{where} {_call(call)}"
        case effects.Register(never=True):
            return f"no registration{where}"
        case effects.Register(twice=True):
            return f"every registration{where} is made twice"
        case effects.Register(delay=delay, version=version):
            return (
                f"registrations{where} name version {version}"
                if version
                else f"registrations{where} come {delay:g} s late"
            )
        case effects.Stream(fault=fault, rate=rate):
            return f"device list{where}: {fault.value}{f' {rate:g} times a second' if rate else ''}"
        case effects.Socket(fault=fault):
            return f"socket{where}: {fault.value}d"
        case effects.Cdi(fault=fault, delay=delay):
            return f"CDI file{where}: {fault.value}{f' by {delay:g} s' if delay else ''}"
        case effects.PodResources():
            return "PodResources API does not answer"
        case effects.Process(exit=code):
            return f"the process ends with exit code {code}"
        case effects.NodeEvent(reason=reason, message=message, warning=bad):
            return f"{'Warning' if bad else 'Normal'} Event {reason}: {message}"
        case effects.SetCondition() as each:
            return f"condition {each.type} is {each.status}: {each.reason}: {each.message}"
        case effects.ApiFailure() as failure:
            return f"{_which(rule.chance)} the API server{_requests(failure)} {_answer(failure)}"
        case effects.SetTaint(key=key, value=value, effect=effect):
            return f"taint {key}{f'={value}' if value else ''}:{effect}"
        case effects.Overheat(to=to, within=within):
            return f"heated to {to:g} °C within {within:g} s"
        case effects.CountErrors() as errors:
            return f"counts {_errors(errors)} a minute"
        case effects.Slices(fault=effects.SliceFault.LATE, delay=delay):
            return f"ResourceSlices{where}: changes are written {delay:g} s late"
        case effects.Slices(fault=fault):
            return f"ResourceSlices{where}: {_OF_SLICES[fault]}"
        case effects.HealthStream(fault=fault):
            silent = fault is effects.HealthStreamFault.SILENT
            return f"health streams{where} {'say nothing more' if silent else 'end'}"
        case _:
            assert_never(rule.effect)


def _health(effect: effects.SetHealth) -> str:
    return f"{'Healthy' if effect.healthy else 'Unhealthy'}{f': {effect.reason}' if effect.reason else ''}"


def _errors(errors: effects.CountErrors) -> str:
    counts = {
        "corrected ECC errors": errors.corrected,
        "uncorrected ECC errors": errors.uncorrected,
        "PCIe replays": errors.replays,
        "remapped rows": errors.remapped,
    }
    return " and ".join(f"{number:g} {what}" for what, number in counts.items() if number)


def _xid(error: effects.Xid) -> str:
    what = described(error.number)
    if error.health is None:
        return f"{what}; the health stays as it is"
    return _health(error.health) if error.health.reason == what else f"{what}; {_health(error.health)}"


def _requests(failure: effects.ApiFailure) -> str:
    parts = (" or ".join(sorted(failure.verbs)), " or ".join(sorted(failure.resources)))
    named = " of ".join(filter(None, parts))
    return f" ({named})" if named else ""


def _answer(failure: effects.ApiFailure) -> str:
    wait = "" if failure.after is None else f", to try again after {failure.after} s"
    return f"gets the status {failure.status}{wait}" if failure.status else "gets no answer"


def _which(chance: Chance) -> str:
    if chance.nth:
        return f"call {', '.join(map(str, chance.nth))} to"
    if chance.every_nth > 1:
        return f"every {chance.every_nth}th call to"
    return "each call to" if chance.probability >= ALWAYS else f"{chance.probability:.0%} of the calls to"


def _call(call: effects.Call) -> str:
    parts = []
    if call.delay is not None:
        middle = f"about {call.delay.median:g} s, at most " if call.delay.median < call.delay.most else ""
        parts.append(f"waits {middle}{call.delay.most:g} s")
    if call.hang:
        parts.append("hangs")
    if call.fail is not None:
        parts.append(f"fails with {call.fail.code.value}: {call.fail.message}")
    if call.refuse:
        parts.append(f"refuses each claim: {call.refuse}")
    if wrong := call.faulty_answer or call.faulty_claims:
        parts.append(f"gets a wrong answer ({wrong.value})")
    return ", then ".join(parts)
