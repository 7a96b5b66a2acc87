"""The devices of one node, or of many, as their makers' exporters would show them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..model.telemetry import SmiTool
from ..telemetry.sensors import Measured
from . import amd, dcgm, plain
from .family import Column, Family, Labels, families, labels_text

Rows = list[tuple[Labels, Measured]]


def families_of(
    nodes: Iterable[tuple[str, Sequence[Measured]]], hostname_label: str, *, node_label: bool = False
) -> list[Family]:
    """What these nodes show, by name; with `node_label`, each line has the label `node`."""
    by_maker: dict[SmiTool | None, Rows] = {SmiTool.NVIDIA: [], SmiTool.AMD: [], None: []}
    hosts = Family(*amd.NODES_TOTAL)
    for node, measured in nodes:
        makers: dict[SmiTool | None, list[Measured]] = {}
        for each in measured:
            makers.setdefault(each.fixture.maker, []).append(each)
        for maker, devices in makers.items():
            found = list(_ROWS[maker](devices, node, hostname_label))
            by_maker[maker] += _on_node(found, node, ordered=maker is SmiTool.AMD) if node_label and maker else found
        if of_amd := makers.get(SmiTool.AMD):
            labels = (*amd.host_labels(node), *((("node", node),) if node_label else ()))
            hosts.labels.append(labels_text(labels))
            hosts.values.append(len({each.fixture.device.raw.id for each in of_amd}))
    result = [
        family
        for maker, columns in _COLUMNS.items()
        for family in families(columns, by_maker[maker], ordered=maker is SmiTool.AMD)
    ]
    return [*result, hosts] if hosts.values else result


def _on_node(rows: Rows, node: str, *, ordered: bool) -> Rows:
    return [
        ((tuple(sorted((*labels, ("node", node)))) if ordered else (*labels, ("node", node))), it)
        for labels, it in rows
    ]


_COLUMNS: Mapping[SmiTool | None, Sequence[Column]] = {
    SmiTool.NVIDIA: dcgm.COLUMNS,
    SmiTool.AMD: amd.COLUMNS,
    None: plain.COLUMNS,
}
_ROWS: Mapping[SmiTool | None, Callable[[Sequence[Measured], str, str], Iterable[tuple[Labels, Measured]]]] = {
    SmiTool.NVIDIA: dcgm.rows,
    SmiTool.AMD: lambda measured, node, _label: amd.rows(measured, node),
    None: lambda measured, node, _label: plain.rows(measured, node),
}
