"""Everything that a configuration says, in one value."""

from dataclasses import dataclass, field
from enum import StrEnum

from ..faults.rules import NO_RULES, Faults
from .entry import DEFAULT_FLAGS, SAYS_NOTHING, EntrySpec, Flags, NodeSpec
from .fleet import NO_FLEET, Fleet
from .telemetry import Telemetry


class SharingKind(StrEnum):
    """NVIDIA's two kinds of sharing."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResource:
    """One item of `sharing.*.resources`.

    `devices` is None for all, a count (lowest indices first), or references: `"3"`, `"0:1"`, or ids. If the item is
    `for_nvidia`'s plugin, which shares every device whatever `devices` says, one that does not fit the node is ignored.
    """

    name: str
    replicas: int
    rename: str = ""
    devices: int | tuple[str, ...] | None = None
    for_nvidia: bool = False
    where: str = field(default="", compare=False)  # a moved line is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSpec:
    """The `timeSlicing` or `mps` block."""

    kind: SharingKind
    resources: tuple[SharedResource, ...]
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """One item of `resources.gpus` or `resources.mig`: a whole-string pattern where `*` is any run of characters.

    If the patterns are `for_nvidia`'s plugin, which ignores them, a device that matches none keeps its name.
    """

    pattern: str
    name: str
    for_nvidia: bool = False
    where: str = field(default="", compare=False)  # a moved line is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Everything the configuration says."""

    entries: tuple[EntrySpec, ...] = ()
    flags: Flags = DEFAULT_FLAGS
    sharing: SharingSpec | None = None
    gpu_patterns: tuple[NamePattern, ...] = ()
    mig_patterns: tuple[NamePattern, ...] = ()
    faults: Faults = NO_RULES
    node: NodeSpec = SAYS_NOTHING
    telemetry: Telemetry | None = None  # None: nothing is measured
    fleet: Fleet = NO_FLEET

    def on_node(self, node: str) -> tuple[EntrySpec, ...]:
        """The entries that concern that node."""
        return tuple(entry for entry in self.entries if entry.is_on(node))
