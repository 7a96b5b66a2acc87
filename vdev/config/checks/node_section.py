"""What entries say about the node: with the switches of the section `node`, and among each other."""

from ...core.model.place import KeyPath
from ...core.partitions.choice import protocol_of
from ...core.spec import TrueWhen
from ..report import ProblemReport
from ..schema.devices.partitions import FromLabel
from ..schema.node_section import Node
from .entries import Entries, may_meet


def check_node(model: Node, entries: Entries, report: ProblemReport) -> None:
    """Labels and conditions that nothing writes, that contradict each other, or that are not for an entry."""
    known = ("node",) not in report.broken()
    for path, entry in entries:
        if known and entry.labels and model.labels is False:
            report.warning((*path, "labels"), f"the labels of {entry.name} are not written", "set node.labels to true")
        if known and entry.conditions and not model.conditions:
            message = f"the conditions of {entry.name} are not written"
            report.warning((*path, "conditions"), message, "set node.conditions to true")
    _conditions(entries, report)
    _labels(entries, report)


def _labels(entries: Entries, report: ProblemReport) -> None:
    """The label that chooses how devices are cut is not for vdev to write, and what became of it not for an entry."""
    taken: dict[str, tuple[str, str]] = {}
    for _, entry in entries:
        if isinstance(entry.partitions, FromLabel):
            label, name = entry.partitions.from_label, entry.name
            taken[protocol_of(label).label] = (
                f"tells what became of {label}, which chooses how {name} is cut",
                "leave it out",
            )
            taken[label] = (
                f"chooses how {name} is cut",
                "leave it to those who cut the node, and see partitions.default",
            )
    for path, entry in entries:
        for label in entry.labels.keys() & taken.keys():
            what, hint = taken[label]
            report.error((*path, "labels", label), f"the label {label} {what}", hint)


def _conditions(entries: Entries, report: ProblemReport) -> None:
    """A type is given once in an entry; entries of one node that share it must mean the same by it."""
    said: dict[str, list[tuple[KeyPath, int, TrueWhen]]] = {}
    for number, (path, entry) in enumerate(entries):
        for place, each in enumerate(entry.conditions):
            at = (*path, "conditions", place)
            for other, owner, true_when in said.setdefault(each.type, []):
                first = report.document.value_place(other)
                if owner == number:
                    report.error((*at, "type"), f"the condition {each.type} is given twice", f"it is at {first} too")
                    break
                if true_when is not each.true_when and may_meet(entries[owner][1], entry):
                    message = f"the condition {each.type} is True while devices are {true_when} at {first}"
                    report.error((*at, "trueWhen"), message, "let both mean the same, or give it another type")
                    break
            said[each.type].append((at, number, each.true_when))
