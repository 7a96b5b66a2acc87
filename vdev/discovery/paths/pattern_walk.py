"""Walking the host's directories to find what a path pattern matches."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from ...core.model.syntax import path_pattern
from ...core.model.syntax.path_pattern import PathPattern
from ...errors import HostError
from ...hostfs import HostRoot
from ..found import Problems, is_usable

MAX_LOOKS = 200_000  # directory entries that one scan looks at: a second or two; the whole of /dev has some hundreds
MAX_MATCHES = 50_000  # of one scan; the kubelet's longest list of devices holds hardly more
_OPENING = 10  # what listing a directory, or looking for one name, costs in entries of a list


class _TooMany(Exception):  # ends a walk, and is no error of the program
    pass


@dataclass(slots=True)
class Walk:
    """Walks the host; `watched` collects the directories whose entries decided what was found.

    A scan is bounded, so that a pattern for the whole machine delays neither reloads nor the shutdown.
    """

    host: HostRoot
    problems: Problems
    watched: set[str] = field(default_factory=set)
    looks_left: int = MAX_LOOKS
    matches_left: int = MAX_MATCHES

    def paths(self, wanted: PathPattern) -> list[str] | None:
        """The existing paths that match, links at the end not yet followed, in natural order.

        Linked directories are entered where the pattern names them, but not by `**`, which might never end. None, and a
        problem, for a pattern that asks for too much.
        """
        before = set(self.watched)
        hint = "write more of the path out, with fewer wildcards"
        try:
            found = self._walk(wanted)
        except _TooMany:
            self.watched = before | {wanted.directory}
            message = f"is given up: it would have to look at more than {MAX_LOOKS} directory entries"
            self.problems.error(f"glob {wanted.text}", message, hint)
            return None
        self.matches_left -= len(found)
        if self.matches_left < 0:
            self.problems.error(f"glob {wanted.text}", f"is given up: more than {MAX_MATCHES} matches", hint)
            return None
        return sorted(found, key=path_pattern.natural_key)

    def _walk(self, wanted: PathPattern) -> list[str]:
        found = [wanted.directory]
        last = len(wanted.below) - 1
        for place, component in enumerate(wanted.below):
            step = (path for directory in found for path in self._step(directory, component, is_last=place == last))
            found = list(dict.fromkeys(step))
        return found

    def _look(self, cost: int) -> None:
        self.looks_left -= cost
        if self.looks_left < 0:
            raise _TooMany

    def _step(self, directory: str, component: str, *, is_last: bool) -> Iterator[str]:
        if component == path_pattern.RECURSIVE:
            yield from self._below(directory, with_files=is_last)
        elif path_pattern.has_wildcard(component):
            names = (name for name, _ in self._entries(directory))
            yield from (
                posixpath.join(directory, name) for name in names if path_pattern.component_matches(component, name)
            )
        elif not is_last:
            yield posixpath.join(directory, component)
        else:
            self._look(_OPENING)
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
            entries = list(islice(self.host.entries(directory), self.looks_left + 1))
        except HostError as broken:
            self.problems.warn(directory, "is left out", str(broken))
            entries = []
        self._look(_OPENING + len(entries))
        usable = [each for each in entries if is_usable(each[0])]
        if len(usable) < len(entries):
            for name, _ in entries:
                if not is_usable(name):
                    path = posixpath.join(directory, name)
                    self.problems.warn(repr(path), "is left out: its name has control characters or is not UTF-8")
        return usable
