"""The virtual devices of a node, as far as the configuration alone defines them."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from ..model import names
from ..model.device import IdStyle, RawDevice
from ..model.entry import Entry
from ..model.virtual import VirtualDevices
from ..model.virtual_node import LineEnd

_NAMESPACE = uuid.UUID("0d3a1c52-6f0e-5b1c-9a40-3f6de1c7b2a8")  # of ids made here; must never change


def devices(entry: Entry, source: VirtualDevices, node: str) -> list[RawDevice]:
    """The devices of an entry on the node of that name, in the order of their index."""
    ids = [_id(entry, source, index, node) for index in range(source.count)]
    return [
        RawDevice(
            id=each,
            entry=entry.name,
            index=index,
            memory=source.memory,
            numa=source.numa[index : index + 1] if len(source.numa) > 1 else source.numa,
            attributes=source.attributes,
            numa_hidden=entry.exclude_topology,
        )
        for index, each in enumerate(ids)
    ]


def _id(entry: Entry, source: VirtualDevices, index: int, node: str) -> str:
    """The one that is given; else `<name>-<index>`, or as NVIDIA's driver does, a UUID that no other node has."""
    if source.ids:
        return source.ids[index]
    if source.id_style is IdStyle.NVIDIA:
        return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{entry.name}/{index}')}"
    return names.device_id(entry.name, str(index), fingerprint=16)  # long, since there may be ten thousand


MAX_LINE = 4096  # bytes of an unfinished line; what is longer cannot be in a script
_END = b"\r\n"


@dataclass(slots=True)
class Dialogue:
    """One line's other end. `answers` maps a line, without its end, to the answer; None for a line without one."""

    end: LineEnd
    answers: Mapping[str, str] = field(default_factory=dict)
    otherwise: str | None = None
    unfinished: bytes = b""  # what was heard of a line without its end

    def hear(self, data: bytes) -> bytes:
        """What to send back for these bytes. A line ends with CR, LF or both; an empty one has no answer."""
        match self.end:
            case LineEnd.ECHO:
                return data
            case LineEnd.SILENCE:
                return b""
            case LineEnd.SCRIPT:
                *lines, rest = (self.unfinished + data).replace(b"\r", b"\n").split(b"\n")
                self.unfinished = rest[-MAX_LINE:]
                return b"".join(self._answer(line) for line in lines)
            case _:
                assert_never(self.end)

    def _answer(self, line: bytes) -> bytes:
        heard = line.decode(errors="replace").strip()
        answer = self.answers.get(heard, self.otherwise) if heard else None
        return b"" if answer is None else answer.encode() + _END
