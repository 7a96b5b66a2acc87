"""The devices that discovery finds.

A `Scan` is a value, so a new configuration can be tried before it is adopted.
"""

import asyncio
import contextlib
import functools
from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from .. import discovery
from ..discovery.health_monitor import Target
from ..errors import HostError
from ..model.device import RawDevice
from ..model.entry import Entry
from ..model.problem import Problem
from ..model.spec import Spec
from ..planning.resources import Inventory
from .options import Options
from .retry import Retrier


@dataclass(frozen=True)
class Scan:
    """The entries of this node, the devices found for each, and the directories whose changes matter to each.

    While a search fails, the devices that were found before stay.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    found: Mapping[str, discovery.Found] = field(default_factory=dict)
    directories: Mapping[str, Set[Path]] = field(default_factory=dict)  # as this process sees them

    @property
    def devices(self) -> Mapping[str, tuple[RawDevice, ...]]:
        return {name: each.devices for name, each in self.found.items()}

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for each in self.found.values() for problem in each.problems)

    def targets(self, left_out: Collection[str]) -> Mapping[str, Target]:
        """The devices to probe, by id, without those left out."""
        found = {}
        for name, entry in self.entries.items():
            if (policy := entry.health) is not None:
                for raw in self.devices[name]:
                    if raw.id not in left_out:
                        found[raw.id] = Target(policy, raw, entry.resource_of(raw))
        return found


class Scanner:
    """Runs discovery in threads. An entry that fails is in `failed`, and is tried again; others are not affected."""

    def __init__(self, options: Options, retrier: Retrier) -> None:
        self.failed: frozenset[str] = frozenset()
        self._options = options
        self._retrier = retrier
        self._numberings: defaultdict[str, discovery.Numbering] = defaultdict(discovery.Numbering)  # by entry

    async def scan(self, before: Scan, spec: Spec, *, only: Collection[str] | None = None) -> Scan:
        """Look for the devices of all entries; with `only`, of those alone, and keep the other results."""
        entries = {entry.name: entry for entry in spec.on_node(self._options.node_name)}
        found: dict[str, discovery.Found] = {}
        for name, entry in entries.items():
            found[name] = before.found.get(name) or discovery.Found()
            if only is None or name in only:
                await self._retrier.run(_step(name), functools.partial(self._look, entry, found))
        for name in self.failed - entries.keys():
            self._retrier.forget(_step(name))
        self.failed = frozenset(name for name in entries if _step(name) in self._retrier.failing)
        return Scan(entries, found, await asyncio.to_thread(self._directories, found))

    async def _look(self, entry: Entry, found: dict[str, discovery.Found]) -> None:
        options = self._options
        found[entry.name] = await asyncio.to_thread(
            discovery.discover,
            entry,
            options.host,
            node=options.node_name,
            numbering=self._numberings[entry.name],
            device_dir=str(options.device_dir),
            smi_dir=str(options.smi_dir),
        )

    def _directories(self, found: Mapping[str, discovery.Found]) -> dict[str, set[Path]]:
        places: dict[str, set[Path]] = {name: set() for name in found}
        for name, each in found.items():
            for directory in each.watch:
                with contextlib.suppress(HostError):  # behind a loop of links; it is looked at regularly
                    places[name].add(self._options.host.path(directory))
        return places

    def forget(self, scan: Scan, advertised: Inventory) -> None:
        """Free the indices of devices that are neither found nor listed any more."""
        known = advertised.raws.union(*(found.by_id for found in scan.found.values()))
        for numbering in self._numberings.values():
            numbering.retain(known)


def _step(entry: str) -> str:
    return f"looking for the devices of {entry!r}"
