"""Rules for pools of ResourceSlices: what makes the scheduler ignore a pool. Pure.

The store has checked each slice before (`api.dra_fields`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..api.kinds import Document
from ..lint import Finding, error, twice
from ..objects.pod_manifest import quantity


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
    found = (*duplicates(specs), *_consumption(specs))
    return next((each.text for each in found if each.code != "counter-too-small"), "")


def _pool(specs: Sequence[Document]) -> Iterator[Problem]:
    current = newest(specs)
    counts = set(map(_count, current))
    if len(counts) > 1:
        text = f"resourceSliceCount is {sorted(counts)} within generation {_generation(current[0])}"
        yield Problem("pool-count", text)
    yield from duplicates(current)
    if len(current) == max(counts):
        yield from _consumption(current)


def duplicates(specs: Sequence[Document]) -> Iterator[Problem]:
    """Devices and counter sets of slices that have the same name."""
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
