"""The section `faults`: failures on demand."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from ..faults.effects import ApiResource, ApiVerb, ClaimCall, Code, Rpc
from ..faults.kernel_lines import KMSG
from ..faults.rules import MOST as MOST_XID
from ..model import names
from ..model.scalars import (
    INTEGER,
    STRING,
    AsWritten,
    ConditionType,
    Constraint,
    Duration,
    FilePath,
    Flag,
    Number,
    Plain,
    Section,
    Shorthand,
    Text,
    Whole,
    Word,
    between,
    choice,
    described,
    index_range,
    longer_than_nothing,
    matching,
    one_of,
    one_or_many,
    refuse,
    refuse_items,
    without_problem,
)
from ..node.events import MESSAGE

_CALLS: dict[str, Rpc | ClaimCall] = {each.value: each for each in (*Rpc, *ClaimCall)}

CallName = Annotated[
    Rpc | ClaimCall,
    PlainValidator(lambda value: _CALLS[one_of(value, _CALLS)]),
    WithJsonSchema({"type": "string", "enum": [*_CALLS]}),
]
"""One of the calls that the kubelet makes."""


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"
    NONE = "None"


class TaintFault(Section):
    """A taint of the devices while the rule is in force."""

    key: Annotated[Word, without_problem(names.taint_key_problem)]
    """Key of the taint, such as acme.dev/maintenance."""
    value: Annotated[Text, without_problem(names.value_problem)] = ""
    """Its value."""
    effect: Annotated[TaintEffect, choice(TaintEffect)] = TaintEffect.NO_SCHEDULE
    """NoSchedule: no further claim gets them; NoExecute: pods that have them are evicted too; None: nothing."""


class SliceFaults(Section):
    """What happens to ResourceSlices: exactly one of its keys."""

    late: Annotated[Duration, longer_than_nothing()] | None = None
    """Delay with which each change is written."""
    withheld: Flag = False
    """Changes are not written; what is there stays."""
    incomplete: Flag = False
    """The pool says that it has one slice more than there are."""
    old_generation: Flag = False
    """A slice of an older generation, with a device that does not exist, is left beside the others."""
    duplicate_name: Flag = False
    """A device is in two slices."""
    wiped: Flag = False
    """The slices are deleted; with `for`, they are written again only then."""


class HealthStreamFaults(Section):
    """What happens to the health streams: exactly one of its keys."""

    silent: Flag = False
    """The streams stay open, and say nothing more."""
    ended: Flag = False
    """The streams end, as often as the kubelet opens them."""


_REFUSALS = (403, 409, 429, 500, 503)


def _length_problem(value: str) -> str:
    return f"the message has {len(value)} characters; at most {MESSAGE} are allowed" if len(value) > MESSAGE else ""


Reason = Annotated[Word, without_problem(names.condition_reason_problem)]
"""One word, such as GpuLost."""

Message = Annotated[Word, without_problem(_length_problem, maxLength=MESSAGE)]
"""A sentence."""


class EventType(StrEnum):
    """How bad it is."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventFault(Section):
    """An Event about the Node, written at each beginning of the rule; needs node.events."""

    reason: Reason
    """Why, in one word such as GpuLost."""
    message: Message
    """What happened, in a sentence."""
    type: Annotated[EventType, choice(EventType)] = EventType.WARNING
    """Normal or Warning."""


class ConditionFault(Section):
    """A condition of the Node while the rule is in force; needs node.conditions."""

    type: ConditionType
    """Type of the condition, such as GpuHealthy. What entries say of the same type does not count meanwhile."""
    status: Flag
    """Whether the condition is True or False."""
    reason: Reason = "Drill"
    """Why, in one word such as GpuLost."""
    message: Message | None = None
    """What is the matter, in a sentence. Default: which rule says so."""


def _known_refusal(value: int) -> None:
    if value not in _REFUSALS:
        refuse(f"{value} is not allowed here", f"expected {', '.join(map(str, _REFUSALS[:-1]))} or {_REFUSALS[-1]}")


def _whole_seconds(value: float) -> None:
    if value < 1 or value != int(value):
        refuse(f"{value:g} s is not allowed", "the header Retry-After has whole seconds, at least 1")


class WatchWord(StrEnum):
    """What becomes of watches."""

    BROKEN = "broken"


class ApiFaults(Section):
    """How requests to the API server fail: exactly one of unreachable, status and watch."""

    unreachable: Flag = False
    """Nobody answers."""
    status: Annotated[Whole, Constraint(_known_refusal, (("enum", _REFUSALS),))] | None = None
    """HTTP status of the answer: 403, 409, 429, 500 or 503."""
    watch: Annotated[WatchWord, choice(WatchWord)] | None = None
    """broken: watches end, and cannot begin again."""
    retry_after: Annotated[Duration, Constraint(_whole_seconds)] | None = None
    """For status 429 and 503: how long the answer asks to wait."""
    verbs: Annotated[list[Annotated[ApiVerb, choice(ApiVerb)]], one_or_many(STRING)] = []
    """Only requests of these verbs. Default: all."""
    resources: Annotated[list[Annotated[ApiResource, choice(ApiResource)]], one_or_many(STRING)] = []
    """Only requests about these resources. Default: all."""


MAX_TEMPERATURE = 200  # °C


class OverheatFault(Section):
    """The devices become hot, whatever their load; the clocks follow as the temperature passes the model's limits."""

    to: Annotated[Whole, between(1, MAX_TEMPERATURE)] = 105
    """The temperature that they come to, in °C."""
    within: Annotated[Duration, longer_than_nothing(86400, "24h")] = 60.0
    """Time that it takes from the temperature that they have."""


class HardwareErrorsFault(Section):
    """Errors that the devices count by themselves, a minute; at least one of its keys."""

    corrected_ecc: Number = 0.0
    """Errors of the memory that ECC corrects."""
    uncorrected_ecc: Number = 0.0
    """Errors of the memory that it cannot correct."""
    pcie_replays: Number = 0.0
    """Packets that PCI Express sends again."""
    remapped_rows: Number = 0.0
    """Rows of the memory that are taken out of use."""


MAX_RATE = 1000  # lists a second; a kubelet writes its checkpoint for each of them
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(%?)")
_HUNDRED = 100


def _part(value: object) -> object:
    """A fraction: 0.1 or 10%."""
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


def _kernel_log(value: object) -> object:
    """Where the kernel log is: true, or the path of a file."""
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if isinstance(value, bool):
        return KMSG if value else ""
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/") or "\0" in value:
        refuse(f"expected true or the absolute path of a file, got {described(value)}", "such as /var/log/xids.log")
    return str(value)


_KERNEL_LOG_JSON = {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^/(.*[^/])?$"}]}
KernelLog = Annotated[str, BeforeValidator(_kernel_log), WithJsonSchema(_KERNEL_LOG_JSON)]
"""The kernel log, or a file in its stead."""


Time = Annotated[Duration, longer_than_nothing()]
"""A duration above zero."""


# --- which devices and nodes -----------------------------------------------------------------------------------------

_ARRAY_OR_STRING = (("type", ("array", "string")),)
_DURATION_JSON = (("type", ("string", "number")),)
_INDEX = r"(?:0|[1-9]\d{0,5})"
_REFERENCE = re.compile(rf"([^/]+)(?:/(\*|{_INDEX}(?:-{_INDEX})?|{_INDEX}:{_INDEX}))?")
_REFERENCES = "an entry's name, a device id, or <entry>/<index> with an index 3, a range 0-2, a partition 3:0 or *"


def _flaw(item: object) -> str:
    """Why an item refers to no device, or the empty string."""
    if not isinstance(item, str) or isinstance(item, Plain):
        return f"expected a string, got {described(item)}"
    if _REFERENCE.fullmatch(item):
        return ""
    return f"{item!r} refers to no device; expected {_REFERENCES}"


def _names(value: object) -> "Select":
    """A list of references, or a single one."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not items:
        refuse("the list is empty, so the rule can never fire", "name a device, or leave the key out")
    if isinstance(value, (list, tuple)):
        refuse_items("devices", items, _flaw)
    elif text := _flaw(value):
        refuse(text)
    return Select(names=items)


def _index(value: object) -> object:
    text = str(value)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not re.fullmatch(f"{_INDEX}(-{_INDEX})?", text):
        refuse(f"expected an index, got {described(value)}", 'such as 3, or a range "0-2"')
    if not index_range(text):
        refuse(f"the range {text} is empty", "write the lower index first")
    return text


Index = Annotated[str, BeforeValidator(_index), WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})]


class Select(Section):
    """Which devices: those that meet all conditions; of these, count, share and pick take some."""

    names: list[Text] = []
    """Names of entries, ids and <entry>/<index>; the same as a list in place of this mapping."""
    entry: Word | None = None
    """Pattern for the entry's name."""
    index: Annotated[list[Index], one_or_many(INTEGER)] = []
    """Indices in the entry: 3, "0-2", or a list of them."""
    id: Word | None = None
    """Pattern for the id of a device, a partition or a replica."""
    resource: Word | None = None
    """Pattern for the resource; the rule then concerns what that resource offers, such as partitions."""
    profile: Word | None = None
    """Pattern for the partition's profile; the rule then concerns partitions, not whole devices."""
    numa: Annotated[list[Annotated[Whole, between(0)]], one_or_many(INTEGER)] = []
    """NUMA nodes."""
    count: Annotated[Whole, between(1)] | None = None
    """Only the first so many."""
    pick: Annotated[Whole, between(1)] | None = None
    """Only so many, chosen at random by the seed."""
    share: Part | None = None
    """Only this fraction, at least one, chosen at random by the seed."""


def _globs(value: object) -> "OnNodes":
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not items or any(type(item) is not str or not item for item in items):
        refuse(f"expected patterns for node names, got {described(value)}", 'such as ["gpu-*"], or {share: 10%}')
    return OnNodes(names=items)


class OnNodes(Section):
    """Which nodes."""

    names: Annotated[list[Word], one_or_many(STRING)] = []
    """Patterns for the nodes' names. Default: every node."""
    labels: dict[Word, AsWritten] = {}
    """Labels that they must have, such as a zone or a rack; for vdev fleet, which knows the labels of its nodes."""
    share: Part = 1.0
    """Only this fraction of them; each node is chosen or not by the seed and its name."""


# --- what happens ----------------------------------------------------------------------------------------------------


class HealthWord(StrEnum):
    """What the kubelet is told of a device."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class FlapTimes(Section):
    """The device is healthy first, then unhealthy, and so on."""

    up: Time
    """How long the device is Healthy each time."""
    down: Time
    """How long it is Unhealthy each time."""


class DelayTimes(Section):
    """How long calls wait: half of them less than p50, none more than max."""

    p50: Duration
    """The median."""
    max: Time
    """The longest."""


def _fixed(value: object) -> DelayTimes:
    return DelayTimes.model_validate({"p50": value, "max": value})


class ErrorAnswer(Section):
    """A gRPC error."""

    code: Annotated[Code, choice(Code)] = Code.UNAVAILABLE
    """The status code's name, such as UNAVAILABLE."""
    message: Word = "injected by vdev"
    """The text, which the kubelet shows in the pod's event."""


class Answer(Section):
    """A wrong answer: exactly one of its keys."""

    empty: Flag = False
    """No container responses at all."""
    bogus_ids: Flag = False
    """Devices that nobody listed or asked for."""
    oversized: Flag = False
    """More than the 4 MiB that the kubelet accepts."""
    wrong_device: Flag = False
    """Another device than the allocated one, with CDI names that nobody wrote."""
    skip_claim: Flag = False
    """The first claim of the call is not in the answer."""
    claim_error: Word | None = None
    """Each claim is answered with this error."""


def _not_v1beta1(value: str) -> None:
    if value == "v1beta1":
        refuse("the kubelet accepts v1beta1", "give one that it refuses, such as v1alpha1")


class RegisterFaults(Section):
    """What happens to registrations: exactly one of its keys."""

    delay: Time | None = None
    """Delay of each registration."""
    never: Flag = False
    """The plugin does not register."""
    version: Annotated[Word, Constraint(_not_v1beta1)] | None = None
    """Version of the API to register with, one that the kubelet refuses."""
    twice: Flag = False
    """The plugin registers twice, which opens a second stream."""


class StreamFaults(Section):
    """What happens to the open ListAndWatch streams: exactly one of its keys."""

    close: Flag = False
    """The streams end; with `for`, the plugin does not register again until then."""
    stall: Flag = False
    """The streams stay open, and changes are not sent."""
    duplicate_ids: Flag = False
    """Each id is listed twice, as Healthy and as Unhealthy."""
    flood: Annotated[Whole, between(1, MAX_RATE)] | None = None
    """The list is sent so many times a second."""
    oversized: Flag = False
    """The list is larger than the 4 MiB that the kubelet accepts; needs allowHarmful."""


class SocketFaults(Section):
    """What happens to the resource's socket file: exactly one of its keys."""

    delete: Flag = False
    """The socket is deleted."""
    replace: Flag = False
    """The socket is replaced by one that nobody listens on."""


class CdiFaults(Section):
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


class Since(StrEnum):
    """What the rule's times count from."""

    LOAD = "load"
    START = "start"


_NTH_JSON = (("type", "integer"), ("minimum", 1))
_RULE_NAME = matching(
    r"[A-Za-z0-9]([A-Za-z0-9._:/-]{0,78}[A-Za-z0-9])?",
    "1 to 80 letters, digits and . _ : / -, a letter or digit at both ends",
)


class FaultRule(Section):
    """A fault: what fails, on which devices and nodes, and when."""

    name: Annotated[Text, _RULE_NAME]
    """Name of the rule, unique in the file; random choices depend on it."""
    devices: Annotated[Select, Shorthand((dict, Section), _ARRAY_OR_STRING, _names)] | None = None
    """Which devices: a list of entries, ids and <entry>/<index>, or conditions. Default: all of the resource."""
    resource: Word = "*"
    """Pattern for the resource; for slices, healthStream and calls about claims, for the DRA driver. Default: every
    one."""
    on_nodes: Annotated[OnNodes, Shorthand((dict, Section), _ARRAY_OR_STRING, _globs)] | None = None
    """Which nodes: patterns for names, {labels: {zone: a}}, or {share: 10%}. Default: every node."""

    since: Annotated[Since, choice(Since)] | None = None
    """What times count from: load (the rule was read) or start (the plugin started). Default: load."""
    on_allocate: Flag = False
    """Times count from each allocation of one of the devices to a pod, and only these devices fail."""
    on_file: FilePath | None = None
    """Times count from the appearance of this file; when it goes, so does the fault."""
    manual: Flag = False
    """Times count from `vdev fault trigger`."""
    at: Duration = 0.0
    """When the fault begins."""
    lasts: Annotated[Time | None, Field(alias="for")] = None
    """How long the fault lasts. Default: as long as the rule exists."""
    every: Time | None = None
    """Time from one beginning to the next, where it repeats."""
    times: Annotated[Whole, between(1)] | None = None
    """How many times it repeats. Default: without end."""
    jitter: Part = 0.0
    """Fraction of `every` (of a flap's `up`, or of `at`) by which each beginning moves at random, both ways."""
    nth: Annotated[list[Annotated[Whole, between(1)]], one_or_many(_NTH_JSON)] = []
    """Only the n-th calls, requests, allocations or repetitions: 3, or [1, 3]."""
    every_nth: Annotated[Whole, between(1)] | None = None
    """Only every n-th call, request, allocation or repetition."""
    probability: Part = 1.0
    """Only this fraction of calls, requests, allocations or repetitions, chosen at random by the seed."""

    health: Annotated[HealthWord, choice(HealthWord)] | None = None
    """The health that is reported, whatever the probes find."""
    xid: Annotated[Whole, between(1, MOST_XID)] | None = None
    """NVIDIA's driver reports this error of the devices. They are Unhealthy, unless health says otherwise or NVIDIA's
    device plugin takes the error for the application's (13, 31, 43, 45, 68, 109)."""
    reason: Text = ""
    """Why, for health, xid and flap: the text that pods and people see."""
    flap: FlapTimes | None = None
    """The devices alternate between Healthy and Unhealthy."""
    remove: Flag = False
    """The devices are unplugged; those that a pod may hold stay listed as Unhealthy."""
    taint: TaintFault | None = None
    """The devices have this taint in ResourceSlices; needs dra in advertise."""
    overheat: OverheatFault | None = None
    """The devices become hot, which telemetry shows."""
    hardware_errors: HardwareErrorsFault | None = None
    """The devices count errors, which telemetry shows."""
    drop: Flag = False
    """The devices leave the list even while a pod holds them; needs allowHarmful."""
    rpc: Annotated[list[CallName], one_or_many(STRING)] = []
    """Which of the kubelet's calls are disturbed, by one or more of delay, hang, error and answer: those on a device
    plugin, and NodePrepareResources and NodeUnprepareResources on a DRA driver."""
    delay: Annotated[DelayTimes, Shorthand((dict, Section), _DURATION_JSON, _fixed)] | None = None
    """For rpc: how long calls wait: a fixed time, or {p50: …, max: …}."""
    hang: Flag = False
    """For rpc: calls are not answered until they are cancelled or the fault ends."""
    error: ErrorAnswer | None = None
    """For rpc: calls end with this error."""
    answer: Answer | None = None
    """For rpc Allocate, GetPreferredAllocation, NodePrepareResources and NodeUnprepareResources: calls get a wrong
    answer."""
    register_: Annotated[RegisterFaults | None, Field(alias="register")] = None
    """Registrations are disturbed."""
    stream: StreamFaults | None = None
    """The device lists' streams are disturbed."""
    socket: SocketFaults | None = None
    """The sockets are disturbed."""
    cdi: CdiFaults | None = None
    """The CDI files are disturbed."""
    pod_resources: PodResourcesFaults | None = None
    """The kubelet's PodResources API is disturbed."""
    process: ProcessFaults | None = None
    """The plugin ends."""
    event: EventFault | None = None
    """An Event about the Node is written."""
    condition: ConditionFault | None = None
    """The Node has this condition."""
    api: ApiFaults | None = None
    """The plugin's requests to the API server fail."""
    slices: SliceFaults | None = None
    """ResourceSlices are disturbed."""
    health_stream: HealthStreamFaults | None = None
    """The streams on which DRA drivers tell the health of devices are disturbed."""
    allow_harmful: Flag = False
    """Allows what could harm a real kubelet: drop, and stream: {oversized: true}."""


class Faults(Section):
    """Failures on demand."""

    seed: Whole = 0
    """Seed of the random choices; with the same seed a run repeats exactly."""
    kernel_log: KernelLog = ""
    """Where Xids are written as NVIDIA's driver does, once at each beginning, for readers of the kernel log: true is
    /dev/kmsg, else a file."""
    rules: list[FaultRule] = []
    """What fails, and when."""
