"""Fault rules, the section `faults` of the file: which effect, on which devices and nodes, and when.

`effects` has the models of effects. `schedule` decides when a rule is active, and `targets` which devices it selects.
"""

import json
import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema

from ..model.device import Device, Health
from ..model.scalars import (
    AbsolutePath,
    AsWritten,
    Constraint,
    Duration,
    Flag,
    OneOrMany,
    Shorthand,
    Text,
    Whole,
    Word,
    between,
    index_range,
    matching,
)
from ..model.section import Placed, Plain, Resolved, Section, described, refuse
from . import effects
from .effects import Part, Time
from .xids import APPLICATION_ERRORS, MAX_XID
from .xids import described as xid_text

ALWAYS = 1.0  # a probability
DRILL = "drill"  # the default reason of an injected failure, which is shown beside the rule's name

# --- devices and nodes ----------------------------------------------------------------------------------------------


_ARRAY_OR_STRING = {"type": ["array", "string"]}
_DURATION_JSON = {"type": ["string", "number"]}
_INDEX = r"(?:0|[1-9]\d{0,5})"
_REFERENCE = re.compile(rf"([^/]+)(?:/(\*|{_INDEX}(?:-{_INDEX})?|{_INDEX}:{_INDEX}))?")
_REFERENCES = "an entry's name, a device id, or <entry>/<index> with an index 3, a range 0-2, a partition 3:0 or *"


def _reference_problem(item: object) -> str:
    """Return why an item is not a reference to devices, or the empty string."""
    if not isinstance(item, str) or isinstance(item, Plain):
        return f"expected a string, got {described(item)}"
    if _REFERENCE.fullmatch(item):
        return ""
    return f"{item!r} refers to no device; expected {_REFERENCES}"


_ITEMS: TypeAdapter[list[object]] = TypeAdapter(list[Annotated[object, Constraint(_reference_problem)]])


def _select_of(value: object) -> "Select":
    """Convert a list of references, or a single one."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not items:
        refuse("the list is empty, so the rule can never take effect", "name a device, or leave the key out")
    if isinstance(value, (list, tuple)):
        _ITEMS.validate_python(items)
    elif text := _reference_problem(value):
        refuse(text)
    return Select(names=tuple(items))


def _index(value: object) -> object:
    text = str(value)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not re.fullmatch(f"{_INDEX}(-{_INDEX})?", text):
        refuse(f"expected an index, got {described(value)}", 'such as 3, or a range "0-2"')
    if not index_range(text):
        refuse(f"the range {text} is empty", "write the lower index first")
    return text


Index = Annotated[str, BeforeValidator(_index), WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})]


class Select(Section):
    """The devices that meet all conditions. count, share and pick select some of them."""

    names: tuple[Text, ...] = ()
    """Names of entries, ids and <entry>/<index>; the same as a list in place of this mapping."""
    entry: Word | None = None
    """Pattern for the entry's name."""
    index: Annotated[tuple[Index, ...], OneOrMany()] = ()
    """Indices in the entry: 3, "0-2", or a list of them."""
    id: Word | None = None
    """Pattern for the id of a device, a partition or a replica."""
    resource: Word | None = None
    """Pattern for the resource; the rule then applies to what that resource advertises, such as partitions."""
    profile: Word | None = None
    """Pattern for the partition's profile; the rule then applies to partitions, not to whole devices."""
    numa: Annotated[tuple[Annotated[Whole, between(0)], ...], OneOrMany()] = ()
    """NUMA nodes."""
    count: Annotated[Whole, between(1)] | None = None
    """Only this number of devices, the first ones."""
    pick: Annotated[Whole, between(1)] | None = None
    """Only this number of devices, chosen at random by the seed."""
    share: Part | None = None
    """Only this fraction of the devices, at least one, chosen at random by the seed."""

    def alternatives(self, entries: Collection[str]) -> "tuple[Select, ...]":
        """Return a set of conditions for each name. A device must meet all conditions of one set.

        `entries` are the names of all entries.
        """
        return tuple(_reference(name, entries) for name in self.names) or (self,)

    @property
    def of_partitions(self) -> bool:
        """Whether partitions are selected, if there are any, instead of whole devices."""
        return bool(self.profile or self.resource) or any(":" in each for each in self.index)

    def has_index(self, device: Device) -> bool:
        """Whether the device has one of the indices. The first partition of device 3 has the index 3:0."""
        for each in self.index:
            indices, _, part = each.partition(":")
            is_here = device.raw.index in index_range(indices)
            if is_here and (not part or (device.is_partition and device.part == int(part))):
                return True
        return not self.index


def _reference(name: str, entries: Collection[str]) -> Select:
    """Return the conditions of a reference: `<entry>/<index>`, `<entry>` or a device id."""
    entry, slash, index = name.partition("/")
    if slash:
        return Select.model_construct(entry=entry, index=() if index == "*" else (index,))
    is_entry = any(fnmatchcase(each, name) for each in entries)
    return Select.model_construct(entry=name) if is_entry else Select.model_construct(id=name)


def _nodes_of(value: object) -> "OnNodes":
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not items or any(type(item) is not str or not item for item in items):
        refuse(f"expected patterns for node names, got {described(value)}", 'such as ["gpu-*"], or {share: 10%}')
    return OnNodes(names=tuple(items))


class OnNodes(Section):
    """The nodes on which a rule applies: those that meet all conditions."""

    names: Annotated[tuple[Word, ...], OneOrMany()] = ()
    """Patterns for the nodes' names. Default: every node."""
    labels: dict[Word, AsWritten] = {}
    """Labels that the nodes must have, such as a zone or a rack; for `vdev fleet`, which knows the labels of its
    nodes."""
    share: Part = 1.0
    """Only this fraction of the nodes; the seed and the node's name decide."""


# --- a rule -----------------------------------------------------------------------------------------------------------


OF_DEVICES = ("health", "xid", "flap", "remove", "drop", "taint", "overheat", "hardwareErrors")
"""The keys of effects on devices."""
DEVICE = "device"
"""The kind of rules with effects on devices. The kind of another rule is the key of its effect."""


KINDS = (
    *(DEVICE, "rpc", "register", "stream", "socket", "cdi", "podResources", "process"),
    *("event", "condition", "api", "slices", "healthStream"),
)
OF_KUBELET = frozenset({"rpc", "register", "stream", "socket", "cdi", "podResources", "process", "healthStream"})
"""The kinds that need a kubelet on the node."""
COUNTS_CALLS = frozenset({"rpc", "register", "api"})
"""The kinds whose `nth` and `probability` are about calls or requests, not about repetitions."""
COUNTS_BEGINNINGS = frozenset({DEVICE, "cdi", "podResources", "condition"})
"""The kinds that are counted once when the fault begins; other kinds are counted per effect."""
_OF_DRIVERS = frozenset({"slices", "healthStream"})  # `resource` names DRA drivers
_MOMENTARY = frozenset({"process", "event"})  # happens at its beginning and has no duration

EFFECTS = (*OF_DEVICES, *(kind for kind in KINDS if kind != DEVICE))
"""The keys of all effects. A rule has one of them; `health` may be combined with `xid`."""

_RULE_NAME = matching(
    r"[A-Za-z0-9]([A-Za-z0-9._:/-]{0,78}[A-Za-z0-9])?",
    "1 to 80 letters, digits and . _ : / -, a letter or digit at both ends",
)


class FaultRule(Placed):
    """A fault: what fails, on which devices and nodes, and when."""

    name: Annotated[Text, _RULE_NAME]
    """Name of the rule, unique in the file; random choices depend on it."""
    devices: Annotated[Select, Shorthand((dict, Section), _ARRAY_OR_STRING, _select_of)] = Select()
    """Which devices: a list of entries, ids and <entry>/<index>, or conditions. Default: all of the resource."""
    resource: Word = "*"
    """Pattern for the resource, or for the DRA driver in rules about slices, healthStream and calls for claims.
    Default: all."""
    on_nodes: Annotated[OnNodes, Shorthand((dict, Section), _ARRAY_OR_STRING, _nodes_of)] = OnNodes()
    """Which nodes: patterns for names, {labels: {zone: a}}, or {share: 10%}. Default: every node."""

    since: Literal["load", "start"] | None = None
    """When the rule's times start: load (when the rule is read) or start (when the plugin starts). Default: load."""
    on_allocate: Flag = False
    """The rule's times start at each allocation of one of the devices to a pod, and only these devices fail."""
    on_file: AbsolutePath | None = None
    """The rule's times start when this file appears. The fault ends when the file is removed."""
    manual: Flag = False
    """The rule's times start with `vdev fault trigger`."""
    at: Duration = 0.0
    """When the fault begins."""
    lasts: Annotated[Time | None, Field(alias="for")] = None
    """How long the fault lasts. Default: as long as the rule exists."""
    every: Time | None = None
    """Time from one beginning to the next, if the fault repeats."""
    times: Annotated[Whole, between(1)] | None = None
    """How many times the fault repeats. Default: no limit."""
    jitter: Part = 0.0
    """Fraction of `every` (of a flap's `up`, or of `at`) by which each beginning varies at random, in both
    directions."""
    nth: Annotated[tuple[Annotated[Whole, between(1)], ...], OneOrMany()] = ()
    """Only the n-th calls, requests, allocations or repetitions: 3, or [1, 3]."""
    every_nth: Annotated[Whole, between(1)] | None = None
    """Only every n-th call, request, allocation or repetition."""
    probability: Part = 1.0
    """Only this fraction of calls, requests, allocations or repetitions, chosen at random by the seed."""

    health: Literal["Healthy", "Unhealthy"] | None = None
    """The health that is reported, whatever the probes find."""
    xid: Annotated[Whole, between(1, MAX_XID)] | None = None
    """The error that NVIDIA's driver reports for the devices. They are Unhealthy, unless health says otherwise or
    NVIDIA's device plugin attributes the error to the application (13, 31, 43, 45, 68, 109)."""
    reason: Text = ""
    """For health, xid and flap: the reason that is shown."""
    flap: effects.FlapTimes | None = None
    """The devices alternate between Healthy and Unhealthy."""
    remove: Flag = False
    """The devices are unplugged; those that a pod may hold stay listed as Unhealthy."""
    taint: effects.TaintFault | None = None
    """The devices have this taint in ResourceSlices; needs dra in advertise."""
    overheat: effects.OverheatFault | None = None
    """The devices become hot, which telemetry shows."""
    hardware_errors: effects.HardwareErrorsFault | None = None
    """The devices count errors, which telemetry shows."""
    drop: Flag = False
    """The devices leave the list even while a pod holds them; needs allowHarmful."""
    rpc: Annotated[tuple[effects.Rpc, ...], OneOrMany()] = ()
    """Which of the kubelet's calls are disturbed, by one or more of delay, hang, error and answer: those on a device
    plugin, and NodePrepareResources and NodeUnprepareResources on a DRA driver."""
    delay: Annotated[effects.DelayTimes, Shorthand((dict, Section), _DURATION_JSON, effects.fixed_delay)] | None = None
    """For rpc: how long calls wait: a fixed time, or {p50: …, max: …}."""
    hang: Flag = False
    """For rpc: calls are not answered until they are cancelled or the fault ends."""
    error: effects.ErrorAnswer | None = None
    """For rpc: calls end with this error."""
    answer: effects.Answer | None = None
    """For rpc Allocate, GetPreferredAllocation, NodePrepareResources and NodeUnprepareResources: calls get a wrong
    answer."""
    register_: Annotated[effects.RegisterFaults | None, Field(alias="register")] = None
    """Registrations are disturbed."""
    stream: effects.StreamFaults | None = None
    """The device lists' streams are disturbed."""
    socket: effects.SocketFaults | None = None
    """The sockets are disturbed."""
    cdi: effects.CdiFaults | None = None
    """The CDI files are disturbed."""
    pod_resources: effects.PodResourcesFaults | None = None
    """The kubelet's PodResources API is disturbed."""
    process: effects.ProcessFaults | None = None
    """The plugin's process exits."""
    event: effects.EventFault | None = None
    """An Event about the Node is written."""
    condition: effects.ConditionFault | None = None
    """The Node has this condition."""
    api: effects.ApiFaults | None = None
    """The plugin's requests to the API server fail."""
    slices: effects.SliceFaults | None = None
    """ResourceSlices are disturbed."""
    health_stream: effects.HealthStreamFaults | None = None
    """The streams on which DRA drivers report the health of devices are disturbed."""
    allow_harmful: Flag = False
    """Allows what could harm a real kubelet: drop, and stream: {oversized: true}."""

    seed: Resolved[int] = 0
    """The seed of the rule's section."""

    @property
    def kind(self) -> str:
        """The kind of the effect, one of KINDS."""
        values = self.by_key
        effect = next(key for key in EFFECTS if values[key])
        return DEVICE if effect in OF_DEVICES else effect

    @property
    def verdict(self) -> Health | None:
        """The health that the devices get, or None if the rule does not change it."""
        if self.flap is not None:
            return Health(False, self.reason or DRILL, self.name)
        if self.health is None and (self.xid is None or self.xid in APPLICATION_ERRORS):
            return None
        if self.health == "Healthy":
            return Health(True, self.reason, self.name)
        return Health(False, self.reason or (xid_text(self.xid) if self.xid else DRILL), self.name)

    @property
    def acts_once(self) -> bool:
        """Whether the effect happens once, when the fault begins."""
        closes = self.stream is not None and self.stream.close
        wipes = self.slices is not None and self.slices.wiped
        breaks = self.api is not None and self.api.ends_watches
        return self.kind in _MOMENTARY or closes or wipes or breaks or self.socket is not None

    @property
    def momentary(self) -> bool:
        """Whether the fault ends as soon as it has begun."""
        return self.kind in _MOMENTARY or (self.lasts is None and self.api is None and self.acts_once)

    @property
    def of_resources(self) -> bool:
        if self.rpc:
            return any(each not in effects.CALLS_FOR_CLAIMS for each in self.rpc)
        return not self.of_drivers

    @property
    def of_drivers(self) -> bool:
        """Whether `resource` names DRA drivers. Rules about devices name resources, also for claims."""
        if self.rpc:
            return any(each in effects.CALLS_FOR_CLAIMS for each in self.rpc)
        return self.kind in _OF_DRIVERS

    @property
    def triggered(self) -> bool:
        """Whether the rule's times start with an event: an allocation, a file or a command."""
        return bool(self.on_allocate or self.on_file or self.manual)

    def concerns(self, resource: str) -> bool:
        return fnmatchcase(resource, self.resource)


# --- the section ------------------------------------------------------------------------------------------------------

KMSG = "/dev/kmsg"


def _kernel_log(value: object) -> object:
    """Convert the path of the kernel log: true means the default."""
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if isinstance(value, bool):
        return KMSG if value else ""
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/") or "\0" in value:
        refuse(f"expected true or the absolute path of a file, got {described(value)}", "such as /var/log/xids.log")
    return str(value)


_KERNEL_LOG_JSON = {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^/(.*[^/])?$"}]}
KernelLog = Annotated[str, BeforeValidator(_kernel_log), WithJsonSchema(_KERNEL_LOG_JSON)]
"""The kernel log, or a file instead of it."""


class Faults(Section):
    """Injected faults: the rules, and what applies to all of them."""

    seed: Whole = 0
    """Seed of the random choices; with the same seed a run repeats exactly."""
    kernel_log: KernelLog = ""
    """Where Xids are written in the form of NVIDIA's driver, once each time a fault begins: true for /dev/kmsg, or a
    file."""
    rules: tuple[FaultRule, ...] = ()
    """What fails, and when."""


NO_RULES = Faults()


# --- in words ---------------------------------------------------------------------------------------------------------

_WORDS = {*EFFECTS, "resource", "reason", "delay", "hang", "error", "answer", "nth", "everyNth", "probability"}


def words(rule: FaultRule) -> str:
    """Describe the effect of a rule in one line, for people, by the keys of the file."""
    given = rule.model_dump(mode="json", by_alias=True, exclude_defaults=True, warnings=False)
    shown = {key: value for key, value in given.items() if key in _WORDS}
    text = ", ".join(f"{key}: {value if isinstance(value, str) else _flow(value)}" for key, value in shown.items())
    return f"{text} ({xid_text(rule.xid)})" if rule.xid else text


def _flow(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace('"', "")
