"""Metrics of one name, and the lines that Prometheus reads.

A label set is text from the beginning, since all metrics of a device share it; its order is what a maker's exporter
writes, which a library that sorts labels would not keep.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..telemetry.sensors import MeasuredDevice

Labels = tuple[tuple[str, str], ...]
Value = Callable[[MeasuredDevice], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """A metric as a table of them has it; a `value` of None is left out. `type` is counter or gauge.

    Floats are written with six digits after the point, as DCGM's exporter does; whole numbers as they are. `more` are
    labels of its own, which stand where `place` says.
    """

    name: str
    type: str
    text: str
    value: Value
    more: Labels = ()


@dataclass(frozen=True, slots=True)
class Family:
    """The metrics of a name: the text of the labels of each, and its value."""

    name: str
    type: str
    text: str
    labels: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    """Labels as they stand between the braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels)


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of a device, and how they are written; with those of a column by name where they are `ordered`, else
    at the end. What was written once is kept.
    """

    pairs: Labels
    ordered: bool
    _texts: dict[Labels, str] = field(default_factory=dict)

    def text(self, more: Labels) -> str:
        """As they stand between the braces, with more of them."""
        known = self._texts.get(more)
        if known is None:
            pairs = sorted((*self.pairs, *more)) if self.ordered else (*self.pairs, *more)
            known = self._texts[more] = labels_text(pairs)
        return known


class Table:
    """The families of some columns, of which those of one name are one, filled row by row."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._families: dict[str, Family] = {}
        for column in columns:
            self._families.setdefault(column.name, Family(column.name, column.type, column.text))
        self._columns = columns

    def add(self, rows: Sequence[tuple[LabelSet, MeasuredDevice]]) -> None:
        """Add these rows to every family."""
        for column in self._columns:
            family, value, more = self._families[column.name], column.value, column.more
            values = [value(each) for _, each in rows]
            family.labels.extend(
                labels.text(more) for (labels, _), number in zip(rows, values, strict=True) if number is not None
            )
            family.values.extend(number for number in values if number is not None)

    @property
    def families(self) -> list[Family]:
        """Those that have something."""
        return [family for family in self._families.values() if family.values]


def text(found: Iterable[Family]) -> str:
    """Families in the text format of Prometheus, version 0.0.4."""
    lines: list[str] = []
    for family in found:
        name = family.name
        help_ = family.text.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {help_}\n# TYPE {name} {family.type}\n")
        lines += [
            f"{name}{{{labels}}} {value}\n" if type(value) is int else f"{name}{{{labels}}} {value:.6f}\n"
            for labels, value in zip(family.labels, family.values, strict=True)
        ]
    return "".join(lines)
