"""The effects of fault rules: models of the keys that say what a rule does. `rules` has the keys for where and when.

The planner applies faults of devices. Other faults are applied by the code that calls the hooks of `engine`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from ..model import names
from ..model.scalars import (
    ConditionType,
    Constraint,
    Duration,
    Flag,
    Number,
    OneOrMany,
    Refusal,
    Text,
    Whole,
    Word,
    between,
    longer_than_nothing,
)
from ..model.section import Section, described, refuse


class Rpc(StrEnum):
    """The calls that the kubelet makes on a device plugin, and on a DRA driver about claims."""

    OPTIONS = "GetDevicePluginOptions"
    LIST = "ListAndWatch"
    PREFERRED = "GetPreferredAllocation"
    ALLOCATE = "Allocate"
    PRE_START = "PreStartContainer"
    PREPARE = "NodePrepareResources"
    UNPREPARE = "NodeUnprepareResources"


CALLS_FOR_CLAIMS = (Rpc.PREPARE, Rpc.UNPREPARE)


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


_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(%?)")
_HUNDRED = 100


def _part(value: object) -> object:
    """Parse a fraction: 0.1 or 10%."""
    found = _PERCENT.fullmatch(str(value)) if isinstance(value, (str, int, float)) else None
    if found is None or isinstance(value, bool):
        refuse(f"expected a fraction, got {described(value)}", "such as 10% or 0.1")
    number = float(found[1]) / (_HUNDRED if found[2] else 1)
    if number > 1:
        refuse(f"{value} is more than 1", "expected 0 to 1, or 0% to 100%")
    return number


_PART_JSON = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+%?$"}]}
Part = Annotated[float, BeforeValidator(_part), WithJsonSchema(_PART_JSON)]
"""A fraction, such as 10% or 0.1."""


Time = Annotated[Duration, longer_than_nothing()]
"""A duration above zero."""


# --- devices ----------------------------------------------------------------------------------------------------------


class FlapTimes(Section):
    """The device is healthy first, then unhealthy, and so on."""

    up: Time
    """How long the device is Healthy each time."""
    down: Time
    """How long it is Unhealthy each time."""


class TaintFault(Section):
    """A taint of the devices while the rule is in force."""

    key: Annotated[Word, Constraint(names.qualified_name_problem)]
    """Key of the taint, such as acme.dev/maintenance."""
    value: Annotated[Text, Constraint(names.value_problem)] = ""
    """Its value."""
    effect: Literal["NoSchedule", "NoExecute", "None"] = "NoSchedule"
    """NoSchedule: no new claim gets the devices; NoExecute: pods that have them are also evicted; None: no effect."""


MAX_TEMPERATURE = 200  # °C


class OverheatFault(Section):
    """The devices become hot, whatever their load. Clocks go down at the model's temperature limits."""

    to: Annotated[Whole, between(1, MAX_TEMPERATURE)] = 105
    """The temperature that the devices reach, in °C."""
    within: Annotated[Duration, longer_than_nothing(86400, "24h")] = 60.0
    """Time from the current temperature to that one."""


class HardwareErrorsFault(Section):
    """Hardware errors per minute that the devices count: at least one key."""

    corrected_ecc: Number = 0.0
    """Memory errors that ECC corrects."""
    uncorrected_ecc: Number = 0.0
    """Memory errors that ECC cannot correct."""
    pcie_replays: Number = 0.0
    """PCI Express packets that are sent again."""
    remapped_rows: Number = 0.0
    """Memory rows that are taken out of use."""


SensorFault = OverheatFault | HardwareErrorsFault
"""A fault that only the sensors and counters of a device show."""


# --- calls, registrations, streams and files --------------------------------------------------------------------------


class DelayTimes(Section):
    """How long calls wait: half of them less than p50, and none more than max."""

    p50: Duration
    """The median."""
    max: Time
    """The longest."""


def fixed_delay(value: object) -> DelayTimes:
    return DelayTimes.model_validate({"p50": value, "max": value})


class ErrorAnswer(Section):
    """The gRPC error with which calls fail."""

    code: Code = Code.UNAVAILABLE
    """The status code's name, such as UNAVAILABLE."""
    message: Word = "injected by vdev"
    """The text, which the kubelet shows in the pod's event."""


class OneFault(Section):
    """A fault with exactly one of several keys."""

    @property
    def fault(self) -> str:
        """The given key, or the empty string."""
        return next(iter(self.given), "")


class Answer(OneFault):
    """A wrong answer: exactly one of its keys."""

    empty: Flag = False
    """No container responses at all."""
    bogus_ids: Flag = False
    """Ids of devices that were neither listed nor requested."""
    oversized: Flag = False
    """More than the 4 MiB that the kubelet accepts."""
    wrong_device: Flag = False
    """A device other than the allocated one, with CDI names that do not exist."""
    skip_claim: Flag = False
    """The first claim of the call is not in the answer."""
    claim_error: Word | None = None
    """Each claim is answered with this error."""


def _version_problem(value: str) -> Refusal:
    if value == "v1beta1":
        return "the kubelet accepts v1beta1", "give one that it refuses, such as v1alpha1"
    return ""


class RegisterFaults(Section):
    """What happens to registrations: exactly one of its keys."""

    delay: Time | None = None
    """Delay of each registration."""
    never: Flag = False
    """The plugin does not register."""
    version: Annotated[Word, Constraint(_version_problem)] | None = None
    """Version of the API to register with, one that the kubelet refuses."""
    twice: Flag = False
    """The plugin registers twice, which opens a second stream."""


MAX_RATE = 1000  # lists a second; a kubelet writes its checkpoint for each of them


class StreamFaults(OneFault):
    """What happens to the open ListAndWatch streams: exactly one of its keys."""

    close: Flag = False
    """The streams end; with `for`, the plugin does not register again until then."""
    stall: Flag = False
    """The streams stay open, and changes are not sent."""
    duplicate_ids: Flag = False
    """Each id is listed twice, as Healthy and as Unhealthy."""
    flood: Annotated[Whole, between(1, MAX_RATE)] | None = None
    """How many times per second the list is sent."""
    oversized: Flag = False
    """The list is larger than the 4 MiB that the kubelet accepts; needs allowHarmful."""


class SocketFaults(OneFault):
    """What happens to the resource's socket file: exactly one of its keys."""

    delete: Flag = False
    """The socket is deleted."""
    replace: Flag = False
    """The socket is replaced by one that nobody listens on."""


class CdiFaults(OneFault):
    """What happens to the resource's CDI file: exactly one of its keys."""

    missing: Flag = False
    """The file is missing."""
    late: Time | None = None
    """Delay with which the file is written."""
    broken: Flag = False
    """The file is cut off in the middle."""


class PodResourcesFaults(Section):
    """What happens to the kubelet's PodResources API."""

    unavailable: Flag
    """The API does not answer this plugin."""


class ProcessFaults(Section):
    """What happens to the plugin's process."""

    exit: Annotated[Whole, between(0, 255)]
    """The process exits at once with this code; 137 looks like a kill."""


# --- the API server ---------------------------------------------------------------------------------------------------


def _length_problem(value: str) -> str:
    return (
        f"the message has {len(value)} characters; at most {names.MAX_MESSAGE} are allowed"
        if len(value) > names.MAX_MESSAGE
        else ""
    )


Reason = Annotated[Word, Constraint(names.condition_reason_problem)]
"""One word, such as GpuLost."""

Message = Annotated[Word, Constraint(_length_problem, maxLength=names.MAX_MESSAGE)]
"""A sentence."""


class EventFault(Section):
    """An Event about the Node, written each time the fault begins; needs node.events."""

    reason: Reason
    """The reason, one word such as GpuLost."""
    message: Message
    """The message, a sentence."""
    type: Literal["Normal", "Warning"] = "Warning"
    """The type of the Event."""


class ConditionFault(Section):
    """A condition of the Node while the rule is in force; needs node.conditions."""

    type: ConditionType
    """Type of the condition, such as GpuHealthy. It overrides conditions of entries with the same type."""
    status: Flag
    """Whether the condition is True or False."""
    reason: Reason = "Drill"
    """The reason, one word such as GpuLost."""
    message: Message | None = None
    """The message, a sentence. Default: names the rule."""


_REFUSALS = (403, 409, 429, 500, 503)


def _status_problem(value: int) -> Refusal:
    if value not in _REFUSALS:
        return f"{value} is not allowed here", f"expected {', '.join(map(str, _REFUSALS[:-1]))} or {_REFUSALS[-1]}"
    return ""


def _seconds_problem(value: float) -> Refusal:
    if value < 1 or value != int(value):
        return f"{value:g} s is not allowed", "the header Retry-After has whole seconds, at least 1"
    return ""


_WATCHED = ("nodes", "pods", "resourceslices")

ApiVerb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
"""Verbs of requests to the API server, as in RBAC."""

ApiResource = Literal[
    "nodes",
    "nodes/status",
    "events",
    "pods",
    "resourceslices",
    "resourceclaims",
    "resourceclaims/status",
]
"""Resources of requests to the API server, as in RBAC."""


class ApiFaults(Section):
    """How requests to the API server fail: exactly one of unreachable, status and watch."""

    unreachable: Flag = False
    """The API server does not answer."""
    status: Annotated[Whole, Constraint(_status_problem, enum=_REFUSALS)] | None = None
    """HTTP status of the answer: 403, 409, 429, 500 or 503."""
    watch: Literal["broken"] | None = None
    """broken: watches end and cannot start again."""
    retry_after: Annotated[Duration, Constraint(_seconds_problem)] | None = None
    """For status 429 and 503: how long the answer asks to wait."""
    verbs: Annotated[tuple[ApiVerb, ...], OneOrMany()] = ()
    """Only requests of these verbs. Default: all."""
    resources: Annotated[tuple[ApiResource, ...], OneOrMany()] = ()
    """Only requests about these resources. Default: all."""

    @property
    def after(self) -> int | None:
        """The seconds of the answer's Retry-After header, or None."""
        return None if self.retry_after is None else int(self.retry_after)

    @property
    def of_verbs(self) -> tuple[ApiVerb, ...]:
        """The verbs of the requests that fail; empty for all."""
        return ("watch",) if self.watch else self.verbs

    def concerns(self, verb: str, resource: str) -> bool:
        verbs = self.of_verbs
        return (not verbs or verb in verbs) and (not self.resources or resource in self.resources)

    @property
    def ends_watches(self) -> bool:
        """Whether open watches must end, because a new watch would fail."""
        return any(self.concerns("watch", each) for each in _WATCHED)


class SliceFaults(OneFault):
    """What happens to ResourceSlices: exactly one of its keys."""

    late: Annotated[Duration, longer_than_nothing()] | None = None
    """Delay with which each change is written."""
    withheld: Flag = False
    """Changes are not written; the present slices stay."""
    incomplete: Flag = False
    """The pool announces one slice more than exist."""
    old_generation: Flag = False
    """A slice of an older generation remains, with a device that does not exist."""
    duplicate_name: Flag = False
    """A device is in two slices."""
    wiped: Flag = False
    """The slices are deleted; with `for`, they are written again after that time."""


class HealthStreamFaults(OneFault):
    """What happens to the health streams: exactly one of its keys."""

    silent: Flag = False
    """The streams stay open but send nothing more."""
    ended: Flag = False
    """The streams end each time that the kubelet opens them."""


@dataclass(frozen=True, slots=True)
class XidError:
    """An Xid that a device has now, and the rule that injects it."""

    number: int
    rule: str
