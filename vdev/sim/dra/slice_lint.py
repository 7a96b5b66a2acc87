"""Rules for ResourceSlices: what the API server would refuse, and what makes the scheduler pass over a pool. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..lint import Finding, error, twice
from ..objects import formats
from ..objects.pod_manifest import ManifestError, quantity
from .cel_selectors import is_semver

Document: TypeAlias = Mapping[str, Any]
MOST_DEVICES, MOST_SPECIAL_DEVICES = 128, 64
_MOST_SETS, _MOST_COUNTERS, _MOST_USES = 8, 32, 2
_MOST_ENTRIES, _MOST_TAINTS, _MOST_VALUES = 32, 16, 10
_LONGEST_DRIVER, _LONGEST_POOL, _LONGEST_VALUE = 63, 253, 64
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_KINDS: Mapping[str, type] = {"int": int, "bool": bool, "string": str, "version": str}
_EFFECTS = ("None", "NoSchedule", "NoExecute")
_NODES_OF_DEVICES = ("nodeName", "nodeSelector", "allNodes")
_NODES = (*_NODES_OF_DEVICES, "perDeviceNodeSelection")


class Problem(NamedTuple):
    """The code of a finding, and what is wrong."""

    code: str
    text: str


def slices(found: Iterable[Document]) -> Iterator[Finding]:
    """Of all these slices: each for itself, and the pools that they make up."""
    members = list(found)
    for each in members:
        where = f"slice {each['metadata'].get('name', '')}"
        yield from _findings(each["spec"], _within(where, _slice(each["spec"])))
    for (_, name), specs in by_pool(members).items():
        yield from _findings(specs[0], _within(f"pool {name}", _pool(specs)))


def of_one(slice_: Document) -> Iterator[Finding]:
    """Of one slice by itself: what the API server would refuse of it."""
    spec = slice_["spec"]
    yield from _findings(spec, _within("slice", [*_slice(spec), *_duplicates([spec])]))


def lasting(found: Iterable[Document]) -> Iterator[Finding]:
    """Of what is a mistake only if it stays: pools with slices of an older generation, too few slices, or too many."""
    for (driver, name), specs in by_pool(found).items():
        current = newest(specs)
        generation, expected = _generation(current[0]), _count(current[0])
        if len(current) != expected:
            text = f"{len(current)} slices of generation {generation}, but resourceSliceCount is {expected}"
            yield error("pool-incomplete", driver, f"pool {name}: {text}")
        if old := len(specs) - len(current):
            text = f"{old} slices are older than generation {generation}, and nobody deletes them"
            yield error("pool-outdated", driver, f"pool {name}: {text}")


def _findings(spec: Document, problems: Iterable[Problem]) -> Iterator[Finding]:
    return (error(each.code, str(spec.get("driver", "")), each.text) for each in problems)


def _within(where: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    return (Problem(each.code, f"{where}: {each.text}") for each in problems)


# --- pools ------------------------------------------------------------------------------------------------------------


def by_pool(found: Iterable[Document]) -> dict[tuple[str, str], list[Document]]:
    """The specs of slices by driver and pool."""
    pools: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for each in found:
        pools[str(each["spec"].get("driver", "")), str(each["spec"]["pool"].get("name", ""))].append(each["spec"])
    return dict(sorted(pools.items()))


def _generation(spec: Document) -> int:
    return int(spec["pool"].get("generation", 0))


def _count(spec: Document) -> int:
    return int(spec["pool"].get("resourceSliceCount", 0))


def newest(specs: Sequence[Document]) -> list[Document]:
    """Those of the newest generation, which is all that counts."""
    generation = max(map(_generation, specs))
    return [each for each in specs if _generation(each) == generation]


def unusable(specs: Sequence[Document]) -> str:
    """Why the scheduler takes nothing from a pool with these slices of one generation; empty if it does."""
    if len(specs) != _count(specs[0]):
        return "slices are missing, or there are too many"
    found = (*_duplicates(specs), *_consumption(specs))
    return next((each.text for each in found if each.code != "counter-too-small"), "")


def _pool(specs: Sequence[Document]) -> Iterator[Problem]:
    current = newest(specs)
    counts = set(map(_count, current))
    if len(counts) > 1:
        yield Problem(
            "pool-count", f"resourceSliceCount is {sorted(counts)} within generation {_generation(current[0])}"
        )
    yield from _duplicates(current)
    if len(current) == max(counts):
        yield from _consumption(current)


def _duplicates(specs: Sequence[Document]) -> Iterator[Problem]:
    for name in twice(str(device.get("name")) for spec in specs for device in spec.get("devices") or []):
        yield Problem("duplicate-device", f"device {name} is there more than once")
    for name in twice(str(each.get("name")) for spec in specs for each in spec.get("sharedCounters") or []):
        yield Problem("duplicate-counter-set", f"counter set {name} is there more than once")


def _consumption(specs: Sequence[Document]) -> Iterator[Problem]:
    """Of counters that devices of a complete pool consume, and that nothing defines; or of which there are too few."""
    defined = {
        (str(each.get("name")), counter): value
        for spec in specs
        for each in spec.get("sharedCounters") or []
        for counter, value in (each.get("counters") or {}).items()
    }
    for device in (device for spec in specs for device in spec.get("devices") or []):
        for use in device.get("consumesCounters") or []:
            for counter, value in (use.get("counters") or {}).items():
                there = defined.get((str(use.get("counterSet")), counter))
                which = f"device {device.get('name')}: counter {use.get('counterSet')}/{counter}"
                if there is None:
                    yield Problem("counter-undefined", f"{which} is defined nowhere")
                elif _exceeds(value, there):
                    yield Problem("counter-too-small", f"{which} has less than this one device consumes")


def _exceeds(value: Document, there: Document) -> bool:
    """Whether one amount is larger than the other; an amount that is none has a finding of its own."""
    try:
        return quantity(value["value"], "value") > quantity(there["value"], "value")
    except (ManifestError, KeyError):
        return False


# --- one slice --------------------------------------------------------------------------------------------------------


def _slice(spec: Document) -> Iterator[Problem]:
    driver, pool = str(spec.get("driver", "")), str(spec["pool"].get("name", ""))
    if not _SUBDOMAIN.fullmatch(driver) or len(driver) > _LONGEST_DRIVER:
        yield Problem("slice-name", f"driver {driver!r} is not a DNS subdomain of at most {_LONGEST_DRIVER} characters")
    if len(pool) > _LONGEST_POOL or not all(map(_SUBDOMAIN.fullmatch, pool.split("/"))):
        yield Problem("slice-name", f"pool {pool!r}: expected DNS subdomains, with '/' between them")
    if _generation(spec) < 0 or _count(spec) < 1:
        yield Problem("pool-numbers", f"generation {spec['pool']}: it is 0 or more, the count 1 or more")
    yield from _nodes(spec, _NODES)
    devices: Sequence[Document] = spec.get("devices") or []
    sets: Sequence[Document] = spec.get("sharedCounters") or []
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    if len(devices) > (most := MOST_SPECIAL_DEVICES if special else MOST_DEVICES):
        why = " of which some have taints or consume counters" if special else ""
        yield Problem("slice-too-long", f"{len(devices)} devices{why}; at most {most} are allowed")
    if devices and sets:
        text = "devices and sharedCounters exclude each other since 1.35; put the counters into a slice of their own"
        yield Problem("slice-mixed", text)
    if len(sets) > _MOST_SETS:
        yield Problem("counter-sets", f"{len(sets)} counter sets; at most {_MOST_SETS} are allowed")
    for each in sets:
        yield from _within(f"counter set {each.get('name')!r}", _counters(each.get("name"), each))
    for device in devices:
        where = f"device {device.get('name')!r}"
        yield from _within(where, _device(device))
        if spec.get("perDeviceNodeSelection"):
            yield from _within(where, _nodes(device, _NODES_OF_DEVICES))
        elif given := [key for key in _NODES_OF_DEVICES if key in device]:
            text = f"{given[0]} has to be left out unless the slice has perDeviceNodeSelection: true"
            yield Problem("slice-node", f"{where}: {text}")


def _nodes(place: Document, keys: Sequence[str]) -> Iterator[Problem]:
    """Of the nodes for which a slice or a device is."""
    given = [key for key in keys if key in place]
    if len(given) != 1 or not place[given[0]]:
        yield Problem("slice-node", f"exactly one of {', '.join(keys)} has to be there")
    elif given == ["nodeSelector"] and len(place["nodeSelector"].get("nodeSelectorTerms") or ()) != 1:
        yield Problem("slice-node", "nodeSelector has exactly one term")


def _counters(name: Any, counters: Document) -> Iterator[Problem]:
    """Of a counter set, or of what a device consumes of one."""
    values = counters.get("counters") or {}
    if not 0 < len(values) <= _MOST_COUNTERS:
        yield Problem("counter-sets", f"{len(values)} counters; 1 to {_MOST_COUNTERS} are allowed")
    for each in (str(name), *values):
        if any(formats.dns_label(each)):
            yield Problem("counter-name", f"{each!r} is not a DNS label")
    for each, value in values.items():
        yield from _amount(value.get("value"), each)


def _device(device: Document) -> Iterator[Problem]:
    if any(formats.dns_label(str(device.get("name", "")))):
        yield Problem("device-name", "not a DNS label (lower-case letters, digits and '-', at most 63)")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (number := len(attributes) + len(capacity)) > _MOST_ENTRIES:
        yield Problem("device-entries", f"{number} attributes and capacities; at most {_MOST_ENTRIES} are allowed")
    for name in [*attributes, *capacity]:
        domain, slash, bare = name.rpartition("/")
        if not _C_NAME.fullmatch(bare) or (slash and (not _SUBDOMAIN.fullmatch(domain) or len(domain) > 63)):
            text = f"{name!r} is neither a C identifier of at most 32 characters nor one after a domain and '/'"
            yield Problem("attribute-name", text)
    for name, value in attributes.items():
        yield from _within(f"attribute {name}", _attribute(value))
    for name, value in capacity.items():
        shared = bool(device.get("allowMultipleAllocations"))
        yield from _within(f"capacity {name}", _capacity(value, shared=shared))
    uses = device.get("consumesCounters") or []
    if len(uses) > _MOST_USES:
        yield Problem("counter-uses", f"consumes {len(uses)} counter sets; at most {_MOST_USES} are allowed")
    for name in twice(str(each.get("counterSet")) for each in uses):
        yield Problem("counter-uses", f"consumes {name!r} more than once")
    for each in uses:
        yield from _within(f"consumes {each.get('counterSet')!r}", _counters(each.get("counterSet"), each))
    yield from _taints(device.get("taints") or [])


def _attribute(value: Document) -> Iterator[Problem]:
    if len(value) != 1 or next(iter(value)) not in _KINDS:
        yield Problem("attribute-value", f"expected exactly one of {sorted(_KINDS)}, found {sorted(value)}")
        return
    ((kind, content),) = value.items()
    if type(content) is not _KINDS[kind]:
        yield Problem("attribute-value", f"{content!r} is not of type {kind}")
    elif isinstance(content, str) and len(content.encode()) > _LONGEST_VALUE:
        yield Problem("attribute-value", f"{len(content.encode())} bytes; at most {_LONGEST_VALUE} are allowed")
    elif kind == "version" and not is_semver(str(content)):
        text = "is not a version by semver 2.0.0: three numbers without leading zeros"
        yield Problem("attribute-version", f"{content!r} {text}")


def _capacity(capacity: Document, *, shared: bool) -> Iterator[Problem]:
    yield from _amount(capacity.get("value"), "value")
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not shared:
        yield Problem("request-policy", "a requestPolicy needs allowMultipleAllocations: true")
    try:
        problem = _contradiction(capacity, policy)
    except (ManifestError, KeyError) as missing:
        problem = f"not complete: {missing}"
    if problem:
        yield Problem("request-policy", problem)


def _contradiction(capacity: Document, policy: Document) -> str:
    """What does not fit together in a request policy. Raises ManifestError and KeyError."""
    values, span = policy.get("validValues"), policy.get("validRange")
    if not policy.get("default") and not values and span is None:
        return ""
    if values and span is not None:
        return "validValues and validRange exclude each other"
    whole, default = quantity(capacity["value"], "value"), quantity(policy["default"], "default")
    if values:
        amounts = [quantity(value, "validValues") for value in values]
        if len(amounts) > _MOST_VALUES or amounts != sorted(set(amounts)) or default not in amounts:
            return f"validValues are at most {_MOST_VALUES}, in ascending order, and contain the default"
        return "" if amounts[-1] <= whole else "a valid value is larger than the capacity"
    if span is None:
        return ""
    least, most = quantity(span["min"], "min"), quantity(span.get("max", capacity["value"]), "max")
    if not least <= default <= most <= whole:
        return "expected min <= default <= max <= value"
    if "step" not in span:
        return ""
    step = quantity(span["step"], "step")
    if (default - least) % step or ("max" in span and (most - least) % step):
        return "default and max are not a whole number of steps from min"
    return "min and one step are more than the capacity" if least + step > whole else ""


def _amount(value: Any, where: str) -> Iterator[Problem]:
    try:
        quantity(value, where)
    except ManifestError as wrong:
        yield Problem("slice-quantity", str(wrong))


def _taints(taints: Sequence[Document]) -> Iterator[Problem]:
    if len(taints) > _MOST_TAINTS:
        yield Problem("taints", f"{len(taints)} taints; at most {_MOST_TAINTS} are allowed")
    for taint in taints:
        if any(formats.qualified_name(str(taint.get("key", "")))):
            yield Problem("taints", f"taint key {taint.get('key')!r} is not a label's name")
        if any(formats.label_value(str(taint.get("value", "")))):
            yield Problem("taints", f"taint value {taint['value']!r} is not a label's value")
        if taint.get("effect") not in _EFFECTS:
            yield Problem("taints", f"taint effect {taint.get('effect')!r}: expected one of {', '.join(_EFFECTS)}")
