"""Rules for ResourceSlices: the limits of the API server, and what makes the scheduler ignore a pool. Pure.

The store has checked the names and types of all fields before.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...model import names
from ..api.kinds import Document
from ..lint import Finding, error, twice
from ..objects.pod_manifest import quantity

# The limits of resource.k8s.io/v1 (source: Kubernetes 1.36, staging/src/k8s.io/api/resource/v1/types.go).
MOST_DEVICES, MOST_SPECIAL_DEVICES = 128, 64
_MOST_SETS, _MOST_COUNTERS, _MOST_USES = 8, 32, 2
_MOST_ENTRIES, _MOST_TAINTS, _MOST_VALUES = 32, 16, 10
_LONGEST_POOL = 253
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EFFECTS = ("None", "NoSchedule", "NoExecute")
_NODES_OF_DEVICES = ("nodeName", "nodeSelector", "allNodes")
_NODES = (*_NODES_OF_DEVICES, "perDeviceNodeSelection")


class Problem(NamedTuple):
    """A mistake in the slices of a pool, which the API server cannot see."""

    code: str  # of a finding
    text: str


def check_pools(slices: Iterable[Document]) -> Iterator[Finding]:
    """Check the pools that slices form."""
    for (driver, name), specs in by_pool(slices).items():
        yield from (error(each.code, driver, f"pool {name}: {each.text}") for each in _pool(specs))


def check_complete(slices: Iterable[Document]) -> Iterator[Finding]:
    """Find pools with slices of an older generation, and with too few or too many slices.

    While a driver publishes, that is normal. It is a mistake if it lasts.
    """
    for (driver, name), specs in by_pool(slices).items():
        current = newest(specs)
        generation, expected = _generation(current[0]), _count(current[0])
        if len(current) != expected:
            text = f"{len(current)} slices of generation {generation}, but resourceSliceCount is {expected}"
            yield error("pool-incomplete", driver, f"pool {name}: {text}")
        if old := len(specs) - len(current):
            text = f"{old} slices are older than generation {generation}, and nobody deletes them"
            yield error("pool-outdated", driver, f"pool {name}: {text}")


# --- pools ------------------------------------------------------------------------------------------------------------


def by_pool(slices: Iterable[Document]) -> dict[tuple[str, str], list[Document]]:
    """The specs of slices by driver and pool."""
    pools: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for each in slices:
        pools[each["spec"].get("driver", ""), each["spec"]["pool"].get("name", "")].append(each["spec"])
    return dict(sorted(pools.items()))


def _generation(spec: Document) -> int:
    return int(spec["pool"].get("generation", 0))


def _count(spec: Document) -> int:
    return int(spec["pool"].get("resourceSliceCount", 0))


def newest(specs: Sequence[Document]) -> list[Document]:
    """The slices of a pool's newest generation; the scheduler ignores the others."""
    generation = max(map(_generation, specs))
    return [each for each in specs if _generation(each) == generation]


def unusable(specs: Sequence[Document]) -> str:
    """Why the scheduler ignores a pool with these slices of one generation; empty if it uses the pool."""
    if len(specs) != _count(specs[0]):
        return "slices are missing, or there are too many"
    found = (*_duplicates(specs), *_consumption(specs))
    return next((each.text for each in found if each.code != "counter-too-small"), "")


def _pool(specs: Sequence[Document]) -> Iterator[Problem]:
    current = newest(specs)
    counts = set(map(_count, current))
    if len(counts) > 1:
        text = f"resourceSliceCount is {sorted(counts)} within generation {_generation(current[0])}"
        yield Problem("pool-count", text)
    yield from _duplicates(current)
    if len(current) == max(counts):
        yield from _consumption(current)


def _duplicates(specs: Sequence[Document]) -> Iterator[Problem]:
    for name in twice(device.get("name", "") for spec in specs for device in spec.get("devices") or []):
        yield Problem("duplicate-device", f"device {name} is there more than once")
    for name in twice(each.get("name", "") for spec in specs for each in spec.get("sharedCounters") or []):
        yield Problem("duplicate-counter-set", f"counter set {name} is there more than once")


def _consumption(specs: Sequence[Document]) -> Iterator[Problem]:
    """Check the counters that the devices of a complete pool consume."""
    defined = {
        (each.get("name"), counter): value
        for spec in specs
        for each in spec.get("sharedCounters") or []
        for counter, value in (each.get("counters") or {}).items()
    }
    for device in (device for spec in specs for device in spec.get("devices") or []):
        for use in device.get("consumesCounters") or []:
            for counter, value in (use.get("counters") or {}).items():
                whole = defined.get((use.get("counterSet"), counter))
                which = f"device {device.get('name')}: counter {use.get('counterSet')}/{counter}"
                if whole is None:
                    yield Problem("counter-undefined", f"{which} is defined nowhere")
                elif quantity(value["value"], "value") > quantity(whole["value"], "value"):
                    yield Problem("counter-too-small", f"{which} has less than this one device consumes")


# --- one slice --------------------------------------------------------------------------------------------------------


def refused(spec: Document) -> Iterator[str]:
    """Why the API server refuses a slice with this specification."""
    yield from (each.text for each in _duplicates([spec]))
    driver, pool = spec.get("driver", ""), spec["pool"].get("name", "")
    if problem := names.driver_problem(driver):
        yield problem
    if len(pool) > _LONGEST_POOL or not all(map(names.DNS_NAME.fullmatch, pool.split("/"))):
        yield f"pool {pool!r}: expected DNS subdomains, with '/' between them"
    if _generation(spec) < 0 or _count(spec) < 1:
        yield f"{spec['pool']}: expected a generation of at least 0 and a resourceSliceCount of at least 1"
    yield from _nodes(spec, _NODES)
    devices: Sequence[Document] = spec.get("devices") or []
    sets: Sequence[Document] = spec.get("sharedCounters") or []
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    if len(devices) > (most := MOST_SPECIAL_DEVICES if special else MOST_DEVICES):
        why = " of which some have taints or consume counters" if special else ""
        yield f"{len(devices)} devices{why}; at most {most} are allowed"
    if devices and sets:
        yield "devices and sharedCounters exclude each other since 1.35; put the counters into another slice"
    if len(sets) > _MOST_SETS:
        yield f"{len(sets)} counter sets; at most {_MOST_SETS} are allowed"
    for each in sets:
        yield from _within(f"counter set {each.get('name')!r}", _counters(each.get("name"), each))
    for device in devices:
        where = f"device {device.get('name')!r}"
        yield from _within(where, _device(device))
        if spec.get("perDeviceNodeSelection"):
            yield from _within(where, _nodes(device, _NODES_OF_DEVICES))
        elif given := [key for key in _NODES_OF_DEVICES if key in device]:
            text = f"{given[0]} is allowed only if the slice has perDeviceNodeSelection: true"
            yield f"{where}: {text}"


def _within(where: str, problems: Iterable[str]) -> Iterator[str]:
    """The problems, each with the place where it is."""
    return (f"{where}: {each}" for each in problems)


def _nodes(place: Document, keys: Sequence[str]) -> Iterator[str]:
    """Check the fields that say which nodes can use a slice or a device."""
    given = [key for key in keys if key in place]
    if len(given) != 1 or not place[given[0]]:
        yield f"exactly one of {', '.join(keys)} is required"
    elif given == ["nodeSelector"] and len(place["nodeSelector"].get("nodeSelectorTerms") or ()) != 1:
        yield "nodeSelector has exactly one term"


def _counters(name: Any, counters: Document) -> Iterator[str]:
    """Check a counter set, or what a device consumes of one."""
    values = counters.get("counters") or {}
    if not 0 < len(values) <= _MOST_COUNTERS:
        yield f"{len(values)} counters; 1 to {_MOST_COUNTERS} are allowed"
    for each in (name, *values):
        if not _DNS_LABEL.fullmatch(each):
            yield f"{each!r} is not a DNS label"


def _device(device: Document) -> Iterator[str]:
    if not _DNS_LABEL.fullmatch(device.get("name", "")):
        yield "not a DNS label (lower-case letters, digits and '-', at most 63)"
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (number := len(attributes) + len(capacity)) > _MOST_ENTRIES:
        yield f"{number} attributes and capacities; at most {_MOST_ENTRIES} are allowed"
    for name in [*attributes, *capacity]:
        if problem := names.attribute_problem(name):
            yield problem
    for name, value in attributes.items():
        yield from _within(f"attribute {name}", _attribute(value))
    shared = bool(device.get("allowMultipleAllocations"))
    for name, value in capacity.items():
        if problem := _policy_problem(value, shared=shared):
            yield f"capacity {name}: {problem}"
    uses = device.get("consumesCounters") or []
    if len(uses) > _MOST_USES:
        yield f"consumes {len(uses)} counter sets; at most {_MOST_USES} are allowed"
    for name in twice(each.get("counterSet", "") for each in uses):
        yield f"consumes {name!r} more than once"
    for each in uses:
        yield from _within(f"consumes {each.get('counterSet')!r}", _counters(each.get("counterSet"), each))
    yield from _taints(device.get("taints") or [])


def _attribute(value: Document) -> Iterator[str]:
    if len(value) != 1:
        yield f"expected exactly one of bool, int, string, version, found {sorted(value)}"
        return
    ((kind, content),) = value.items()
    problem = {"string": names.string_problem, "version": names.version_problem}.get(kind, lambda _: "")(content)
    if problem:
        yield problem


def _policy_problem(capacity: Document, *, shared: bool) -> str:
    """Why a capacity cannot have its request policy; empty if it can, or has none."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return ""
    if not shared:
        return "a requestPolicy needs allowMultipleAllocations: true"
    values, span = policy.get("validValues") or [], policy.get("validRange")
    if not values and span is None:
        return ""
    if values and span is not None:
        return "validValues and validRange exclude each other"
    if "default" not in policy or (span is not None and "min" not in span):
        return "default, and min in a validRange, are required"
    whole, default = quantity(capacity["value"], "value"), quantity(policy["default"], "default")
    if span is None:
        amounts = [quantity(value, "validValues") for value in values]
        is_sound = amounts == sorted(set(amounts)) and default in amounts and amounts[-1] <= whole
        if len(amounts) > _MOST_VALUES or not is_sound:
            return f"expected at most {_MOST_VALUES} validValues up to the capacity, ascending, with the default"
        return ""
    least, most = quantity(span["min"], "min"), quantity(span.get("max", capacity["value"]), "max")
    if not least <= default <= most <= whole:
        return "expected min <= default <= max <= value"
    step = quantity(span["step"], "step") if "step" in span else None
    if step and ((default - least) % step or ("max" in span and (most - least) % step)):
        return "default and max must be a whole number of steps from min"
    return ""


def _taints(taints: Sequence[Document]) -> Iterator[str]:
    if len(taints) > _MOST_TAINTS:
        yield f"{len(taints)} taints; at most {_MOST_TAINTS} are allowed"
    for taint in taints:
        if problem := names.taint_key_problem(taint.get("key", "")) or names.value_problem(taint.get("value", "")):
            yield problem
        if taint.get("effect") not in _EFFECTS:
            yield f"taint effect {taint.get('effect')!r}: expected one of {', '.join(_EFFECTS)}"
