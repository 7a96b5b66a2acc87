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
from ...core.spec import EntrySpec, Spec
from ...errors import HostError
from ...hostfs import HostRoot
from ..steps import Steps

_Looked = tuple[discovery.Found, frozenset[Path]]


@dataclass(frozen=True)
class Scan:
    """The entries of this node, what was found for each, and the directories whose changes can change that.

    While looking for an entry fails, what was found for it before stays.
    """

    entries: Mapping[str, EntrySpec] = field(default_factory=dict)
    found: Mapping[str, discovery.Found] = field(default_factory=dict)
    directories: Mapping[str, frozenset[Path]] = field(default_factory=dict)  # as this process sees them

    @property
    def size(self) -> int:
        return sum(len(found.devices) for found in self.found.values())

    @property
    def devices(self) -> Mapping[str, tuple[RawDevice, ...]]:
        return {name: found.devices for name, found in self.found.items()}

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for found in self.found.values() for problem in found.problems)

    @property
    def watched(self) -> frozenset[Path]:
        """The directories of all entries."""
        return frozenset().union(*self.directories.values())

    def concerned(self, changed: Collection[Path]) -> frozenset[str]:
        """The entries that changes in these directories concern."""
        return frozenset(name for name, own in self.directories.items() if not own.isdisjoint(changed))


class Scanner:
    """Runs discovery in threads.

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

    async def scan(self, before: Scan, spec: Spec, *, only: Iterable[str] | None = None) -> Scan:
        """Look for the devices of all entries; with `only`, of those alone, and keep the other results."""
        entries = {entry.name: entry for entry in spec.on_node(self._node)}
        due = entries if only is None else {name: entries[name] for name in only if name in entries}
        fresh = await self._fresh(due)
        for name in self.failed - entries.keys():
            self._steps.forget(_step(name))
        self.failed = frozenset(name for name in entries if self._steps.failed(_step(name)))
        nothing = discovery.Found()
        known = {name: (found, before.directories[name]) for name, found in before.found.items()} | fresh
        looked = {name: known.get(name, (nothing, frozenset[Path]())) for name in entries}
        return Scan(
            entries,
            {name: found for name, (found, _) in looked.items()},
            {name: directories for name, (_, directories) in looked.items()},
        )

    async def _fresh(self, entries: Mapping[str, EntrySpec]) -> dict[str, _Looked]:
        """What is found for each of them, besides those for which looking fails, or failed lately.

        All are looked for in one thread: several would keep each other, and every request, from the interpreter.
        """
        asked = [
            (entry, self._numberings.setdefault(name, discovery.Numbering()))
            for name, entry in entries.items()
            if not self._steps.pause(_step(name))
        ]
        if not asked:
            return {}
        looked = await asyncio.to_thread(self._attempts, asked)
        for name, attempt in looked.items():
            self._steps.do(_step(name), functools.partial(_raise, attempt))
        return {name: each for name, each in looked.items() if not isinstance(each, Exception)}

    def _attempts(self, asked: Sequence[tuple[EntrySpec, discovery.Numbering]]) -> Mapping[str, _Looked | Exception]:
        attempts: dict[str, _Looked | Exception] = {}
        for entry, numbering in asked:
            try:
                found = discovery.discover(
                    entry,
                    self._host,
                    node=self._node,
                    numbering=numbering,
                    device_dir=self._device_dir,
                    smi_dir=self._smi_dir,
                )
                attempts[entry.name] = found, frozenset(_place(self._host, directory) for directory in found.watch)
            except Exception as failed:
                attempts[entry.name] = failed
        return attempts

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


def _raise(attempt: object) -> None:
    if isinstance(attempt, Exception):
        raise attempt


def _place(host: HostRoot, directory: str) -> Path:
    """Where this process sees the directory; for one behind a loop of links, the nearest above that can be resolved."""
    try:
        return host.path(directory)
    except HostError:
        return _place(host, posixpath.dirname(directory))


def _step(entry: str) -> str:
    return f"looking for the devices of {entry!r}"
