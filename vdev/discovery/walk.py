"""Walking the host's directories after a path pattern."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..core import pattern
from ..core.pattern import Pattern
from ..errors import HostError
from ..hostfs import HostRoot
from .found import Problems
from .members import is_usable


@dataclass(slots=True)
class Walk:
    """Walks the host; `watched` gathers the directories whose entries decided what was found."""

    host: HostRoot
    problems: Problems
    watched: set[str] = field(default_factory=set)

    def paths(self, wanted: Pattern) -> list[str]:
        """The existing paths that match, links at the end not yet followed, in natural order.

        Linked directories are entered where the pattern names them, not by `**`, which could not end otherwise.
        """
        found = ["/"]
        last = len(wanted.components) - 1
        for place, component in enumerate(wanted.components):
            found = [path for directory in found for path in self._step(directory, component, is_last=place == last)]
        return sorted(dict.fromkeys(found), key=pattern.natural_key)

    def _step(self, directory: str, component: str, *, is_last: bool) -> Iterator[str]:
        if component == pattern.RECURSIVE:
            yield from self._below(directory, with_files=is_last)
        elif pattern.has_wildcard(component):
            fits = pattern.component_regex(component).fullmatch
            yield from (posixpath.join(directory, name) for name, _ in self._entries(directory) if fits(name))
        elif not is_last:
            yield posixpath.join(directory, component)
        else:
            self.watched.add(directory)
            path = posixpath.join(directory, component)
            if self.host.is_present(path):
                yield path

    def _below(self, directory: str, *, with_files: bool) -> Iterator[str]:
        """All directories from here down, this one included; with files, all that is below and this one not."""
        pending = [directory]
        if not with_files:
            yield directory
        while pending:
            here = pending.pop()
            for name, is_directory in self._entries(here):
                if name.startswith("."):
                    continue
                path = posixpath.join(here, name)
                if is_directory:
                    pending.append(path)
                if is_directory or with_files:
                    yield path

    def _entries(self, directory: str) -> list[tuple[str, bool]]:
        self.watched.add(directory)
        try:
            entries = list(self.host.entries(directory))
        except HostError as broken:
            self.problems.warn(directory, "is left out", str(broken))
            return []
        usable = [each for each in entries if is_usable(each[0])]
        if len(usable) < len(entries):
            for name, _ in entries:
                if not is_usable(name):
                    path = posixpath.join(directory, name)
                    self.problems.warn(repr(path), "is left out: its name has control characters or is not UTF-8")
        return usable
