"""The form of a preset's file."""

from typing import Annotated

from ..model.device import IdStyle
from ..model.scalars import (
    AsWritten,
    Count,
    EnvName,
    Index,
    Memory,
    ResourceName,
    Section,
    Text,
    Whole,
    Word,
    between,
    choice,
)
from ..model.sources import DriverNode
from ..model.telemetry import PhysicsModel
from .partitions_block import PartitioningModel


class PresetModel(Section):
    """A preset's file."""

    base: Word | None = None
    """Another preset, whose values hold where this one gives none."""
    description: Word | None = None
    """What it is, in a few words."""
    resource: ResourceName | None = None
    """The resource under which its vendor's plugin advertises it."""
    id_style: Annotated[IdStyle, choice(IdStyle)] | None = None
    """How ids look: `<name>-<index>`, or NVIDIA's UUIDs."""
    visible_devices_env: EnvName | None = None
    """The variable that tells the vendor's runtime which devices a container gets."""
    count: Count | None = None
    """How many devices a node has."""
    memory: Memory | None = None
    """Memory of each device, as a Kubernetes quantity such as 16Gi."""
    numa: list[Index] | None = None
    """NUMA nodes: one for all devices, or one per device."""
    attributes: dict[str, AsWritten] = {}
    """Facts about each device, for templates; added to those of the base."""
    links: list[list[Index]] | None = None
    """Groups of devices, each linked to each; or a score for every pair, as `count` lists of `count` numbers."""
    link_score: Annotated[Whole, between(1)] | None = None
    """The score of a link within a group, 100 for one NVLink."""
    device_nodes: list[DriverNode] | None = None
    """Device nodes that the real device has."""
    partition_nodes: list[DriverNode] | None = None
    """Device nodes that a partition of it has. Default: those of the device."""
    partitioning: PartitioningModel | None = None
    """How a device can be partitioned."""
    physics: PhysicsModel | None = None
    """What a device draws and how warm it gets under load."""
    sources: dict[str, Text] = {}
    """Where the figures come from, by key."""
    unverified: list[Text] = []
    """Keys whose figures nobody has confirmed."""
