"""What discovery found, per entry: a value, so that a new configuration can be tried before it is adopted."""

import asyncio
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import discovery
from ..core.device import RawDevice
from ..core.inventory import Inventory
from ..core.problem import Problem
from ..core.spec import EntrySpec, Spec
from ..errors import HostError
from ..hostfs import HostRoot


@dataclass(frozen=True)
class Scan:
    """The entries of this node and what was found for each."""

    entries: Mapping[str, EntrySpec] = field(default_factory=dict)
    found: Mapping[str, discovery.Found] = field(default_factory=dict)

    @property
    def devices(self) -> Mapping[str, tuple[RawDevice, ...]]:
        """Raw devices by entry."""
        return {name: found.devices for name, found in self.found.items()}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What discovery complains about."""
        return tuple(problem for found in self.found.values() for problem in found.problems)


class Scanner:
    """Runs discovery in threads; an entry that did not change is not scanned again."""

    def __init__(self, host: HostRoot, node: str, device_dir: Path) -> None:
        self._host = host
        self._node = node
        self._device_dir = str(device_dir)
        self._numberings: dict[str, discovery.Numbering] = {}

    async def scan(self, before: Scan, spec: Spec, *, again: Iterable[str] = ()) -> Scan:
        """Scan the entries that are new or changed since `before`, and those named by `again`; keep the other results.

        The result equals `before` when nothing differs.
        """
        entries = {entry.name: entry for entry in spec.on_node(self._node)}
        due = [name for name, entry in entries.items() if before.entries.get(name) != entry or name in set(again)]
        results = await asyncio.gather(*(self._one(entries[name]) for name in due))
        fresh = dict(zip(due, results, strict=True))
        found = {name: _same_or_new(before.found.get(name), fresh.get(name)) for name in entries}
        return Scan(entries, found)

    async def _one(self, entry: EntrySpec) -> discovery.Found:
        numbering = self._numberings.setdefault(entry.name, discovery.Numbering())
        return await asyncio.to_thread(
            discovery.discover,
            entry,
            self._host,
            node=self._node,
            numbering=numbering,
            device_dir=self._device_dir,
        )

    def forget(self, scan: Scan, served: Inventory) -> None:
        """Free the indices of devices that are neither there nor listed to the kubelet any more."""
        known = {raw.id for found in scan.found.values() for raw in found.devices}
        known.update(*(resource.by_raw for resource in served.resources.values()))
        for numbering in self._numberings.values():
            numbering.retain(known)

    def watched(self, scan: Scan) -> Mapping[Path, frozenset[str]]:
        """Directories whose changes can change a result, with the entries that they concern."""
        watched: dict[Path, set[str]] = {}
        for name, found in scan.found.items():
            for directory in found.watch:
                watched.setdefault(_place(self._host, directory), set()).add(name)
        return {directory: frozenset(names) for directory, names in watched.items()}


def _place(host: HostRoot, directory: str) -> Path:
    """Where this process sees the directory; for one behind a loop of links, the nearest above that can be resolved."""
    try:
        return host.path(directory)
    except HostError:
        return _place(host, posixpath.dirname(directory))


def _same_or_new(old: discovery.Found | None, new: discovery.Found | None) -> discovery.Found:
    """The old object where the new one says the same, so that what follows can see by identity that nothing changed."""
    if new is None or old == new:
        assert old is not None
        return old
    return new
