"""Entries whose resource has placeholders: a resource for each name that their devices make of it.

An entry is then treated as if it were several, one per name. Pure; the first place where a name is known is here,
because only discovery knows what a placeholder stands for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_

from ...grouping import grouped
from ...memory import Memory
from ...model.device import RawDevice
from ...model.problem import Problem, error
from ...model.syntax.names import resource_name_problem
from ...spec import EntrySpec


@dataclass(frozen=True, slots=True)
class Part:
    """An entry under one name, with its devices of that name."""

    entry: EntrySpec
    raws: Sequence[RawDevice]


@dataclass(slots=True)
class Parts:
    """All entries, each under every name that it has on this node.

    `written` has what the configuration wrote for a name that was made from it; `of_device` the part's entry for each
    device whose entry has several.
    """

    parts: list[Part] = field(default_factory=list)
    written: dict[str, set[str]] = field(default_factory=dict)
    of_device: dict[str, EntrySpec] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


_Named = tuple[tuple[Part, ...], tuple[Problem, ...]]


def by_name(entries: Sequence[EntrySpec], found: Mapping[str, Sequence[RawDevice]], memory: Memory) -> Parts:
    """The entries in order, those with placeholders split. A device whose name no kubelet takes is left out."""
    result = Parts()
    for entry in entries:
        raws = found.get(entry.name, ())
        if entry.template is None:
            result.parts.append(Part(entry, raws))
            continue
        parts, problems = memory.recall("entry split", entry.name, (entry, raws), partial(_split, entry, raws))
        result.problems += problems
        for part in parts:
            result.parts.append(part)
            result.written.setdefault(part.entry.resource, set()).add(entry.resource)
            result.of_device |= {raw.id: part.entry for raw in part.raws}
    return result


def _split(entry: EntrySpec, raws: Sequence[RawDevice], last: _Named | None) -> _Named:
    before = {part.entry.resource: part for part in last[0]} if last else {}
    named = grouped((entry.resource_of(raw), raw) for raw in raws)
    wrong = {name: why for name in named if (why := resource_name_problem(name))}
    parts = tuple(_part(entry, name, raws, before.get(name)) for name, raws in named.items() if name not in wrong)
    return parts, tuple(_problems(entry, named, wrong))


def _part(entry: EntrySpec, name: str, raws: Sequence[RawDevice], before: Part | None) -> Part:
    """The part; of the same objects as before where nothing about it changed."""
    own = replace(entry, resource=name, template=None)
    kept = before.entry if before and before.entry == own and before.entry.where == own.where else own
    same = before is not None and len(before.raws) == len(raws) and all(map(is_, before.raws, raws))
    return Part(kept, before.raws if before and same else tuple(raws))


def _problems(
    entry: EntrySpec, named: Mapping[str, Sequence[RawDevice]], wrong: Mapping[str, str]
) -> Iterator[Problem]:
    for name, why in wrong.items():
        message = f"{named[name][0].id} has no resource: {entry.resource} would be {name!r} for it, and {why}"
        yield error(entry.where, message)
