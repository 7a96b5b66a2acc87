"""What discovery found, per entry: a value, so that a new configuration can be tried before it is adopted."""

import asyncio
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ... import discovery
from ...core.inventory.resources import Inventory
from ...core.model.device import RawDevice
from ...core.model.problem import Problem
from ...core.spec import EntrySpec, Spec, VirtualSource
from ...errors import HostError
from ...hostfs import HostRoot
from ..steps import Steps

_Before = tuple[EntrySpec, discovery.Found]


@dataclass(frozen=True)
class Scan:
    """The entries of this node and what was found for each."""

    entries: Mapping[str, EntrySpec] = field(default_factory=dict)
    found: Mapping[str, discovery.Found] = field(default_factory=dict)

    def found_for(self, entry: str) -> _Before | None:
        """The entry of that name, and what was found for it."""
        return (self.entries[entry], self.found[entry]) if entry in self.found and entry in self.entries else None

    @property
    def devices(self) -> Mapping[str, tuple[RawDevice, ...]]:
        """Raw devices by entry."""
        return {name: found.devices for name, found in self.found.items()}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What discovery complains about."""
        return tuple(problem for found in self.found.values() for problem in found.problems)


_Places = tuple[discovery.Found, Mapping[Path, Sequence[str]]]
"""A result, and where this process sees each of the directories that it depends on."""


class Scanner:
    """Runs discovery in threads; an entry that did not change is not scanned again.

    Each entry is a step of its own: while its scan fails, what was found last stays, and its name is in `failed`.
    """

    def __init__(self, host: HostRoot, node: str, device_dir: Path, smi_dir: Path, steps: Steps | None = None) -> None:
        self.failed: frozenset[str] = frozenset()
        self._host = host
        self._node = node
        self._device_dir = str(device_dir)
        self._smi_dir = str(smi_dir)
        self._steps = steps or Steps()
        self._numberings: dict[str, discovery.Numbering] = {}
        self._places: dict[str, _Places] = {}  # what is watched, by entry

    async def scan(self, before: Scan, spec: Spec, *, again: Iterable[str] = ()) -> Scan:
        """Scan the entries that are new or changed since `before`, and those named by `again`; keep the other results.

        The result equals `before` when nothing differs.
        """
        entries = {entry.name: entry for entry in spec.on_node(self._node)}
        again = frozenset(again)
        due = [name for name, entry in entries.items() if before.entries.get(name) != entry or name in again]
        # One after the other: several threads that look would keep each other, and every request, from the interpreter.
        fresh = {name: await self._one(entries[name], before.found_for(name)) for name in due}
        for name in self.failed - entries.keys():
            self._steps.forget(_step(name))
        self.failed = frozenset(name for name in entries if self._steps.failed(_step(name)))
        for name in due:  # links may lead elsewhere, though the result is the same
            if name in self._places:
                self._places[name] = (discovery.Found(), self._places[name][1])
        found = {name: fresh.get(name) or before.found.get(name) or discovery.Found() for name in entries}
        return Scan(entries, found)

    async def _one(self, entry: EntrySpec, before: _Before | None) -> discovery.Found | None:
        """What is found for the entry, of the objects found `before` where it says the same; None where looking fails.

        So what follows can see by identity what changed.
        """
        numbering = self._numberings.setdefault(entry.name, discovery.Numbering())
        found: discovery.Found | None = None

        async def look() -> None:
            nonlocal found
            found = await asyncio.to_thread(self._look, entry, numbering, before)

        await self._steps.take(_step(entry.name), look)
        return found

    def _look(self, entry: EntrySpec, numbering: discovery.Numbering, before: _Before | None) -> discovery.Found:
        found = discovery.discover(
            entry,
            self._host,
            node=self._node,
            numbering=numbering,
            device_dir=self._device_dir,
            smi_dir=self._smi_dir,
            before=before,
        )
        found = found if before is None else found.after(before[1])
        if not isinstance(entry.source, VirtualSource):
            _ = found.by_id  # what went and came will be asked for, and is known here
        return found

    def start_over(self) -> None:
        """Forget all indices: what was found was found for a configuration that is not adopted."""
        self._numberings.clear()

    def forget(self, scan: Scan, served: Inventory) -> None:
        """Free the indices of devices that are neither there nor listed to the kubelet any more."""
        known = set[str]().union(
            *(found.by_id for found in scan.found.values()), *(each.raws for each in served.resources.values())
        )
        for numbering in self._numberings.values():
            numbering.retain(known)

    def watched(self, scan: Scan) -> Mapping[Path, frozenset[str]]:
        """Directories whose changes can change a result, with the entries that they concern."""
        watched: dict[Path, set[str]] = {}
        self._places = {name: self._places_of(name, found) for name, found in scan.found.items()}
        for name, (_, places) in self._places.items():
            for place in places:
                watched.setdefault(place, set()).add(name)
        return {directory: frozenset(names) for directory, names in watched.items()}

    def _places_of(self, name: str, found: discovery.Found) -> _Places:
        known = self._places.get(name)
        if known is not None and known[0] is found:
            return known
        places: dict[Path, list[str]] = {}
        for directory in found.watch:
            places.setdefault(_place(self._host, directory), []).append(directory)
        return found, places

    def concerned(self, changed: Mapping[Path, Collection[str]]) -> frozenset[str]:
        """The entries that changes of watched directories concern; each comes with the names that changed, or none."""
        return frozenset(
            name
            for name, (found, places) in self._places.items()
            for place in places.keys() & changed.keys()
            if any(found.concerns(directory, changed[place]) for directory in places[place])
        )


def _place(host: HostRoot, directory: str) -> Path:
    """Where this process sees the directory; for one behind a loop of links, the nearest above that can be resolved."""
    try:
        return host.path(directory)
    except HostError:
        return _place(host, posixpath.dirname(directory))


def _step(entry: str) -> str:
    return f"looking for the devices of {entry!r}"
