"""The metrics of devices as their makers' exporters write them, in Prometheus' text format 0.0.4.

Prometheus' client library cannot write them, because it sorts labels and appends _total to the names of counters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..model.telemetry import SmiTool
from . import amd, dcgm, exporters
from .exporters import Exporter, Labels, Values
from .simulation import MeasuredDevice

_EXPORTERS: Mapping[SmiTool | None, Exporter] = {
    SmiTool.NVIDIA: dcgm.EXPORTER,
    SmiTool.AMD: amd.EXPORTER,
    None: exporters.EXPORTER,
}


@dataclass(frozen=True, slots=True)
class _Row:
    """The values of a device for one container."""

    values: Values
    labels: Labels
    text: str  # the labels as text, which most metrics share


def page(
    nodes: Iterable[tuple[str, Iterable[MeasuredDevice]]], hostname_label: str, *, node_label: bool = False
) -> str:
    """Return the metrics of these nodes. With `node_label`, each line has the label `node`."""
    return "".join(_page(nodes, hostname_label, node_label=node_label))


def _page(
    nodes: Iterable[tuple[str, Iterable[MeasuredDevice]]], hostname_label: str, *, node_label: bool
) -> Iterator[str]:
    rows: dict[SmiTool | None, list[_Row]] = {maker: [] for maker in _EXPORTERS}
    amd_nodes = []
    for node, measured in nodes:
        more: Labels = (("node", node),) if node_label else ()
        amd_devices: set[str] = set()
        for each in measured:
            maker = each.info.maker
            exporter, users = _EXPORTERS[maker], each.info.users or (None,)
            values = exporter.values(each)
            # A container may have several claims on the device. If the labels do not name claims, it gets one line.
            for labels in dict.fromkeys(exporter.labels(each.info, user, node, hostname_label) for user in users):
                whole = labels if maker is None else (*labels, *more)
                rows[maker].append(_Row(values, whole, _text(exporter, whole)))
            if maker is SmiTool.AMD:
                amd_devices.add(each.info.device.raw.id)
        if amd_devices:
            text = _text(_EXPORTERS[SmiTool.AMD], (("hostname", node), *more))
            amd_nodes.append(_line("gpu_nodes_total", text, str(len(amd_devices))))
    for maker, exporter in _EXPORTERS.items():
        yield from _families(exporter, rows[maker])
    if amd_nodes:
        yield _family("gpu_nodes_total", "gauge", "Number of GPUs in the node", amd_nodes)


def escaped(value: str) -> str:
    """Escape a label's value."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _families(exporter: Exporter, rows: Sequence[_Row]) -> Iterator[str]:
    for name, metrics in groupby(exporter.metrics, key=lambda metric: metric.name):
        lines = []
        for metric in metrics:
            for row in rows:
                value = row.values.get(metric.value)
                if value is not None:
                    text = _text(exporter, (*row.labels, *metric.labels)) if metric.labels else row.text
                    lines.append(_line(name, text, metric.text(value)))
        if lines:
            yield _family(name, metric.type, metric.help, lines)


def _family(name: str, type_: str, help_: str, lines: Iterable[str]) -> str:
    return f"# HELP {name} {help_}\n# TYPE {name} {type_}\n{''.join(lines)}"


def _text(exporter: Exporter, labels: Labels) -> str:
    ordered = sorted(labels) if exporter.sorts_labels else labels
    return ",".join(f'{name}="{escaped(value)}"' for name, value in ordered)


def _line(name: str, labels: str, value: str) -> str:
    return f"{name}{{{labels}}} {value}\n"
