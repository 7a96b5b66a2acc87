"""What is refused of objects: names, labels, owners, and all of the objects of DRA. And what is filled in."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..dra import claim_limits, slice_lint
from ..objects import formats
from . import pod_defaults
from .kinds import ApiKind, Document

_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_LARGEST_ANNOTATIONS = 256 * 1024  # bytes, keys and values together
_SPLIT_COUNTERS = (1, 35)  # since when counters have slices of their own
_GATES = (1, 36)  # since when fields of partitions, taints and shares are on by default
_AMONG, _THERE, _COMPARED = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")  # operators
_FIELD = "metadata.name"  # the only one by which nodes can be selected
_GATED = (
    *("taints", "consumesCounters", "allowMultipleAllocations"),
    *("bindsToNode", "bindingConditions", "bindingFailureConditions"),
)


@dataclass(frozen=True, slots=True)
class Release:
    """A version of Kubernetes, and whether the gates of partitions, taints and shares are on though they are alpha."""

    version: tuple[int, int] = (1, 36)
    alpha: bool = False

    @property
    def gates(self) -> bool:
        return self.alpha or self.version >= _GATES


def complete(kind: ApiKind, new: dict[str, Any], *, release: Release, now: str) -> None:
    """Make of what was sent what is stored: defaults and times come; of a slice, fields of gates that are off and empty
    lists go.
    """
    if kind.kind == "Pod":
        new.setdefault("spec", {}).setdefault("containers", [])
    spec = new.get("spec")
    if not isinstance(spec, dict):
        return
    if kind.kind == "Pod":
        pod_defaults.complete(spec)
        new.setdefault("status", pod_defaults.first_status(spec, now))
    elif kind.kind == "ResourceClaim":
        _complete_claim(spec)
    elif kind.kind == "ResourceClaimTemplate":
        _complete_claim(spec.get("spec") or {})
    elif kind.kind == "ResourceSlice":
        _complete_slice(spec, release=release, now=now)


def _complete_claim(spec: Document) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for asked in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if not isinstance(asked, dict):
                continue
            asked["allocationMode"] = asked.get("allocationMode") or "ExactCount"
            if not asked.get("count"):
                asked.pop("count", None)
                if asked["allocationMode"] == "ExactCount":
                    asked["count"] = 1
            for toleration in asked.get("tolerations") or ():
                toleration["operator"] = toleration.get("operator") or "Equal"


def _complete_slice(spec: dict[str, Any], *, release: Release, now: str) -> None:
    if not release.gates:
        spec.pop("sharedCounters", None)
    both = release.version >= _SPLIT_COUNTERS and spec.get("sharedCounters")  # which is refused, devices or none
    _without_empty(spec, ("sharedCounters",) if both else ("devices", "sharedCounters"))
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
    named = formats.dns_label if kind.kind == "Namespace" else formats.subdomain
    yield from _metadata(new.get("metadata") or {}, named)
    match kind.kind:
        case "ResourceSlice":
            yield from _slice(new, release)
        case "ResourceClaim":
            yield from claim_limits.requests("spec", new.get("spec"))
            yield from claim_limits.status(new.get("status") or {})
        case "ResourceClaimTemplate":
            yield from _template(new.get("spec") or {})
        case "DeviceClass":
            yield from _class(new.get("spec") or {})


def labels(field: str, written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in written.items():
        yield from ((field, text) for text in formats.qualified_name(key))
        yield from ((field, text) for text in formats.label_value(value))


def _annotations(field: str, written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in written.items():
        yield from ((field, text) for text in formats.qualified_name(key.lower()))
        if not isinstance(value, str):
            yield field, formats.wrong(value, "must be a string")
    if sum(len(text.encode()) for pair in written.items() for text in map(str, pair)) > _LARGEST_ANNOTATIONS:
        yield field, f"Too long: may not be more than {_LARGEST_ANNOTATIONS} bytes"


def _metadata(metadata: Mapping[str, Any], named: Callable[[str], Iterator[str]]) -> Iterator[tuple[str, str]]:
    yield from labels("metadata.labels", metadata.get("labels") or {})
    yield from _annotations("metadata.annotations", metadata.get("annotations") or {})
    if beginning := metadata.get("generateName"):
        masked = f"{beginning[:-2]}a" if len(beginning) > 1 and beginning.endswith("-") else beginning
        yield from (("metadata.generateName", text) for text in named(masked))
    yield from (("metadata.name", text) for text in named(metadata.get("name", "")))
    yield from _bindings(metadata)


def _bindings(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    owners = metadata.get("ownerReferences") or ()
    for each in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not each.get(field):
                why = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield f"metadata.ownerReferences.{field}", formats.wrong(each.get(field, ""), why)
    if sum(bool(each.get("controller")) for each in owners) > 1:
        yield "metadata.ownerReferences", "Invalid value: Only one reference can have Controller set to true"
    for index, each in enumerate(map(str, metadata.get("finalizers") or ())):
        yield from (("metadata.finalizers", text) for text in formats.qualified_name(each))
        if "/" not in each and each not in _FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield f"metadata.finalizers[{index}]", formats.wrong(each, why)


def _slice(document: Document, release: Release) -> Iterator[tuple[str, str]]:
    spec = document.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("pool"), Mapping):
        yield "spec.pool", "Required value"
        return
    yield from _of_nodes("spec", spec)
    for index, device in enumerate(spec.get("devices") or ()):
        yield from _of_nodes(f"spec.devices[{index}]", device)
    if "devices" in spec and not spec["devices"] and spec.get("sharedCounters"):
        yield "spec", 'Invalid value: "": only one of `sharedCounters` or `devices` is allowed'
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


def _of_nodes(at: str, place: Document) -> Iterator[tuple[str, str]]:
    """Which nodes a slice or a device is for."""
    if node := place.get("nodeName"):
        yield from ((f"{at}.nodeName", text) for text in formats.subdomain(node))
    if (selector := place.get("nodeSelector")) is not None:
        yield from _node_selector(f"{at}.nodeSelector", selector)


def _node_selector(at: str, selector: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield f"{at}.nodeSelectorTerms", "Required value: must have at least one node selector term"
    for index, each in enumerate(terms):
        yield from _node_term(f"{at}.nodeSelectorTerms[{index}]", each)


def _node_term(at: str, written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(written.get("matchExpressions") or ()):
        yield from _expression(f"{at}.matchExpressions[{index}]", each)
    for index, each in enumerate(written.get("matchFields") or ()):
        yield from _field(f"{at}.matchFields[{index}]", each)


def _expression(at: str, requirement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator in _AMONG and not values:
        yield f"{at}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'"
    elif operator in _THERE and values:
        yield f"{at}.values", "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
    elif operator in _COMPARED and len(values) != 1:
        yield f"{at}.values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
    elif operator not in (*_AMONG, *_THERE, *_COMPARED):
        yield f"{at}.operator", formats.wrong(operator, "not a valid selector operator")
    yield from ((f"{at}.key", text) for text in formats.qualified_name(str(requirement.get("key", ""))))
    for index, each in enumerate(values):
        yield from ((f"{at}.values[{index}]", text) for text in formats.label_value(each))


def _field(at: str, requirement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in _AMONG:
        yield f"{at}.operator", formats.wrong(operator, "not a valid selector operator")
    elif len(values) != 1:
        yield f"{at}.values", "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field"
    if (key := requirement.get("key", "")) != _FIELD:
        yield f"{at}.key", formats.wrong(key, "not a valid field selector key")


def _class(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from claim_limits.selectors("spec.selectors", spec.get("selectors"))
    yield from claim_limits.configs("spec.config", spec.get("config"))
    if (name := spec.get("extendedResourceName")) is not None:
        yield from (("spec.extendedResourceName", text) for text in formats.extended_resource(str(name)))


def _template(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of a claim that is to be: no more of its metadata than labels and annotations."""
    metadata = spec.get("metadata") or {}
    yield from labels("spec.metadata.labels", metadata.get("labels") or {})
    yield from _annotations("spec.metadata.annotations", metadata.get("annotations") or {})
    for field in metadata.keys() - {"labels", "annotations", "creationTimestamp"}:
        yield f"spec.metadata.{field}", "Forbidden: cannot be set"
    yield from claim_limits.requests("spec.spec", spec.get("spec"))
