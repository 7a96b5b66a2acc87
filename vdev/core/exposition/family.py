"""Metrics of one name, and the lines that Prometheus reads.

A label set is text from the beginning, since all metrics of a device share it; its order is what a maker's exporter
writes, which a library that sorts labels would not keep.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..telemetry.sensors import Measured

Labels = tuple[tuple[str, str], ...]
Value = Callable[[Measured], float | None]

_PIECE = 1000  # samples


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
    """The metrics of a name, each with the text of its labels."""

    name: str
    type: str
    text: str
    samples: list[tuple[str, float]] = field(default_factory=list)


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    """Labels as they stand between the braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels)


def families(columns: Sequence[Column], rows: Sequence[tuple[Labels, Measured]], *, ordered: bool) -> list[Family]:
    """The columns of these rows. With `ordered` labels, those of a column go to their place by name, else to the end.

    Columns of one name follow each other and are one family.
    """
    found: dict[str, Family] = {}
    plain = [(labels_text(labels), measured) for labels, measured in rows]
    for column in columns:
        family = found.setdefault(column.name, Family(column.name, column.type, column.text))
        texts = plain
        if column.more:
            texts = [
                (labels_text(sorted((*labels, *column.more)) if ordered else (*labels, *column.more)), measured)
                for labels, measured in rows
            ]
        value = column.value
        family.samples.extend((text, number) for text, each in texts if (number := value(each)) is not None)
    return [family for family in found.values() if family.samples]


def chunks(found: Iterable[Family]) -> Iterator[bytes]:
    """Families in the text format of Prometheus, version 0.0.4, in pieces, so that no step takes long."""
    for family in found:
        name = family.name
        help_ = family.text.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {help_}\n# TYPE {name} {family.type}\n".encode()
        for start in range(0, len(family.samples), _PIECE):
            lines = [
                f"{name}{{{labels}}} {value}\n" if type(value) is int else f"{name}{{{labels}}} {value:.6f}\n"
                for labels, value in family.samples[start : start + _PIECE]
            ]
            yield "".join(lines).encode()


def text(found: Iterable[Family]) -> str:
    """The same as one text."""
    return b"".join(chunks(found)).decode()
