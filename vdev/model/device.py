"""Devices, from the hardware that discovery finds to the ids that the kubelet counts.

RawDevice   a physical or virtual device that a discovery source found
Device      a whole raw device or one of its partitions: the unit that a container gets
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
    """The form of the ids of virtual devices: `<name>-<index>`, or UUIDs like those of NVIDIA's driver."""

    NAME = "name"
    NVIDIA = "nvidia"


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node that a container gets.

    `host_path` is the path from the runtime's point of view. `permissions` is a non-empty combination of `r`, `w` and
    `m`. `type` ("c" or "b"), `major` and `minor` are set if the node may be missing on the host (CDI only).
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
"""A range that pydantic can serialize as JSON."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount for a container, or with `tmpfs` an empty tmpfs (CDI only)."""

    host_path: str
    container_path: str
    read_only: bool = False
    tmpfs: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a device, with a short reason if it is unhealthy.

    `injected` is the name of the fault rule that caused it; empty for a real failure.
    """

    healthy: bool = True
    reason: str = ""
    injected: str = ""

    @property
    def is_injected(self) -> bool:
        """Whether a fault rule makes the device unhealthy."""
        return bool(self.injected) and not self.healthy


HEALTHY = Health()
GONE = Health(healthy=False, reason="gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDevice:
    """A device of an entry that its discovery source found."""

    id: str  # from the entry's name and the device's identity (path, serial, port, index), never from order or time
    entry: str
    index: int  # within the entry
    nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    numa: tuple[int, ...] = ()  # NUMA nodes; empty if unknown
    memory: int = 0  # bytes; 0 if unknown
    attributes: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()  # on the host, for display
    # Existing host nodes of a preset's real device, for `passDeviceSpecs`: for the device, for each of its partitions,
    # and for single partitions by GPU instance number.
    driver_nodes: tuple[DeviceNode, ...] = ()
    partition_nodes: tuple[DeviceNode, ...] = ()
    instance_nodes: Mapping[int, tuple[DeviceNode, ...]] = field(default_factory=dict)
    health: Health = HEALTHY  # from discovery, for example if a required part is missing; probes refine it
    numa_hidden: bool = False  # from the kubelet
    # Host nodes by kind and numbers, except nodes that serve many devices. `owns` are nodes of the device itself.
    # `uses` are other nodes that a container gets with it. Several devices may use a node that no device owns.
    owns: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    refused: str = ""  # why no container may get the device (see `planning.refusal`); it is then unhealthy
    tools: str = ""  # the host's directory with the vendor's tools for containers; empty for none

    @property
    def topology(self) -> tuple[int, ...]:
        """The NUMA nodes that the kubelet gets."""
        return () if self.numa_hidden else self.numa


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A whole raw device or one of its partitions: the unit that a container gets."""

    id: str
    raw: RawDevice
    ordinal: str  # NVIDIA's index: "2" for the third device of its resource, "2:0" for its first partition
    profile: str = ""
    slices: SliceRange = range(0)  # the memory slices that a partition occupies; empty for a whole device
    memory: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 0  # of a shared device; 0 if not shared

    @property
    def is_partition(self) -> bool:
        return bool(self.profile)

    @property
    def selector(self) -> str:
        """The name in rules and commands: `a100/2` is the entry's third device, `a100/2:0` its first partition.

        Empty if the device belongs to no entry of the configuration.
        """
        part = f":{self.part}" if self.is_partition else ""
        return f"{self.raw.entry}/{self.raw.index}{part}" if self.raw.entry else ""

    @property
    def part(self) -> int:
        """The number of a partition on its device; 0 for a whole device or a partition that fills its device."""
        return self.sort_key[-1] if ":" in self.ordinal else 0

    @property
    def sort_key(self) -> tuple[int, ...]:
        """Sorts devices by the numbers in their ordinals."""
        return tuple(int(part) for part in self.ordinal.split(":"))


REPLICA_MARK = "::"
UNKNOWN_ENTRY = ""  # the entry of a held device that is not in the configuration


@dataclass(frozen=True, slots=True)
class Slot:
    """An id in the kubelet's list: a device, or one replica of a shared device."""

    id: str
    device: Device
    replica: int | None = None  # the replica's number
    # The device's health, or the reason why only this id is Unhealthy: it was removed while a pod may hold it, or it
    # overlaps a device that a pod still holds.
    health: Health = HEALTHY


def replica_id(device_id: str, number: int) -> str:
    """Return the id of a replica in NVIDIA's form `<id>::<n>`."""
    return f"{device_id}{REPLICA_MARK}{number}"


def base_id(slot_id: str) -> str:
    """Return the device's id, without the replica's number."""
    return slot_id.partition(REPLICA_MARK)[0]


def facts(device: RawDevice, resource: str) -> dict[str, str]:
    """Return the values of `{placeholders}` in paths and commands for a whole raw device."""
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


_BUSES = 16  # buses with a device in each PCI domain
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def bus_id(raw: RawDevice, number: int) -> str:
    """Return the device's `pciBusID`, or a PCI address for the vendor's n-th device, such as `0000:31:00.0`."""
    given = raw.attributes.get("pciBusID", "").lower()
    domain, slot = divmod(number, _BUSES)
    return given if _ADDRESS.fullmatch(given) else f"{domain:04x}:{slot * 16 + 1:02x}:00.0"


def root(number: int) -> str:
    """Return the PCI root of the vendor's n-th device in Kubernetes' form, such as `pci0000:30`."""
    domain, slot = divmod(number, _BUSES)
    return f"pci{domain:04x}:{slot * 16:02x}"


def problem_document(problem: Problem) -> dict[str, str | int | None]:
    """Return a problem as JSON. `file`, `line`, `column` and `path` are null if it has no place in a file."""
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
    """Return a slot as JSON. `replicaOf` and `profile` are null if they do not apply."""
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
    """Group values by key. Keys and values keep their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
