"""Rules for ResourceSlices: what the API server would refuse, and what makes the scheduler pass over a pool. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from ..lint import Finding, error, twice
from ..objects import formats
from ..objects.pod_manifest import ManifestError, quantity
from .cel_selectors import is_semver

Document: TypeAlias = Mapping[str, Any]
MOST_DEVICES, MOST_SPECIAL_DEVICES = 128, 64
_MOST_SETS, _MOST_COUNTERS, _MOST_USES = 8, 32, 2
_MOST_ENTRIES, _MOST_TAINTS, _MOST_BINDING, _MOST_VALUES, _LONGEST = 32, 16, 4, 10, 64
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_KINDS: Mapping[str, type] = {"int": int, "bool": bool, "string": str, "version": str}
_NODES_OF_DEVICES = ("nodeName", "nodeSelector", "allNodes")
_NODES = (*_NODES_OF_DEVICES, "perDeviceNodeSelection")


def pool_of(slice_: Document) -> tuple[str, str]:
    """Driver and pool."""
    spec = slice_["spec"]
    return str(spec["driver"]), str(spec["pool"]["name"])


def slices(found: Iterable[Document]) -> Iterator[Finding]:
    """Of all slices of the cluster: each for itself, and the pools that they make up."""
    pools: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for each in found:
        spec = each["spec"]
        name = f"slice {each['metadata'].get('name', '')}"
        yield from _slice(str(spec.get("driver", "")), spec, name)
        pools[pool_of(each)].append(each)
    for (driver, name), members in sorted(pools.items()):
        yield from _pool(driver, name, members)


def of_one(slice_: Document) -> Iterator[Finding]:
    """Of one slice by itself: what the API server would refuse of it."""
    spec = slice_["spec"]
    driver = str(spec.get("driver", ""))
    yield from _slice(driver, spec, "slice")
    yield from _twice(driver, "slice", [spec])


def _slice(driver: str, spec: Document, where: str) -> Iterator[Finding]:
    if not _SUBDOMAIN.fullmatch(driver) or len(driver) > 63:  # the API's limit
        yield error("slice-name", driver, f"{where}: driver {driver!r} is not a DNS subdomain of at most 63 characters")
    pool = str(spec["pool"].get("name", ""))
    if len(pool) > 253 or not all(map(_SUBDOMAIN.fullmatch, pool.split("/"))):  # the API's limit
        yield error("slice-name", driver, f"{where}: pool {pool!r}: expected DNS subdomains, with '/' between them")
    if int(spec["pool"].get("generation", 0)) < 0 or int(spec["pool"].get("resourceSliceCount", 0)) < 1:
        yield error("pool-numbers", driver, f"{where}: generation {spec['pool']}: it is 0 or more, the count 1 or more")
    if sum(key in spec for key in _NODES) != 1 or not all(spec[key] for key in _NODES if key in spec):
        yield error("slice-node", driver, f"{where}: exactly one of {', '.join(_NODES)} has to be there")
    yield from _selector(driver, spec, where)
    devices: Sequence[Document] = spec.get("devices") or []
    sets: Sequence[Document] = spec.get("sharedCounters") or []
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = MOST_SPECIAL_DEVICES if special else MOST_DEVICES
    if len(devices) > most:
        why = " of which some have taints or consume counters" if special else ""
        yield error("slice-too-long", driver, f"{where}: {len(devices)} devices{why}; at most {most} are allowed")
    if devices and sets:
        text = "devices and sharedCounters exclude each other since 1.35; put the counters into a slice of their own"
        yield error("slice-mixed", driver, f"{where}: {text}")
    if len(sets) > _MOST_SETS:
        yield error("counter-sets", driver, f"{where}: {len(sets)} counter sets; at most {_MOST_SETS} are allowed")
    for each in sets:
        yield from _counters(driver, each, f"{where}: counter set {each.get('name')!r}")
    for device in devices:
        yield from _device(driver, device, f"{where}: device {device.get('name')!r}")
        yield from _place(driver, spec, device, f"{where}: device {device.get('name')!r}")


def _selector(driver: str, place: Document, where: str) -> Iterator[Finding]:
    terms = (place.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if place.get("nodeSelector") and len(terms) != 1:
        yield error("slice-node", driver, f"{where}: nodeSelector has {len(terms)} terms; exactly one is allowed")


def _place(driver: str, spec: Document, device: Document, where: str) -> Iterator[Finding]:
    """Of the nodes of a device, which are those of its slice unless that leaves it to the devices."""
    given = [key for key in _NODES_OF_DEVICES if key in device]
    if not spec.get("perDeviceNodeSelection"):
        if given:
            text = f"{given[0]} has to be left out unless the slice has perDeviceNodeSelection: true"
            yield error("slice-node", driver, f"{where}: {text}")
    elif len(given) != 1 or not device[given[0]]:
        text = f"exactly one of {', '.join(_NODES_OF_DEVICES)} has to be there with perDeviceNodeSelection"
        yield error("slice-node", driver, f"{where}: {text}")
    yield from _selector(driver, device, where)


def _counters(driver: str, counters: Document, where: str) -> Iterator[Finding]:
    values = counters.get("counters") or {}
    if not 0 < len(values) <= _MOST_COUNTERS:
        yield error("counter-sets", driver, f"{where}: {len(values)} counters; 1 to {_MOST_COUNTERS} are allowed")
    for name in [counters.get("name", counters.get("counterSet", "")), *values]:
        if any(formats.dns_label(str(name))):
            yield error("counter-name", driver, f"{where}: {name!r} is not a DNS label")
    for name, value in values.items():
        yield from _amount(driver, value.get("value"), f"{where}: {name}")


def _device(driver: str, device: Document, where: str) -> Iterator[Finding]:
    if any(formats.dns_label(str(device.get("name", "")))):
        yield error("device-name", driver, f"{where}: not a DNS label (lower-case letters, digits and '-', at most 63)")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _MOST_ENTRIES:
        number = len(attributes) + len(capacity)
        text = f"{number} attributes and capacities; at most {_MOST_ENTRIES} are allowed"
        yield error("device-entries", driver, f"{where}: {text}")
    for name in [*attributes, *capacity]:
        domain, slash, bare = name.rpartition("/")
        if not _C_NAME.fullmatch(bare) or (slash and (not _SUBDOMAIN.fullmatch(domain) or len(domain) > 63)):
            text = f"{name!r} is neither a C identifier of at most 32 characters nor one after a domain and '/'"
            yield error("attribute-name", driver, f"{where}: {text}")
    for name, value in attributes.items():
        yield from _attribute(driver, value, f"{where}: attribute {name}")
    for name, value in capacity.items():
        yield from _capacity(
            driver, value, f"{where}: capacity {name}", shared=bool(device.get("allowMultipleAllocations"))
        )
    yield from _uses(driver, device.get("consumesCounters") or [], where)
    yield from _taints(driver, device.get("taints") or [], where)
    yield from _binding(driver, device, where)


def _binding(driver: str, device: Document, where: str) -> Iterator[Finding]:
    """Of what a scheduler waits for before it binds a pod."""
    names = ("bindingConditions", "bindingFailureConditions")
    wanted, failing = ([str(each) for each in device.get(name) or ()] for name in names)
    if bool(wanted) != bool(failing):
        yield error("binding-conditions", driver, f"{where}: {' and '.join(names)} need each other")
    if repeated := twice([*wanted, *failing]):
        yield error("binding-conditions", driver, f"{where}: {repeated[0]!r} is there more than once")
    for name, found in zip(names, (wanted, failing), strict=True):
        if len(found) > _MOST_BINDING:
            text = f"{len(found)} {name}; at most {_MOST_BINDING} are allowed"
            yield error("binding-conditions", driver, f"{where}: {text}")
    for each in (*wanted, *failing):
        if any(formats.qualified_name(each)):
            yield error("binding-conditions", driver, f"{where}: {each!r} is not a condition's name")


def _uses(driver: str, uses: Sequence[Document], where: str) -> Iterator[Finding]:
    if len(uses) > _MOST_USES:
        yield error(
            "counter-uses", driver, f"{where}: consumes {len(uses)} counter sets; at most {_MOST_USES} are allowed"
        )
    if repeated := twice(str(each.get("counterSet")) for each in uses):
        yield error("counter-uses", driver, f"{where}: consumes {repeated[0]!r} more than once")
    for each in uses:
        yield from _counters(driver, each, f"{where}: consumes {each.get('counterSet')!r}")


def _attribute(driver: str, value: Document, where: str) -> Iterator[Finding]:
    if len(value) != 1 or next(iter(value)) not in _KINDS:
        yield error(
            "attribute-value", driver, f"{where}: expected exactly one of {sorted(_KINDS)}, found {sorted(value)}"
        )
        return
    ((kind, content),) = value.items()
    if type(content) is not _KINDS[kind]:
        yield error("attribute-value", driver, f"{where}: {content!r} is not of type {kind}")
    elif isinstance(content, str) and len(content.encode()) > _LONGEST:
        yield error(
            "attribute-value", driver, f"{where}: {len(content.encode())} bytes; at most {_LONGEST} are allowed"
        )
    elif kind == "version" and not is_semver(str(content)):
        text = "not a version by semver 2.0.0: three numbers without leading zeros"
        yield error("attribute-version", driver, f"{where}: {content!r} is {text}")


def _capacity(driver: str, capacity: Document, where: str, *, shared: bool) -> Iterator[Finding]:
    yield from _amount(driver, capacity.get("value"), where)
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not shared:
        yield error("request-policy", driver, f"{where}: a requestPolicy needs allowMultipleAllocations: true")
    if problem := _policy_problem(capacity, policy):
        yield error("request-policy", driver, f"{where}: {problem}")


def _policy_problem(capacity: Document, policy: Document) -> str:
    try:
        return _policy_contradiction(capacity, policy)
    except (ManifestError, KeyError) as error:
        return f"not complete: {error}"


def _policy_contradiction(capacity: Document, policy: Document) -> str:
    whole = quantity(capacity["value"], "value")
    values, span = policy.get("validValues"), policy.get("validRange")
    if "default" not in policy and not values and span is None:
        return ""
    default = quantity(policy["default"], "default")
    if values and span is not None:
        return "validValues and validRange exclude each other"
    if values:
        return _values_problem([quantity(value, "validValues") for value in values], default, whole)
    return "" if span is None else _range_problem(span, default, whole)


def _values_problem(amounts: list[Decimal], default: Decimal, whole: Decimal) -> str:
    if len(amounts) > _MOST_VALUES or amounts != sorted(set(amounts)) or default not in amounts:
        return f"validValues are at most {_MOST_VALUES}, in ascending order, and contain the default"
    return "" if amounts[-1] <= whole else "a valid value is larger than the capacity"


def _range_problem(span: Document, default: Decimal, whole: Decimal) -> str:
    least = quantity(span["min"], "min")
    most = quantity(span["max"], "max") if "max" in span else whole
    if not least <= default <= most <= whole:
        return "expected min <= default <= max <= value"
    if "step" not in span:
        return ""
    step = quantity(span["step"], "step")
    if (default - least) % step or ("max" in span and (most - least) % step):
        return "default and max are not a whole number of steps from min"
    return "min and one step are more than the capacity" if least + step > whole else ""


def _amount(driver: str, value: Any, where: str) -> Iterator[Finding]:
    try:
        quantity(value, where)
    except ManifestError as wrong:
        yield error("slice-quantity", driver, str(wrong))


def _taints(driver: str, taints: Sequence[Document], where: str) -> Iterator[Finding]:
    if len(taints) > _MOST_TAINTS:
        yield error("taints", driver, f"{where}: {len(taints)} taints; at most {_MOST_TAINTS} are allowed")
    for taint in taints:
        if any(formats.qualified_name(str(taint.get("key", "")))):
            yield error("taints", driver, f"{where}: taint key {taint.get('key')!r} is not a label's name")
        if any(formats.label_value(str(taint.get("value", "")))):
            yield error("taints", driver, f"{where}: taint value {taint['value']!r} is not a label's value")
        if taint.get("effect") not in ("None", "NoSchedule", "NoExecute"):
            text = f"taint effect {taint.get('effect')!r}: expected None, NoSchedule or NoExecute"
            yield error("taints", driver, f"{where}: {text}")


def _pool(driver: str, name: str, members: Sequence[Document]) -> Iterator[Finding]:
    newest = max(int(each["spec"]["pool"].get("generation", 0)) for each in members)
    current = [each["spec"] for each in members if int(each["spec"]["pool"].get("generation", 0)) == newest]
    counts = {int(spec["pool"].get("resourceSliceCount", 0)) for spec in current}
    if len(counts) > 1:
        text = f"resourceSliceCount is {sorted(counts)} within generation {newest}"
        yield error("pool-count", driver, f"pool {name}: {text}")
    yield from _twice(driver, f"pool {name}", current)
    if len(current) == max(counts):
        yield from _undefined(driver, name, current)


def _twice(driver: str, where: str, specs: Sequence[Document]) -> Iterator[Finding]:
    """Of names that several devices or counter sets of these slices have."""
    names = [str(device.get("name")) for spec in specs for device in spec.get("devices") or []]
    if repeated := twice(names):
        yield error(
            "duplicate-device", driver, f"{where}: device {repeated[0]} is there {names.count(repeated[0])} times"
        )
    if repeated := twice(str(each.get("name")) for spec in specs for each in spec.get("sharedCounters") or []):
        yield error("duplicate-counter-set", driver, f"{where}: counter set {repeated[0]} is there more than once")


def _undefined(driver: str, name: str, current: Sequence[Document]) -> Iterator[Finding]:
    """Of counters that devices consume in a complete pool, and that nothing defines; or of which there are too few."""
    defined = {
        str(each.get("name")): each.get("counters") or {}
        for spec in current
        for each in spec.get("sharedCounters") or []
    }
    for spec in current:
        for device in spec.get("devices") or []:
            for use in device.get("consumesCounters") or []:
                for counter, value in (use.get("counters") or {}).items():
                    there = defined.get(str(use.get("counterSet")), {}).get(counter)
                    which = f"pool {name}: device {device.get('name')}: counter {use.get('counterSet')}/{counter}"
                    if there is None:
                        yield error("counter-undefined", driver, f"{which} is defined nowhere")
                    elif quantity(value["value"], which) > quantity(there["value"], which):
                        yield error("counter-too-small", driver, f"{which} has less than this one device consumes")


def lasting(found: Iterable[Document]) -> Iterator[Finding]:
    """Of what is a mistake only if it stays: pools with slices of an older generation, too few slices, or too many."""
    pools: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for each in found:
        pools[pool_of(each)].append(each["spec"]["pool"])
    for (driver, name), members in sorted(pools.items()):
        newest = max(int(pool.get("generation", 0)) for pool in members)
        current = [pool for pool in members if int(pool.get("generation", 0)) == newest]
        expected = int(current[0]["resourceSliceCount"])
        if len(current) != expected:
            text = f"pool {name}: {len(current)} slices of generation {newest}, but resourceSliceCount is {expected}"
            yield error("pool-incomplete", driver, text)
        if old := len(members) - len(current):
            text = f"pool {name}: {old} slices are older than generation {newest}, and nobody deletes them"
            yield error("pool-outdated", driver, text)
