"""NUMA nodes and fast links of virtual devices, checked against the number of devices."""

from collections.abc import Sequence

from ..model.problem import KeyPath
from ..model.virtual import are_scores
from .messages import ProblemReport

MAX_LINKED = 256  # devices with fast links; the largest known domain, an NVL72 rack, has 72


def check_numa(nodes: Sequence[int], count: int, path: KeyPath, report: ProblemReport) -> None:
    """Report a list of NUMA nodes that is neither one for all devices nor one per device.

    A `count` of 0 is any number of devices.
    """
    if len(nodes) not in (1, count):
        message = f"{len(nodes)} NUMA nodes for {count or 'any number of'} devices"
        report.error(path, message, "give one for all devices, or one per device")


def check_links(rows: Sequence[Sequence[int]], count: int, path: KeyPath, report: ProblemReport) -> None:
    """Report links that `count` devices cannot have."""
    if count > MAX_LINKED:
        report.error(path, f"there are {count} devices", f"links are for at most {MAX_LINKED}")
    elif are_scores(rows, count):
        _check_scores(rows, path, report)
    else:
        for number, group in enumerate(rows):
            _check_group(group, count, (*path, number), report)


def _check_group(group: Sequence[int], count: int, path: KeyPath, report: ProblemReport) -> None:
    for position, index in enumerate(group):
        if index >= count:
            expected = f"expected 0 to {count - 1}" if count else "links need a count"
            report.error((*path, position), f"there is no device {index}", expected)
        elif index in group[:position]:
            report.error((*path, position), f"device {index} is in this group twice", "name each device once")
    if len(group) < 2:  # a link has two ends
        report.error(path, "a group of linked devices needs at least two indices")


def _check_scores(rows: Sequence[Sequence[int]], path: KeyPath, report: ProblemReport) -> None:
    hint = "as many lists of as many numbers as there are devices are scores of pairs, not groups of indices"
    for one, row in enumerate(rows):
        if row[one]:
            report.error((*path, one, one), f"device {one} is linked to itself; the diagonal must be 0", hint)
        for other in range(one):
            if row[other] != rows[other][one]:
                back = rows[other][one]
                message = f"the score of {one} with {other} is {row[other]}, and of {other} with {one} it is {back}"
                report.error((*path, one, other), message, hint)
