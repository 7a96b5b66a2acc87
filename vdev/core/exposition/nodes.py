"""The devices of one node, or of many, as their makers' exporters would show them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ..model.telemetry import SmiTool
from ..telemetry.sensors import Fixture, MeasuredDevice
from . import amd, dcgm, plain
from .family import Column, Family, Labels, LabelSet, Table, labels_text

_BATCH = 40  # devices; what is made of them is gone before the garbage collector takes it for lasting

_COLUMNS: Mapping[SmiTool | None, Sequence[Column]] = {
    SmiTool.NVIDIA: dcgm.COLUMNS,
    SmiTool.AMD: amd.COLUMNS,
    None: plain.COLUMNS,
}
_LABELS: Mapping[SmiTool | None, Callable[[Fixture, str, str], Iterator[Labels]]] = {
    SmiTool.NVIDIA: dcgm.labels,
    SmiTool.AMD: lambda fixture, node, _label: amd.labels(fixture, node),
    None: lambda fixture, node, _label: plain.labels(fixture, node),
}


class Exposition:
    """Makes the page again and again; labels of devices of which nothing else is known are those of the last time.

    `hostname_label` is NVIDIA's label of the node. With `node_label`, each line has the label `node`.
    """

    def __init__(self, hostname_label: str, *, node_label: bool = False) -> None:
        self.hostname_label = hostname_label
        self._node_label = node_label
        self._labels: dict[int, tuple[Fixture, tuple[LabelSet, ...]]] = {}

    def families(self, nodes: Iterable[tuple[str, Iterable[MeasuredDevice]]]) -> list[Family]:
        """What these nodes show, by name."""
        tables = {maker: Table(columns) for maker, columns in _COLUMNS.items()}
        used: dict[int, tuple[Fixture, tuple[LabelSet, ...]]] = {}
        hosts = Family(*amd.NODES_TOTAL)
        for node, measured in nodes:
            raws: set[str] = set()
            devices = iter(measured)
            while batch := list(islice(devices, _BATCH)):
                rows: dict[SmiTool | None, list[tuple[LabelSet, MeasuredDevice]]] = {}
                for each in batch:
                    fixture = each.fixture
                    known = used[id(fixture)] = self._known(fixture, node)
                    rows.setdefault(fixture.maker, []).extend((labels, each) for labels in known[1])
                    if fixture.maker is SmiTool.AMD:
                        raws.add(fixture.device.raw.id)
                for maker, some in rows.items():
                    tables[maker].add(some)
            if raws:
                more = (("node", node),) if self._node_label else ()
                hosts.labels.append(labels_text((("hostname", node), *more)))
                hosts.values.append(len(raws))
        self._labels = used
        found = [family for table in tables.values() for family in table.families]
        return [*found, hosts] if hosts.values else found

    def _known(self, fixture: Fixture, node: str) -> tuple[Fixture, tuple[LabelSet, ...]]:
        known = self._labels.get(id(fixture))
        if known is not None and known[0] is fixture:
            return known
        ordered = fixture.maker is SmiTool.AMD
        sets = dict.fromkeys(
            self._on_node(each, node, fixture) for each in _LABELS[fixture.maker](fixture, node, self.hostname_label)
        )  # a container with several claims on the device has one line, where labels do not name those
        return fixture, tuple(LabelSet(each, ordered) for each in sets)

    def _on_node(self, labels: Labels, node: str, fixture: Fixture) -> Labels:
        if not self._node_label or fixture.maker is None:  # whose labels have it anyway
            return labels
        return tuple(sorted((*labels, ("node", node)))) if fixture.maker is SmiTool.AMD else (*labels, ("node", node))
