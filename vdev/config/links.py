"""NUMA nodes and fast links of virtual devices, checked against the number of devices."""

from collections.abc import Sequence
from itertools import permutations

from ..model.problem import KeyPath
from ..model.virtual import FAST_LINK, Links
from .messages import ProblemReport

MAX_LINKED = 256  # devices with fast links; the largest known domain, an NVL72 rack, has 72


def numa_nodes(nodes: Sequence[int], count: int, path: KeyPath, report: ProblemReport) -> tuple[int, ...]:
    """One NUMA node for all devices, or one per device. A `count` of 0 fits any number of devices."""
    if len(nodes) not in (1, count):
        message = f"{len(nodes)} NUMA nodes for {count or 'any number of'} devices"
        report.error(path, message, "give one for all devices, or one per device")
    return tuple(nodes)


def device_links(
    rows: list[list[int]], count: int, path: KeyPath, report: ProblemReport, *, score: int = FAST_LINK
) -> Links:
    """The links of `count` devices. `count` lists of `count` numbers are scores, anything else groups of indices.

    A pair of a group gets `score`. No list of groups is taken for scores: each of its groups would hold every device.
    """
    if not rows:
        return {}
    if count > MAX_LINKED:
        report.error(path, f"there are {count} devices", f"links are for at most {MAX_LINKED}")
        return {}
    if len(rows) == count and all(len(row) == count for row in rows):
        return _scores(rows, path, report)
    links: dict[tuple[int, int], int] = {}
    for number, group in enumerate(rows):
        members: set[int] = set()
        for position, index in enumerate(group):
            here = (*path, number, position)
            if index >= count:
                expected = f"expected 0 to {count - 1}" if count else "links need a count"
                report.error(here, f"there is no device {index}", expected)
            elif index in members:
                report.error(here, f"device {index} is in this group twice", "name each device once")
            else:
                members.add(index)
        if len(group) < 2:  # a link has two ends
            report.error((*path, number), "a group of linked devices needs at least two indices")
        links |= dict.fromkeys(permutations(members, 2), score)
    return links


def _scores(rows: list[list[int]], path: KeyPath, report: ProblemReport) -> Links:
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
