"""What discovery found, per entry: a value, so that a new configuration can be tried before it is adopted."""

import asyncio
import functools
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
from ...hostfs.noted_host import NotedHost
from ..steps import Steps

_Before = tuple[EntrySpec, discovery.Found]
_Asked = tuple[EntrySpec, discovery.Numbering, _Before | None]


@dataclass(frozen=True)
class Scan:
    """The entries of this node and what was found for each.

    `looked` are the entries as they were when that was found: while looking for a changed one fails, what was found for
    it as it was before stays.
    """

    entries: Mapping[str, EntrySpec] = field(default_factory=dict)
    found: Mapping[str, discovery.Found] = field(default_factory=dict)
    looked: Mapping[str, EntrySpec] = field(default_factory=dict)

    def found_for(self, entry: str) -> _Before | None:
        """What was found last under that name, and for which entry."""
        return (self.looked[entry], self.found[entry]) if entry in self.looked else None

    @property
    def size(self) -> int:
        return sum(len(found.devices) for found in self.found.values())

    @property
    def devices(self) -> Mapping[str, tuple[RawDevice, ...]]:
        return {name: found.devices for name, found in self.found.items()}

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for found in self.found.values() for problem in found.problems)


@dataclass(frozen=True, slots=True)
class _Looked:
    """A result for an entry, what it follows from, and where this process sees each directory that it depends on."""

    entry: EntrySpec
    found: discovery.Found
    places: Mapping[Path, Sequence[str]]
    host: NotedHost | None = None

    def stands(self, host: HostRoot, entry: EntrySpec, before: _Before | None) -> bool:
        """Whether looking again would find the same: this is what was found last, and the host says what it said."""
        current = before is not None and before[0] is entry is self.entry and before[1] is self.found
        return current and self.host is not None and self.host.says_the_same(host)


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
        self._looked: dict[str, _Looked] = {}  # by entry, as it was looked for last
        self._places: dict[str, _Looked] = {}  # what is watched, by entry

    async def scan(self, before: Scan, spec: Spec, *, again: Iterable[str] = ()) -> Scan:
        """Scan the entries that are new or changed since `before`, and those named by `again`; keep the other results.

        The result equals `before` when nothing differs.
        """
        entries = {entry.name: entry for entry in spec.on_node(self._node)}
        again = frozenset(again)
        due = [name for name, entry in entries.items() if before.entries.get(name) != entry or name in again]
        fresh = await self._fresh({name: entries[name] for name in due}, before)
        for name in self.failed - entries.keys():
            self._steps.forget(_step(name))
        self.failed = frozenset(name for name in entries if self._steps.failed(_step(name)))
        found = {name: fresh.get(name) or before.found.get(name) or discovery.Found() for name in entries}
        looked = {name: entries[name] if name in fresh else before.looked.get(name) for name in entries}
        return Scan(entries, found, {name: entry for name, entry in looked.items() if entry is not None})

    async def _fresh(self, entries: Mapping[str, EntrySpec], before: Scan) -> Mapping[str, discovery.Found]:
        """What is found for each of them, besides those for which looking fails, or failed lately.

        All are looked for in one thread: several would keep each other, and every request, from the interpreter.
        """
        asked = [
            (entry, self._numberings.setdefault(name, discovery.Numbering()), before.found_for(name))
            for name, entry in entries.items()
            if not self._steps.pause(_step(name))
        ]
        if not asked:
            return {}
        looked = await asyncio.to_thread(self._attempts, asked)
        for name, attempt in looked.items():
            self._steps.do(_step(name), functools.partial(self._note, name, attempt))
        return {name: each.found for name, each in looked.items() if not isinstance(each, Exception)}

    def _note(self, name: str, attempt: "_Looked | Exception") -> None:
        if isinstance(attempt, Exception):
            raise attempt
        self._looked[name] = attempt

    def _attempts(self, asked: Sequence[_Asked]) -> "dict[str, _Looked | Exception]":
        host = self._host.at_one_moment()
        return {each[0].name: self._attempt(host, each) for each in asked}

    def _attempt(self, host: HostRoot, asked: _Asked) -> "_Looked | Exception":
        entry, _, before = asked
        try:
            last = self._looked.get(entry.name)
            if last is not None and last.stands(host, entry, before):
                return last
            noted = NotedHost(host)
            found = self._look(noted, *asked)
            return _Looked(entry, found, _resolved(noted, found), noted)
        except Exception as failed:  # noqa: BLE001 - it is raised in the step of the entry
            return failed

    def _look(
        self, host: HostRoot, entry: EntrySpec, numbering: discovery.Numbering, before: _Before | None
    ) -> discovery.Found:
        """What is found for the entry, of the objects found `before` where it says the same.

        So what follows can see by identity what changed.
        """
        found = discovery.discover(
            entry,
            host,
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
        self._looked.clear()

    def forget(self, scan: Scan, served: Inventory) -> None:
        """Free the indices of devices that are neither there nor listed to the kubelet any more."""
        known = set[str]().union(
            *(found.by_id for found in scan.found.values()), *(each.raws for each in served.resources.values())
        )
        for numbering in self._numberings.values():
            numbering.retain(known)

    async def watched(self, scan: Scan) -> frozenset[Path]:
        """Directories whose changes can change a result, from now on those of this scan."""
        places = {name: self._looked.get(name) for name in scan.found}
        unknown = [name for name, known in places.items() if known is None or known.found is not scan.found[name]]
        if unknown:  # it was looked for since, for a configuration that was refused
            self._looked |= await asyncio.to_thread(lambda: {name: self._known(scan, name) for name in unknown})
        self._places = {name: self._looked[name] for name in scan.found}
        self._looked = dict(self._places)
        return frozenset(place for each in self._places.values() for place in each.places)

    def _known(self, scan: Scan, name: str) -> _Looked:
        found = scan.found[name]
        return _Looked(scan.entries[name], found, _resolved(self._host, found))

    def concerned(self, changed: Mapping[Path, Collection[str]]) -> frozenset[str]:
        """The entries that changes of watched directories concern; each comes with the names that changed, or none."""
        return frozenset(
            name
            for name, each in self._places.items()
            for place in each.places.keys() & changed.keys()
            if any(each.found.concerns(directory, changed[place]) for directory in each.places[place])
        )


def _resolved(host: HostRoot, found: discovery.Found) -> Mapping[Path, Sequence[str]]:
    places: dict[Path, list[str]] = {}
    for directory in found.watch:
        places.setdefault(_place(host, directory), []).append(directory)
    return places


def _place(host: HostRoot, directory: str) -> Path:
    """Where this process sees the directory; for one behind a loop of links, the nearest above that can be resolved."""
    try:
        return host.path(directory)
    except HostError:
        return _place(host, posixpath.dirname(directory))


def _step(entry: str) -> str:
    return f"looking for the devices of {entry!r}"
