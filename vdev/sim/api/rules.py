"""What Kubernetes refuses of objects, and what it fills in or leaves out. Where it is lenient, this is not."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..dra.scheduling import claim_limits, slice_lint
from .kinds import ApiKind, Document

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUANTITY = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]+([kMGTPE]|[KMGTPE]i|e[0-9]+)?")  # as such amounts are given back
_CONDITION = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ALPHABET = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LARGEST_ANNOTATIONS = 256 * 1024  # bytes, keys and values together
_LONGEST, _LONGEST_PREFIX, _LONGEST_MESSAGE = 63, 253, 1024
_STANDARD = {"cpu", "memory", "pods", "ephemeral-storage", "storage"}
_SPLIT_COUNTERS = (1, 35)  # since when counters have slices of their own
_GATES = (1, 36)  # since when fields of partitions, taints and shares are on by default
_BINDING = ("bindsToNode", "bindingConditions", "bindingFailureConditions")
_GATED = ("taints", "consumesCounters", "allowMultipleAllocations", *_BINDING)
_SLICE = {"driver", "pool", "nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection", "devices"}
_DEVICE = {"name", "attributes", "capacity", "nodeName", "nodeSelector", "allNodes"}
_IN_DEVICE = {"taints": {"key", "value", "effect", "timeAdded"}, "consumesCounters": {"counterSet", "counters"}}


@dataclass(frozen=True, slots=True)
class Release:
    """A version of Kubernetes, and whether the gates of partitions, taints and shares are on though they are alpha."""

    version: tuple[int, int] = (1, 36)
    alpha: bool = False

    @property
    def gates(self) -> bool:
        """Whether those gates are on."""
        return self.alpha or self.version >= _GATES


def complete(kind: ApiKind, new: dict[str, Any], *, release: Release, now: str) -> None:
    """Make of what was sent what is stored: of a slice, fields of gates that are off and empty lists go, times come."""
    spec = new.get("spec")
    if kind.kind != "ResourceSlice" or not isinstance(spec, dict):
        return
    if not release.gates:
        spec.pop("sharedCounters", None)
    _without_empty(spec, ("devices", "sharedCounters"))
    for device in spec.get("devices") or ():
        if not release.gates:
            _without_gated(device)
        _without_empty(device, ("attributes", "capacity", "taints", "consumesCounters"))
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def _without_gated(device: dict[str, Any]) -> None:
    for name in _GATED:
        device.pop(name, None)
    for each in (device.get("capacity") or {}).values():
        each.pop("requestPolicy", None)


def _without_empty(document: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name in document and not document[name]:
            del document[name]


def causes(kind: ApiKind, new: Document, *, release: Release) -> Iterator[tuple[str, str]]:
    """What is wrong with an object: field and message each."""
    yield from _metadata(new.get("metadata") or {})
    match kind.kind:
        case "Namespace":
            yield from _namespace(new["metadata"]["name"])
        case "ConfigMap":
            yield from _data(new.get("data") or {})
        case "Node":
            yield from _node(new)
        case "Event":
            yield from _event(new)
        case "ResourceSlice":
            yield from _slice(new, release)
        case "ResourceClaim":
            yield from claim_limits.requests("spec", new.get("spec"))
            yield from claim_limits.status(new.get("status") or {})
        case "ResourceClaimTemplate":
            yield from claim_limits.requests("spec.spec", (new.get("spec") or {}).get("spec"))
        case "DeviceClass":
            yield from _class(new.get("spec") or {})
        case "Lease":
            yield from _lease(new.get("spec") or {})


def labels(field: str, written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the labels that stand in a field: field and message each."""
    for key, value in written.items():
        yield from ((field, text) for text in _key(key, key))
        if not isinstance(value, str):
            yield field, f"Invalid value: {json.dumps(value)}: must be a string"
        elif len(value) > _LONGEST:
            yield field, f'Invalid value: "{value}": must be no more than 63 bytes'
        elif value and not _NAME.fullmatch(value):
            yield field, f'Invalid value: "{value}": {_ALPHABET}'


def _annotations(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in written.items():
        yield from (("metadata.annotations", text) for text in _key(key, key))
        if not isinstance(value, str):
            yield "metadata.annotations", f"Invalid value: {json.dumps(value)}: must be a string"
    if sum(len(text.encode()) for pair in written.items() for text in map(str, pair)) > _LARGEST_ANNOTATIONS:
        yield "metadata.annotations", f"Too long: may not be more than {_LARGEST_ANNOTATIONS} bytes"


def _metadata(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from labels("metadata.labels", metadata.get("labels") or {})
    yield from _annotations(metadata.get("annotations") or {})
    beginning = metadata.get("generateName") or "a"
    masked = f"{beginning[:-2]}a" if len(beginning) > 1 and beginning.endswith("-") else beginning
    if len(masked) > _LONGEST_PREFIX or not _SUBDOMAIN.fullmatch(masked):
        yield "metadata.generateName", f'Invalid value: "{beginning}": a lowercase RFC 1123 subdomain must consist of …'
    name = metadata.get("name", "")
    if len(name) > _LONGEST_PREFIX or not _SUBDOMAIN.fullmatch(name):
        yield "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of …'
    yield from _bindings(metadata)


def _namespace(name: str) -> Iterator[tuple[str, str]]:
    if "." in name or len(name) > _LONGEST:
        yield "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of …'


def _bindings(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with owners and finalizers."""
    owners = metadata.get("ownerReferences") or ()
    for index, each in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not each.get(field):
                yield f"metadata.ownerReferences[{index}].{field}", "Invalid value: must not be empty"
    if sum(bool(each.get("controller")) for each in owners) > 1:
        yield "metadata.ownerReferences", "Invalid value: Only one reference can have Controller set to true"
    for each in metadata.get("finalizers") or ():
        yield from (("metadata.finalizers", text) for text in _key(str(each), str(each)))


def _data(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        if len(key) > _LONGEST_PREFIX or not _DATA_KEY.fullmatch(key) or key == "." or key.startswith(".."):
            yield (
                f"data[{key}]",
                f'Invalid value: "{key}": a valid config key must consist of alphanumeric characters, …',
            )
        if not isinstance(value, str):
            yield f"data[{key}]", f"Invalid value: {json.dumps(value)}: must be a string"


def _key(key: str, shown: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield f'Invalid value: "{shown}": prefix part must be non-empty'
    elif slash and (len(prefix) > _LONGEST_PREFIX or not _SUBDOMAIN.fullmatch(prefix)):
        yield f'Invalid value: "{shown}": prefix part a lowercase RFC 1123 subdomain must consist of …'
    if not name:
        yield f'Invalid value: "{shown}": name part must be non-empty'
    elif len(name) > _LONGEST:
        yield f'Invalid value: "{shown}": name part must be no more than 63 bytes'
    elif not _NAME.fullmatch(name):
        yield f'Invalid value: "{shown}": {_PART}'


def _node(document: Document) -> Iterator[tuple[str, str]]:
    yield from _taints((document.get("spec") or {}).get("taints") or ())
    status = document.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            yield from ((f"status.{field}.{name}", text) for text in _resource(name, quantity))
    seen: set[str] = set()
    for index, each in enumerate(status.get("conditions") or ()):
        at = f"status.conditions[{index}]"
        kind = each.get("type", "")
        if not _CONDITION.fullmatch(kind):
            yield f"{at}.type", f'Invalid value: "{kind}": must be a name'
        if kind in seen:
            yield f"{at}.type", f'Duplicate value: "{kind}"'
        seen.add(kind)
        if each.get("status") not in ("True", "False", "Unknown"):
            yield f"{at}.status", 'Unsupported value: supported values: "False", "True", "Unknown"'


def _taints(taints: Iterable[Document]) -> Iterator[tuple[str, str]]:
    seen: set[tuple[Any, Any]] = set()
    for index, each in enumerate(taints):
        at, key, effect = f"spec.taints[{index}]", each.get("key") or "", each.get("effect") or ""
        yield from ((f"{at}.key", text) for text in _key(key, key))
        yield from ((f"{at}.value", text) for _, text in labels("", {"value": each.get("value") or ""}))
        if effect not in _EFFECTS:
            supported = ", ".join(f'"{one}"' for one in _EFFECTS)
            yield f"{at}.effect", f'Unsupported value: "{effect}": supported values: {supported}'
        if (key, effect) in seen:
            yield at, f'Duplicate value: "{key}:{effect}": taints must be unique by key and effect pair'
        seen.add((key, effect))


def _lease(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        number = spec.get(field, least)
        if not isinstance(number, int) or number < least:
            yield f"spec.{field}", f"Invalid value: {json.dumps(number)}: must be a whole number, {least} or more"
    for field in ("acquireTime", "renewTime"):
        if (time := spec.get(field)) is not None and not _MICRO_TIME.fullmatch(str(time)):
            yield f"spec.{field}", f'Invalid value: "{time}": must be a time with six digits behind the second'


def _resource(name: str, quantity: Any) -> Iterator[str]:
    own = name in _STANDARD or name.startswith(("hugepages-", "attachable-volumes-"))
    if not isinstance(quantity, str) or not _QUANTITY.fullmatch(quantity):
        yield f"Invalid value: {json.dumps(quantity)}: quantities must match the regular expression …"
    elif quantity.startswith("-"):
        yield f'Invalid value: "{quantity}": must be greater than or equal to 0'
    elif not own and not _WHOLE.fullmatch(quantity):
        yield f'Invalid value: "{quantity}": must be an integer'
    if not own:
        if "/" not in name:
            yield f'Invalid value: "{name}": must be a standard resource type or fully qualified'
        yield from _key(name, name)


def _event(document: Document) -> Iterator[tuple[str, str]]:
    about = document.get("involvedObject") or {}
    namespace = (document.get("metadata") or {}).get("namespace", "")
    inside = about.get("namespace", "") or "default"
    if inside != namespace:
        yield "involvedObject.namespace", f'Invalid value: "{inside}": does not match event.namespace'
    for field in ("reason", "message"):
        if not document.get(field):
            yield field, "Required value"
    if len(document.get("message") or "") > _LONGEST_MESSAGE:
        yield "message", "Too long: may not be more than 1024 bytes"
    if document.get("type") not in ("Normal", "Warning"):
        yield "type", 'Invalid value: must be "Normal" or "Warning"'
    if not about.get("kind") or not about.get("name"):
        yield "involvedObject", "Required value: kind and name"
    if not (document.get("source") or {}).get("component") and not document.get("reportingComponent"):
        yield "reportingController", "Required value"
    if document.get("eventTime") and not all(document.get(each) for each in ("action", "reportingInstance")):
        yield "action", "Required value: with eventTime, action and reportingInstance as well"


def _slice(document: Document, release: Release) -> Iterator[tuple[str, str]]:
    spec = document.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("pool"), Mapping):
        yield "spec.pool", "Required value"
        return
    yield from _strange(spec)
    splits = release.version >= _SPLIT_COUNTERS
    for finding in slice_lint.of_one(document):
        if finding.code != "slice-mixed" or splits:
            yield "spec", finding.message
    if not splits:
        sets = {each.get("name") for each in spec.get("sharedCounters") or ()}
        for index, device in enumerate(spec.get("devices") or ()):
            for use in device.get("consumesCounters") or ():
                if use.get("counterSet") not in sets:
                    at = f"spec.devices[{index}].consumesCounters"
                    yield at, f'Not found: "{use.get("counterSet")}": must reference a counterSet in the ResourceSlice'


def _strange(spec: Document) -> Iterator[tuple[str, str]]:
    """The fields of a slice that the API does not have, which a real server leaves out with a warning or refuses."""
    yield from _unknown("spec", spec, {*_SLICE, "sharedCounters"})
    yield from _unknown("spec.pool", spec["pool"], {"name", "generation", "resourceSliceCount"})
    for index, each in enumerate(spec.get("sharedCounters") or ()):
        yield from _unknown(f"spec.sharedCounters[{index}]", each, {"name", "counters"})
    for index, device in enumerate(spec.get("devices") or ()):
        at = f"spec.devices[{index}]"
        yield from _unknown(at, device, {*_DEVICE, *_GATED})
        for name, each in (device.get("capacity") or {}).items():
            yield from _unknown(f"{at}.capacity.{name}", each, {"value", "requestPolicy"})
        for field, known in _IN_DEVICE.items():
            for number, each in enumerate(device.get(field) or ()):
                yield from _unknown(f"{at}.{field}[{number}]", each, known)


def _unknown(at: str, document: Document, known: set[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(document.keys() - known):
        yield f"{at}.{name}", "unknown field"


def _class(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from claim_limits.selectors("spec.selectors", spec.get("selectors"))
    yield from claim_limits.configs("spec.config", spec.get("config"))
    yield from _unknown("spec", spec, {"selectors", "config", "extendedResourceName"})
    if name := spec.get("extendedResourceName"):
        yield from (("spec.extendedResourceName", text) for text in _resource(name, "1"))
