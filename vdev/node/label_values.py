"""The input and the result of the makers' labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.device import EMPTY, RawDevice
from ..model.entry import Entry, MigStrategy
from ..model.geometry import LayoutError, Profile
from ..model.names import domain_and_name
from ..model.problem import Problem
from ..model.spec import Spec
from ..planning.naming import partition_id
from ..planning.partitions import place
from ..planning.resources import Inventory


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine in labels: its model (empty: unknown), and the Unix time of the start (None: no label)."""

    product: str = ""
    started_at: int | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels by key, sorted, and problems with them."""

    values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    problems: tuple[Problem, ...] = ()


NO_LABELS = Labels()


@dataclass(frozen=True, slots=True)
class Hardware:
    """One physical device of a maker. `parts` are its partitions, perhaps none of them; None: it is not partitioned."""

    entry: Entry
    maker: str
    raw: RawDevice
    parts: tuple[Profile, ...] | None = None

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.raw.attributes

    def pci(self, key: str) -> str:
        """The first four hexadecimal digits of an attribute such as the PCI class; empty without it."""
        return self.attributes.get(key, "").lower().removeprefix("0x")[:4]


def hardware(
    spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], inventory: Inventory
) -> tuple[Hardware, ...]:
    """The virtual devices, in the order of the file, as far as they have a `maker`."""
    entries = [(entry, domain) for entry in spec.on_node(node) if (domain := maker(entry))]
    listed = frozenset(slot.device.id for each in inventory.resources.values() for slot in each.slots)
    return tuple(
        Hardware(entry, domain, raw, parts)
        for entry, domain in entries
        for raw, parts in _cut(spec, entry, found.get(entry.name, ()), listed)
        if raw.id not in inventory.left_out
    )


NVIDIA = "nvidia.com"


def maker(entry: Entry) -> str:
    """The domain under which the maker of the entry's virtual devices advertises them, or empty for real devices.

    Real devices have their makers' labellers. Without a preset, it is the domain of the entry's own resource, except
    nvidia.com: nothing is known about such a device.
    """
    if entry.virtual is None:
        return ""
    if entry.is_nvidia:
        return NVIDIA
    domain = domain_and_name(entry.virtual.model.resource or entry.resource)[0]
    return "" if domain == NVIDIA else domain


def _may_be_cut(entry: Entry) -> bool:
    return entry.geometry is not None and bool(entry.partitions or entry.geometry.first_mode)


def _cut(
    spec: Spec, entry: Entry, raws: Sequence[RawDevice], listed: frozenset[str]
) -> Iterable[tuple[RawDevice, tuple[Profile, ...] | None]]:
    """Each device with its partitions.

    If some partitions of the entry are listed, the others were removed. If none is, their resource is left out, or the
    strategy advertises whole devices.
    """
    if not _may_be_cut(entry):
        return ((raw, None) for raw in raws)
    cut = [(raw, _parts(spec, entry, raw)) for raw in raws]
    some = any(name in listed for _, parts in cut for name, _ in parts or ())
    return (
        (raw, None if parts is None else tuple(each for name, each in parts if not some or name in listed))
        for raw, parts in cut
    )


def _parts(spec: Spec, entry: Entry, raw: RawDevice) -> list[tuple[str, Profile]] | None:
    """The partitions, each with its id; None for a device that stays whole."""
    geometry = entry.geometry
    wanted = entry.parts(raw.index)
    if geometry is None or wanted is None:
        return None
    if geometry.first_mode and spec.flags.mig_strategy is MigStrategy.NONE:
        wanted = (geometry.first_mode,)  # such hardware has no mode besides its partitions
    try:
        places = place(geometry, wanted)
    except LayoutError:
        return []
    whole = geometry.slices if geometry.whole_device else 0
    return [(raw.id if each.size == whole else partition_id(entry, raw, each), each.profile) for each in places]
