"""Which matches of several patterns form one device. Pure: matches in, groups out.

By position, the i-th matches form the i-th device. A match serves `limit` devices, so a pattern with m matches covers
m x limit of them; there are as many devices as the longest required pattern has matches, if the others cover them. By
name, what the wildcards stood for must be equal; a pattern with fewer wildcards joins every device whose name begins
alike. Optional members never change how many devices there are; where every pattern is optional, there is a device
while any of its members is there. All together, every match is part of one device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.model.syntax.path_pattern import natural_key
from ...core.spec import GlobPath
from ...hostfs import FileInfo


@dataclass(frozen=True, slots=True)
class Match:
    """A usable match: the path as the pattern found it, what the wildcards stood for, and what stands there."""

    path: str
    captures: tuple[str, ...]
    info: FileInfo

    @property
    def is_link(self) -> bool:
        return self.path != self.info.path


@dataclass(frozen=True, slots=True)
class MatchGroup:
    """The members of one device, one place per pattern; None where an optional or a missing member would stand."""

    key: tuple[str, ...]
    members: tuple[Match | None, ...]

    def missing(self, items: Sequence[GlobPath]) -> list[GlobPath]:
        """The required patterns without a member."""
        return [item for item, member in zip(items, self.members, strict=True) if member is None and not item.optional]

    def identity(self, items: Sequence[GlobPath]) -> tuple[GlobPath, Match] | None:
        """The first required member, which the device is named after; None when every pattern is optional."""
        for item, member in zip(items, self.members, strict=True):
            if not item.optional:
                return None if member is None else (item, member)
        return None


def by_position(items: Sequence[GlobPath], matches: Sequence[Sequence[Match]]) -> list[MatchGroup]:
    required = [(item, found) for item, found in zip(items, matches, strict=True) if not item.optional]
    natural = max((len(found) for found in ([each for _, each in required] or matches)), default=0)
    covered = min((len(found) * item.limit for item, found in required), default=natural)
    groups = []
    for place in range(min(natural, covered)):
        members = tuple(
            found[place % len(found)] if place < len(found) * item.limit else None
            for item, found in zip(items, matches, strict=True)
        )
        groups.append(MatchGroup((str(place),), members))
    return groups


def by_name(items: Sequence[GlobPath], matches: Sequence[Sequence[Match]]) -> list[MatchGroup]:
    leading = [found for item, found in zip(items, matches, strict=True) if not item.optional] or list(matches)
    length = max((len(match.captures) for found in leading for match in found), default=0)
    keys = {match.captures for found in leading for match in found if len(match.captures) == length}
    served: dict[tuple[int, str], int] = {}
    groups = []
    for key in sorted(keys, key=lambda key: [natural_key(part) for part in key]):
        members: list[Match | None] = []
        for place, (item, found) in enumerate(zip(items, matches, strict=True)):
            fitting = (match for match in found if key[: len(match.captures)] == match.captures)
            member = next((match for match in fitting if served.get((place, match.path), 0) < item.limit), None)
            if member is not None:
                served[place, member.path] = served.get((place, member.path), 0) + 1
            members.append(member)
        groups.append(MatchGroup(key, tuple(members)))
    return groups


def together(
    items: Sequence[GlobPath], matches: Sequence[Sequence[Match]]
) -> tuple[tuple[GlobPath, ...], list[MatchGroup]]:
    """One group of all matches, with the pattern of each; none while a required pattern has no match."""
    if not any(matches) or any(not found and not item.optional for item, found in zip(items, matches, strict=True)):
        return tuple(items), []
    pairs = [(item, match) for item, found in zip(items, matches, strict=True) for match in found]
    return tuple(item for item, _ in pairs), [MatchGroup(("all",), tuple(match for _, match in pairs))]
