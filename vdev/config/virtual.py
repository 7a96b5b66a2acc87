"""The `virtual` source and `partitions` to the core's values: presets merged in, lists spread over the devices.

What the entry says wins over its preset. Partitions are placed here only to refuse what the hardware would refuse.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.geometry import Geometry, layout
from ..core.partition import LayoutError, place
from ..core.spec import VirtualSource
from . import sources
from .place import Path
from .read import Report

FAST_LINK = 100  # one NVLink on NVIDIA's scale, in which devices on one PCIe switch have 50


@dataclass(frozen=True, slots=True)
class Resolved:
    """A virtual source, and what its devices can be cut into."""

    source: VirtualSource
    geometry: Geometry | None


def virtual(model: sources.Virtual, path: Path, report: Report) -> Resolved:
    """The source of a `virtual` block at `path`."""
    count = model.count or 1
    source = VirtualSource(
        count=count,
        memory=model.memory or 0,
        numa=_numa(model.numa, count, (*path, "numa"), report),
        attributes=dict(model.attributes),
        links=_links(model.links, count, (*path, "links"), report),
    )
    return Resolved(source, model.partitioning.to_geometry() if model.partitioning else None)


def _numa(nodes: list[int] | None, count: int, path: Path, report: Report) -> tuple[int, ...]:
    nodes = nodes or []
    if len(nodes) not in (0, 1, count):
        report.error(path, f"{len(nodes)} NUMA nodes for {count} devices", "one number for all, or one per device")
    return tuple(nodes)


def _links(rows: list[list[int]] | None, count: int, path: Path, report: Report) -> dict[tuple[int, int], int]:
    """Scores of pairs, both ways. `count` rows of `count` numbers are scores, anything else groups of indices.

    No group list of that shape would say anything: each of its groups would hold every device.
    """
    rows = rows or []
    if len(rows) == count and all(len(row) == count for row in rows):
        return _scores(rows, path, report)
    links: dict[tuple[int, int], int] = {}
    for number, group in enumerate(rows):
        for position, index in enumerate(group):
            here = (*path, number, position)
            if index >= count:
                report.error(here, f"there is no device {index}; the entry has {count}", f"expected 0 to {count - 1}")
            elif index in group[:position]:
                report.error(here, f"device {index} is in this group twice", "name each device once")
        if len(group) < 2:  # noqa: PLR2004  # a link has two ends
            report.error((*path, number), "a group of linked devices needs at least two indices")
        links |= {(one, other): FAST_LINK for one in group for other in group if one != other}
    return links


def _scores(rows: list[list[int]], path: Path, report: Report) -> dict[tuple[int, int], int]:
    hint = "as many lists of as many numbers as there are devices are scores of pairs, not groups of indices"
    for one, row in enumerate(rows):
        if row[one]:
            report.error((*path, one, one), f"device {one} is linked to itself; the diagonal must be 0", hint)
        for other in range(one):
            if row[other] != rows[other][one]:
                back = rows[other][one]
                message = f"the score of {one} with {other} is {row[other]}, and of {other} with {one} it is {back}"
                report.error((*path, one, other), message, hint)
    scores = {(one, other): score for one, row in enumerate(rows) for other, score in enumerate(row)}
    return {(one, other): score for (one, other), score in scores.items() if score and one != other}


def partitions(
    wanted: Mapping[str, str | tuple[str, ...]], geometry: Geometry | None, count: int, path: Path, report: Report
) -> dict[int, tuple[str, ...]]:
    """Profiles by device index, with layouts resolved. `all` is for those that no other key names."""
    result: dict[int, tuple[str, ...]] = {}
    named: dict[int, str] = {}
    if wanted and geometry is None:
        hint = "give virtual.partitioning, or a preset that has partitions"
        report.key_error(path, "these devices cannot be partitioned", hint)
        return result
    assert geometry is not None or not wanted
    for key, value in sorted(wanted.items(), key=lambda item: item[0] in ("*", "all")):
        here = (*path, key)
        profiles = _profiles(geometry, value, here, report) if geometry else ()
        if key in ("*", "all"):
            indices = [index for index in range(count) if index not in named]
        else:
            first, _, last = key.partition("-")
            indices = list(range(int(first), int(last or first) + 1))
            if not indices:
                report.key_error(here, f"the range {key} is empty", "write the lower index first")
            elif indices[-1] >= count:
                message = f"there is no device {max(indices[0], count)}; the entry has {count}"
                report.key_error(here, message, f"expected 0 to {count - 1}")
        for index in indices:
            if index in named:
                report.key_error(
                    here, f"device {index} has its partitions from {named[index]!r} already", "name it once"
                )
                break
            named[index] = key
            if index < count:
                result[index] = profiles
    return result


def _profiles(geometry: Geometry, value: str | tuple[str, ...], path: Path, report: Report) -> tuple[str, ...]:
    """The profiles that a key asks for; a list that cannot be placed is reported where it fails."""
    try:
        profiles = layout(geometry, value) if isinstance(value, str) else value
        place(geometry, profiles)
    except LayoutError as clash:
        here = path if clash.position is None else (*path, clash.position)
        report.error(here, str(clash), clash.hint)
        return ()
    return profiles
