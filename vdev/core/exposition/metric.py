"""What an exporter shows: a table of metrics, and the labels of a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..telemetry.sensors import Fixture, MeasuredDevice

Labels = tuple[tuple[str, str], ...]
Value = Callable[[MeasuredDevice], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of an exporter's table. `type` is counter or gauge; a `value` of None is left out.

    Floats are written with six digits after the point, as DCGM's exporter does, and integers as they are. Rows of one
    name stand together; they differ in `labels`, which are added to those of the device.
    """

    name: str
    type: str
    help: str
    value: Value
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter of one maker.

    `labels` are called with a device, the node's name and the label for it, and yield the labels of the device once for
    each container that has it. With `sorts_labels` a line has all labels in the order of their names.
    """

    metrics: Sequence[Metric]
    labels: Callable[[Fixture, str, str], Iterator[Labels]]
    sorts_labels: bool = False
