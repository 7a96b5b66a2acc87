"""A device at one moment as a tool shows it, and the form of the files that tools read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..model.device import Device
from ..model.telemetry import PhysicsModel, SmiTool
from .simulation import SensorReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A device as its maker's tool shows it.

    `whole` are the sensors of the device that it is or belongs to, `part` those of the partition. `minor` counts the
    devices of the maker on the node, of which there are `count`. `lost`: it cannot be reached any more. `holders` is
    how many containers have it. `peers` are the numbers of links to others, by device id. `slices` are the memory
    slices of the whole device, 0 where it cannot be cut. `wall` is the time, in seconds since the epoch.
    """

    device: Device
    tool: SmiTool = SmiTool.NVIDIA
    physics: PhysicsModel
    whole: SensorReading
    part: SensorReading | None = None
    minor: int = 0
    count: int = 1
    lost: bool = False
    holders: int = 0
    peers: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0
    wall: float = 0.0

    @property
    def attributes(self) -> Mapping[str, str]:
        """What the file or the preset says of the device as a whole."""
        return self.device.raw.attributes

    @property
    def title(self) -> str:
        """The name of its model."""
        return self.attributes.get("model") or self.attributes.get("product") or self.device.raw.entry

    @property
    def own(self) -> SensorReading:
        """The sensors of what the container has."""
        return self.part or self.whole

    @property
    def process_mib(self) -> int:
        """The memory that the program of one container has, in MiB."""
        return self.own.memory_used_mib // self.holders if self.holders else 0

    @property
    def written(self) -> datetime:
        return datetime.fromtimestamp(self.wall, UTC)


def assignments(values: Mapping[str, object]) -> str:
    """The values as shell assignments, one a line, whatever they hold."""
    return "".join(f"{key}={quoted(str(value))}\n" for key, value in values.items())


def quoted(text: str) -> str:
    """The text as one word of a shell; control characters, which no line has, become blanks."""
    plain = text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
    return "'" + plain.replace("'", "'\\''") + "'"


def escaped(text: str) -> str:
    """The text on one line, as `printf %b` understands it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
