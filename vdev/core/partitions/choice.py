"""Layouts that a label of the node chooses among: values only.

What becomes of a chosen one is decided in `core.repartition`; files of layouts are read by `config.layouts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .geometry import Geometry, layouts_of

DISABLED = "all-disabled"
ENABLED = "all-enabled"

Parts = tuple[str, ...] | None
"""The profiles that a device is cut into; None: it stays whole."""


AMD_LABEL = "dcm.amd.com/gpu-config-profile"


@dataclass(frozen=True, slots=True)
class Protocol:
    """The label that tells what became of a chosen layout, and its values; `pending` is empty where none is written."""

    label: str
    pending: str = "pending"
    success: str = "success"
    failed: str = "failed"


AMD = Protocol(f"{AMD_LABEL}-state", pending="", failed="failure")
"""As AMD's device-config-manager tells it. Others do as NVIDIA's mig-manager does."""


def protocol_of(label: str) -> Protocol:
    """How it is told what became of the value of a label that chooses a layout."""
    return AMD if label == AMD_LABEL else Protocol(f"{label}.state")


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """What a layout makes of an entry's devices, by their index; devices that it does not name stay as they are.

    `refusal` is why these devices cannot have it, or empty: one file of layouts may be for many models.
    """

    parts: Mapping[int, Parts] = field(hash=False)
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChoice:
    """The label whose value names one of `layouts`.

    `default` is the layout of a node without the label; empty: whole devices.
    """

    label: str
    default: str
    layouts: Mapping[str, NamedLayout] = field(hash=False)

    @property
    def protocol(self) -> Protocol:
        """How it is told what became of the label's value."""
        return protocol_of(self.label)

    @property
    def state_label(self) -> str:
        """The label that tells what became of the label's value."""
        return self.protocol.label

    @property
    def initial(self) -> dict[int, tuple[str, ...]]:
        """The profiles of each device that is cut, on a node without the label."""
        layout = self.layouts.get(self.default)
        return {index: parts for index, parts in layout.parts.items() if parts is not None} if layout else {}


def generated(geometry: Geometry, count: int) -> dict[str, NamedLayout]:
    """The layouts under the names that mig-parted makes up, for `count` devices, and those of the geometry.

    A device that the hardware always keeps in one mode has no layout without partitions.
    """
    named: dict[str, Parts] = {DISABLED: None}
    if not geometry.whole_device:
        named[ENABLED] = ()
    named |= layouts_of(geometry)
    return {name: NamedLayout(dict.fromkeys(range(count), parts)) for name, parts in named.items()}
