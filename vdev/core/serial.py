"""The other end of a serial line: what it answers to what comes in; `agent.outputs.virtual` moves the bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from .model.virtual_node import LineEnd

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
