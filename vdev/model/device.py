"""Devices, from the hardware that discovery finds to the ids that the kubelet counts.

RawDevice   a physical or virtual device, as a discovery source found it
Device      a whole raw device, or one partition of it: the unit that a container gets
Slot        an id in the kubelet's list: a device, or one replica of a shared device
"""

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import PlainSerializer, PlainValidator

from .problem import Problem, show

EMPTY: Mapping[str, str] = MappingProxyType({})

Key = tuple[str, str]
"""A slot on the node: its resource's name and its id."""
DeviceKey = tuple[str, str]
"""A device on the node: its resource's or DRA driver's name, and its id without a replica's number."""


class IdStyle(StrEnum):
    """How ids of virtual devices look: `<name>-<index>`, or the UUIDs that NVIDIA's driver gives."""

    NAME = "name"
    NVIDIA = "nvidia"


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node handed to a container.

    `host_path` is the path on the host as the runtime sees it. `permissions` is a non-empty combination of `r`, `w`,
    `m`. `type` ("c" or "b"), `major` and `minor` are set for a node that need not exist on the host (CDI only).
    """

    host_path: str
    container_path: str
    permissions: str = "rw"
    type: str = ""
    major: int = 0
    minor: int = 0


SliceRange = Annotated[
    range,
    PlainValidator(lambda given: given if isinstance(given, range) else range(*given)),
    PlainSerializer(lambda slices: (slices.start, slices.stop)),
]
"""A range that pydantic can write as JSON."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount for a container; with `tmpfs` an empty tmpfs instead, which only CDI has."""

    host_path: str
    container_path: str
    read_only: bool = False
    tmpfs: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a device works; if not, `reason` says why in a few words.

    `injected` is the name of the fault rule that caused it, and empty for a real failure.
    """

    healthy: bool = True
    reason: str = ""
    injected: str = ""

    @property
    def is_injected(self) -> bool:
        """Whether a fault rule makes it unhealthy."""
        return bool(self.injected) and not self.healthy


HEALTHY = Health()
GONE = Health(healthy=False, reason="gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDevice:
    """One device of an entry, as its discovery source found it."""

    id: str  # of the entry's name and the device's own identity (path, serial, port, index), never of order or time
    entry: str
    index: int  # within the entry
    nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    numa: tuple[int, ...] = ()  # NUMA nodes; empty: unknown
    memory: int = 0  # bytes; 0: unknown
    attributes: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()  # on the host, for people
    # Nodes of the real device of a preset that exist on the host, for `passDeviceSpecs`: of the device, of each of its
    # partitions, and of one partition by the number of its GPU instance.
    driver_nodes: tuple[DeviceNode, ...] = ()
    partition_nodes: tuple[DeviceNode, ...] = ()
    instance_nodes: Mapping[int, tuple[DeviceNode, ...]] = field(default_factory=dict)
    health: Health = HEALTHY  # as discovery knows it, for example if a required part is missing; probes add to it
    numa_hidden: bool = False  # from the kubelet
    # Nodes of the host by kind and numbers, without nodes that serve many devices: `owns` are the device itself, `uses`
    # are others that it hands out, and that may belong to another device.
    owns: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    refused: str = ""  # why nothing of it may reach a container, see `planning.refusal`; it is unhealthy then
    tools: str = ""  # the host's directory with its maker's tools for containers; empty: none

    @property
    def topology(self) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet sees."""
        return () if self.numa_hidden else self.numa


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A whole raw device or one partition of it: the unit that a container gets."""

    id: str
    raw: RawDevice
    ordinal: str  # NVIDIA's index: "2" for the third device of its resource, "2:0" for its first partition
    profile: str = ""
    slices: SliceRange = range(0)  # the memory slices that a partition occupies; empty for a whole device
    memory: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    health: Health = HEALTHY
    replicas: int = 0  # of a shared device; 0: not shared

    @property
    def is_partition(self) -> bool:
        return bool(self.profile)

    @property
    def selector(self) -> str:
        """Its name in rules and commands: `a100/2` for the third of the entry, `a100/2:0` for its first partition.

        Empty if no entry of the configuration has it.
        """
        part = f":{self.part}" if self.is_partition else ""
        return f"{self.raw.entry}/{self.raw.index}{part}" if self.raw.entry else ""

    @property
    def part(self) -> int:
        """The number of a partition on its device; 0 for a whole device and for a partition that fills its device."""
        return self.sort_key[-1] if ":" in self.ordinal else 0

    @property
    def sort_key(self) -> tuple[int, ...]:
        """Numeric order of the ordinals."""
        return tuple(int(part) for part in self.ordinal.split(":"))


REPLICA_MARK = "::"
UNKNOWN_ENTRY = ""  # the entry of a device that pods hold and the configuration does not know


@dataclass(frozen=True, slots=True)
class Slot:
    """An id in the kubelet's list: a device, or one replica of a shared device."""

    id: str
    device: Device
    replica: int | None = None  # the replica's number
    # The device's health, or why this id alone is Unhealthy: it was removed while a pod may hold it, or overlaps a
    # device that a pod still holds.
    health: Health = HEALTHY


def replica_id(device_id: str, number: int) -> str:
    """The id of a replica, in NVIDIA's form `<id>::<n>`."""
    return f"{device_id}{REPLICA_MARK}{number}"


def base_id(slot_id: str) -> str:
    """The device's id without the replica's number."""
    return slot_id.partition(REPLICA_MARK)[0]


def facts(device: RawDevice, resource: str) -> dict[str, str]:
    """Return the values of `{placeholders}` in paths and commands for a raw device as a whole."""
    return {
        "id": device.id,
        "index": str(device.index),
        "name": device.entry,
        "resource": resource,
        "numa": ",".join(str(node) for node in device.numa),
        "memory.mib": str(device.memory // 2**20),
        "memory.bytes": str(device.memory),
        "path": device.paths[0] if device.paths else "",
        **{f"attributes.{key}": value for key, value in device.attributes.items()},
    }


_BUSES = 16  # of a domain that have a device
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def bus_id(raw: RawDevice, number: int) -> str:
    """Return the PCI address of the maker's n-th device on the node, such as `0000:31:00.0`, or its `pciBusID`."""
    given = raw.attributes.get("pciBusID", "").lower()
    domain, slot = divmod(number, _BUSES)
    return given if _ADDRESS.fullmatch(given) else f"{domain:04x}:{slot * 16 + 1:02x}:00.0"


def root(number: int) -> str:
    """Return the PCI root of the maker's n-th device, as Kubernetes names it: `pci0000:30`."""
    domain, slot = divmod(number, _BUSES)
    return f"pci{domain:04x}:{slot * 16:02x}"


def problem_document(problem: Problem) -> dict[str, str | int | None]:
    """Return a problem as JSON; `file`, `line`, `column` and `path` are null without a place in a file."""
    place = problem.place
    return {
        "severity": problem.severity.value,
        "where": problem.where,
        "file": place.file if place else None,
        "line": (place.line or None) if place else None,
        "column": (place.column or None) if place else None,
        "path": show(problem.path) if place else None,
        "message": problem.message,
        "hint": problem.hint,
    }


def device_document(slot: Slot) -> dict[str, Any]:
    """Return a slot as JSON; `replicaOf` and `profile` are null if they do not apply."""
    device = slot.device
    return {
        "id": slot.id,
        "health": "Healthy" if slot.health.healthy else "Unhealthy",
        "index": device.ordinal,
        "numa": list(device.raw.topology),
        "paths": list(device.raw.paths),
        "replicaOf": None if slot.replica is None else base_id(slot.id),
        "profile": device.profile or None,
    }


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Group values by key; keys and values keep their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
