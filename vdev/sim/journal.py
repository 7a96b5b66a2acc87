"""The journal of an embedded kubelet: entries, findings, Warning events on pods, and counters.

It survives restarts of the kubelet and notifies listeners.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .lint import Finding

_KEPT_ENTRIES = 10_000
_INDENT = 9  # the column of the text, after the subject


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded event. The documentation lists all events with their fields."""

    event: str
    text: str  # for people; empty if another entry has the text
    fields: Mapping[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        return {"event": self.event, **self.fields}


@dataclass(frozen=True, slots=True)
class Event:
    """A Warning event on a pod, as `kubectl describe` shows it."""

    pod: str
    reason: str
    message: str


@dataclass(slots=True)
class Metrics:
    registrations: Counter[str] = field(default_factory=Counter)  # device_plugin_registration_total{resource_name}


class Journal:
    """The journal of one embedded kubelet. It lasts over restarts."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=_KEPT_ENTRIES)
        self.findings: list[Finding] = []
        self.events: list[Event] = []
        self.metrics = Metrics()
        self._listeners: list[Callable[[Entry], None]] = []
        self._changed = asyncio.Event()

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Call `listener` with each new entry. It must not block."""
        self._listeners.append(listener)

    def note(self, event: str, about: str, text: str, **fields: Any) -> None:
        """Record an entry and notify listeners. Its text starts with its subject, `about`."""
        lines = f"{about:<{_INDENT}}{text}".replace("\n", "\n" + " " * _INDENT) if text else ""
        entry = Entry(event, lines, fields)
        self.entries.append(entry)
        for listener in self._listeners:
            listener(entry)
        self.changed()

    def find(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding not in self.findings:
                self.findings.append(finding)
                fields = {**asdict(finding), "severity": finding.severity.value}
                self.note("finding", "finding", str(finding), **fields)

    def note_refused(self, path: str, why: str, line: int = 0) -> None:
        """Record a refused manifest. `path` is its file."""
        text = f"{path}{f':{line}' if line else ''} refused: {why}"
        self.note("manifestRefused", "pod", text, path=path, error=why, line=line)

    def note_claim(self, name: str, what: str, devices: Sequence[str] = ()) -> None:
        """Record that a claim was allocated, prepared, unprepared or released. `devices` are `driver/pool/device`."""
        text = f"{name} {what}{': ' if devices else ''}{', '.join(devices)}"
        self.note("claim", "claim", text, claim=name, what=what, devices=list(devices))

    def of(self, event: str) -> list[Entry]:
        """Return the entries with this event name, oldest first."""
        return [each for each in self.entries if each.event == event]

    def history(self, most: int) -> list[str]:
        """Return the texts of the last `most` entries that have a text."""
        return [each.text for each in self.entries if each.text][-most:]

    def changed(self) -> None:
        """Wake all tasks that wait in `next_change`."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def next_change(self, *, at_most: float | None = None) -> None:
        """Wait for the next change, but at most `at_most` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._changed.wait()
