"""The section `faults`: failures on demand."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ...core.model.fault_effects import Code, Rpc
from ..document.parser import Plain
from .scalars import (
    STRING,
    Constraint,
    Duration,
    FilePath,
    Flag,
    OneOrMany,
    Text,
    Whole,
    Word,
    between,
    choice,
    longer_than_nothing,
    matching,
)
from .section import Flaw, Section, described, refuse, refuse_all

MAX_RATE = 1000  # lists a second; a kubelet writes its checkpoint for each of them
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(%?)")
_HUNDRED = 100


def _part(value: object) -> object:
    """A part of a whole: 0.1 or 10%."""
    found = _PERCENT.fullmatch(str(value)) if isinstance(value, (str, int, float)) else None
    if found is None or isinstance(value, bool):
        refuse(f"expected a part of a whole, got {described(value)}", "such as 10% or 0.1")
    number = float(found[1]) / (_HUNDRED if found[2] else 1)
    if number > 1:
        refuse(f"{value} is more than all", "expected 0 to 1, or 0% to 100%")
    return number


_PART_JSON = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+%?$"}]}
Part = Annotated[float, BeforeValidator(_part), WithJsonSchema(_PART_JSON)]
"""A part of a whole, such as 10% or 0.1."""


Time = Annotated[Duration, longer_than_nothing()]
"""A duration that is longer than nothing."""


@dataclass(frozen=True, slots=True)
class Short:
    """Lets a value that is no mapping stand for a model: `convert` makes it of that, `types` are its JSON types."""

    convert: Callable[[Any], Any]
    types: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, whole: Callable[[object], object]) -> object:
            return whole(value) if isinstance(value, (dict, Section)) else self.convert(value)

        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": list(self.types)}, handler(schema)]}


# --- which devices and nodes -----------------------------------------------------------------------------------------

_INDEX = r"(?:0|[1-9]\d{0,5})"
_PLACE = re.compile(rf"([^/]+)(?:/(\*|{_INDEX}(?:-{_INDEX})?|{_INDEX}:{_INDEX}))?")


def _reference_problem(text: str) -> str:
    return (
        ""
        if _PLACE.fullmatch(text)
        else f"{text!r} names no device; expected an entry's name, a device id, "
        "or <entry>/<index> with an index 3, a range 0-2, a partition 3:0 or *"
    )


def _names(value: object) -> "Select":
    """A list of references, or a single one."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    faults = [
        Flaw((number,), f"expected a text, got {described(item)}", "", item)
        for number, item in enumerate(items)
        if not isinstance(item, str) or isinstance(item, Plain)
    ]
    faults += [
        Flaw((number,), problem, "", item)
        for number, item in enumerate(items)
        if type(item) is str and (problem := _reference_problem(item))
    ]
    if not items:
        refuse("the list is empty, so the rule can never fire", "name a device, or leave the key out")
    if faults:
        if isinstance(value, (list, tuple)):
            refuse_all("devices", faults)
        refuse(faults[0].message)
    return Select(names=items)


def _index(value: object) -> object:
    text = str(value)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not re.fullmatch(f"{_INDEX}(-{_INDEX})?", text):
        refuse(f"expected an index, got {described(value)}", 'such as 3, or a range "0-2"')
    low, _, high = text.partition("-")
    if high and int(high) < int(low):
        refuse(f"the range {text} is empty", "write the lower index first")
    return text


Index = Annotated[str, BeforeValidator(_index), WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})]
_NUMBER_OR_TEXT = (("type", "integer"),)


class Select(Section):
    """Which devices: all conditions must hold; count, share and pick then take some of them."""

    names: list[Text] = []
    """Entries, ids and <entry>/<index>, any of them; the same as a list instead of this mapping."""
    entry: Word | None = None
    """Pattern for the entry's name."""
    index: Annotated[list[Index], OneOrMany(_NUMBER_OR_TEXT)] = []
    """Indices in the entry: 3, "0-2", or a list of them."""
    id: Word | None = None
    """Pattern for the id of a device, a partition or a replica."""
    resource: Word | None = None
    """Pattern for the resource; then only what that resource offers is meant, such as its partitions."""
    profile: Word | None = None
    """Pattern for the partition's profile; then the partition is meant, not the whole device."""
    numa: Annotated[list[Annotated[Whole, between(0)]], OneOrMany((("type", "integer"),))] = []
    """NUMA nodes."""
    count: Annotated[Whole, between(1)] | None = None
    """Only the first so many of them."""
    pick: Annotated[Whole, between(1)] | None = None
    """Only so many of them, chosen by lot with the seed."""
    share: Part | None = None
    """Only this part of them, at least one, chosen by lot with the seed."""


def _globs(value: object) -> "OnNodes":
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not items or any(type(item) is not str or not item for item in items):
        refuse(f"expected patterns for node names, got {described(value)}", 'such as ["gpu-*"], or {share: 10%}')
    return OnNodes(names=items)


class OnNodes(Section):
    """Which nodes."""

    names: Annotated[list[Word], OneOrMany(STRING)] = []
    """Patterns for the nodes' names. Default: every node."""
    share: Part = 1.0
    """Only this part of them; each node draws its own lot with the seed."""


# --- what happens ----------------------------------------------------------------------------------------------------


class HealthWord(StrEnum):
    """What the kubelet is told of a device."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class FlapTimes(Section):
    """Up first, then down, and so on."""

    up: Time
    """How long the device is well each time."""
    down: Time
    """How long it is Unhealthy each time."""


class DelayTimes(Section):
    """How long calls wait: half of them less than p50, none more than max."""

    p50: Duration
    """The median."""
    max: Time
    """The most."""


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
    """More than the 4 MiB that the kubelet receives."""


def _refused_version(value: str) -> tuple[str, str]:
    return ("the kubelet takes v1beta1", "such as v1alpha1, which it refuses") if value == "v1beta1" else ("", "")


class RegisterFaults(Section):
    """What happens to registrations: exactly one of its keys."""

    delay: Time | None = None
    """Each comes so much later."""
    never: Flag = False
    """None is made."""
    version: Annotated[Word, Constraint(_refused_version)] | None = None
    """They name this version of the API, which the kubelet refuses."""
    twice: Flag = False
    """Each is made twice, which opens a second stream."""


class StreamFaults(Section):
    """What happens to the open ListAndWatch streams: exactly one of its keys."""

    close: Flag = False
    """They end; with `for`, nothing is registered again until then."""
    stall: Flag = False
    """They stay open and say nothing new."""
    duplicate_ids: Flag = False
    """Each id is listed twice, as Healthy and as Unhealthy."""
    flood: Annotated[Whole, between(1, MAX_RATE)] | None = None
    """The list is repeated so many times a second."""
    oversized: Flag = False
    """The list passes the 4 MiB that the kubelet receives; needs allowHarmful."""


class SocketFaults(Section):
    """What happens to the resource's socket file: exactly one of its keys."""

    delete: Flag = False
    """It is deleted."""
    replace: Flag = False
    """It gives way to one that nobody answers on."""


class CdiFaults(Section):
    """What happens to the resource's CDI file: exactly one of its keys."""

    missing: Flag = False
    """It is not there."""
    late: Time | None = None
    """It comes so much later than it is needed."""
    broken: Flag = False
    """It breaks off in the middle."""


class PodResourcesFaults(Section):
    """What happens to the kubelet's PodResources API."""

    unavailable: Flag
    """It does not answer this plugin."""


class ProcessFaults(Section):
    """What happens to the plugin's process."""

    exit: Annotated[Whole, between(0, 255)]
    """It ends at once with this code; 137 looks like a kill."""


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
    """One failure: what breaks, on which devices and nodes, and when."""

    name: Annotated[Text, _RULE_NAME]
    """Name of the rule, unique in the file; chance depends on it."""
    devices: Annotated[Select, Short(_names, ("array", "string"))] | None = None
    """Which devices: a list of entries, ids and <entry>/<index>, or conditions. Default: all of the resource."""
    resource: Word = "*"
    """Pattern for the resource. Default: every resource."""
    on_nodes: Annotated[OnNodes, Short(_globs, ("array", "string"))] | None = None
    """Which nodes: patterns for names, or {share: 10%}. Default: every node."""

    since: Annotated[Since, choice(Since)] | None = None
    """What times count from: load (the rule was read) or start (the plugin started). Default: load."""
    on_allocate: Flag = False
    """Times count from each allocation of one of the devices to a pod, and only these devices fail."""
    on_file: FilePath | None = None
    """Times count from the appearance of this file; when it goes, so does the fault."""
    manual: Flag = False
    """Times count from `vdev fault trigger`."""
    at: Duration = 0.0
    """When it begins."""
    lasts: Annotated[Time | None, Field(alias="for")] = None
    """How long it lasts. Default: as long as the rule is there."""
    every: Time | None = None
    """How often it comes again."""
    times: Annotated[Whole, between(1)] | None = None
    """How many times it comes. Default: without end."""
    jitter: Part = 0.0
    """Part of `every` (of a flap's `up`, or of `at`) by which each beginning is moved at random, both ways."""
    nth: Annotated[list[Annotated[Whole, between(1)]], OneOrMany(_NTH_JSON)] = []
    """Only the n-th calls, allocations or repetitions: 3, or [1, 3]."""
    every_nth: Annotated[Whole, between(1)] | None = None
    """Only every n-th call, allocation or repetition."""
    probability: Part = 1.0
    """Only this part of calls, allocations or repetitions, by lot with the seed."""

    health: Annotated[HealthWord, choice(HealthWord)] | None = None
    """The devices are said to be so, whatever their probes find."""
    reason: Text = ""
    """Why, for health and flap: the text that pods and people see."""
    flap: FlapTimes | None = None
    """The devices turn Unhealthy and Healthy in turns."""
    remove: Flag = False
    """The devices are unplugged; what a pod may hold stays listed as Unhealthy."""
    drop: Flag = False
    """The devices leave the list even while a pod holds them; needs allowHarmful."""
    rpc: Annotated[list[Annotated[Rpc, choice(Rpc)]], OneOrMany(STRING)] = []
    """Which of the kubelet's calls are disturbed, by one or more of delay, hang, error and answer."""
    delay: Annotated[DelayTimes, Short(_fixed, ("string", "number"))] | None = None
    """For rpc: calls wait, always so long or {p50: …, max: …}."""
    hang: Flag = False
    """For rpc: calls are not answered until they are cancelled or the fault ends."""
    error: ErrorAnswer | None = None
    """For rpc: calls end with this error."""
    answer: Answer | None = None
    """For rpc Allocate and GetPreferredAllocation: calls get a wrong answer."""
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
    allow_harmful: Flag = False
    """Consent to what could harm a real kubelet: drop, and stream: {oversized: true}."""


class Faults(Section):
    """Failures on demand."""

    seed: Whole = 0
    """Start of the pseudo-random choices, so that a run can be repeated."""
    rules: list[FaultRule] = []
    """What fails, and when."""
