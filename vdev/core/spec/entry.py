"""An item of `devices`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from ..model.device import IdStyle, RawDevice
from ..model.dra import DraSpec
from ..model.facts import facts
from ..model.syntax.template import Template
from ..model.telemetry import EntryTelemetry, SmiTool
from ..model.virtual_node import PlainDirectory, PlainFile
from ..partitions.choice import PartitionChoice
from ..partitions.geometry import PIN, Geometry
from .container import NOTHING_MORE, ContainerSpec
from .health_and_actions import ActionSpec, HealthSpec, OnFailure
from .node_outputs import ConditionSpec
from .sources import Source, VirtualSource

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")  # of a resource; smarter-device-manager's rule


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySpec:
    """One item of `devices`."""

    name: str
    resource: str  # with a template: as it is written
    source: Source
    template: Template | None = None  # of the resource's name, where each device has its own
    where: str = field(default="", compare=False)  # a moved line is no change
    on_nodes: tuple[str, ...] = ()
    container: ContainerSpec = NOTHING_MORE
    health: HealthSpec | None = None
    visible_devices_env: str = ""  # "" = made from the resource's name
    geometry: Geometry | None = None
    partitions: Mapping[int, tuple[str, ...]] = field(
        default_factory=dict
    )  # device index -> profiles, layouts resolved; with a choice, those of a node without the label
    choice: PartitionChoice | None = None  # a label of the node says how the devices are cut
    exclude_topology: bool = False
    shared: bool = False  # its devices may be nodes that devices of other entries are, too
    pre_start: tuple[ActionSpec, ...] = ()
    on_allocate: tuple[ActionSpec, ...] = ()
    on_release: tuple[ActionSpec, ...] = ()
    if_release_fails: OnFailure = OnFailure.BLOCK
    labels: tuple[tuple[str, Template], ...] = ()  # of the node, beside those of the devices' maker
    conditions: tuple[ConditionSpec, ...] = ()
    listed: bool = True  # by a device plugin
    dra: DraSpec | None = None  # published for Dynamic Resource Allocation
    telemetry: EntryTelemetry | None = None  # None: nobody asks
    smi: SmiTool | None = None
    gpu_names: tuple[str, ...] = ()  # what `resources.gpus` patterns are matched against; empty: not an NVIDIA device

    @property
    def acts_on_handovers(self) -> bool:
        """Whether anything is done when a device changes hands."""
        return bool(self.on_allocate or self.on_release or self.is_writable)

    @property
    def is_writable(self) -> bool:
        """Whether pods can write into the file or directory that stands in for a device."""
        node = self.source.node if isinstance(self.source, VirtualSource) else None
        return isinstance(node, PlainFile | PlainDirectory) and not node.read_only

    @property
    def is_nvidia(self) -> bool:
        """Whether its devices answer in the NVIDIA plugin's exact wire form: those of NVIDIA presets do."""
        return isinstance(self.source, VirtualSource) and self.source.id_style is IdStyle.NVIDIA

    def resource_of(self, raw: RawDevice) -> str:
        """The resource of one of its devices. What no name may hold is written '_'."""
        if self.template is None:
            return self.resource
        values = facts(raw, self.resource).items()
        return self.template.render({key: _NOT_IN_NAME.sub("_", value) for key, value in values})

    @property
    def without_node(self) -> "EntrySpec":
        """The entry without what the node says of it, which changes no device and nothing that a container gets."""
        said = self.labels or self.conditions or self.dra or self.telemetry
        return replace(self, labels=(), conditions=(), dra=None, telemetry=None) if said else self

    @property
    def possible_profiles(self) -> frozenset[str]:
        """The profiles that its devices have, or may be given by a label of the node."""
        cut = [*self.partitions.values(), (self.geometry.first_mode,) if self.geometry else ()]
        layouts = self.choice.layouts.values() if self.choice else ()
        cut += (parts for layout in layouts if not layout.refusal for parts in layout.parts.values() if parts)
        return frozenset(profile.partition(PIN)[0] for parts in cut for profile in parts) - {""}

    def parts(self, index: int) -> tuple[str, ...] | None:
        """The profiles that a device is cut into, or None for a device that stays whole."""
        if self.geometry and self.geometry.first_mode:
            return self.partitions.get(index, (self.geometry.first_mode,))
        return self.partitions.get(index)

    def is_on(self, node: str) -> bool:
        """Whether the entry concerns the node of that name."""
        return not self.on_nodes or any(fnmatchcase(node, pattern) for pattern in self.on_nodes)
