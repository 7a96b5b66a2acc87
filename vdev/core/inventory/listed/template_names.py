"""Entries whose resource has placeholders: a resource for each name that their devices make of it.

An entry is then treated as if it were several, one per name. Pure; the first place where a name is known is here,
because only discovery knows what a placeholder stands for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...grouping import grouped
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


def by_name(entries: Sequence[EntrySpec], found: Mapping[str, Sequence[RawDevice]]) -> Parts:
    """The entries in order, those with placeholders split. A device whose name no kubelet takes is left out."""
    result = Parts()
    for entry in entries:
        raws = found.get(entry.name, ())
        if entry.template is None:
            result.parts.append(Part(entry, raws))
            continue
        named = grouped((entry.resource_of(raw), raw) for raw in raws)
        wrong = {name: why for name in named if (why := resource_name_problem(name))}
        result.problems += _problems(entry, named, wrong)
        for name, members in named.items():
            if name not in wrong:
                part = Part(replace(entry, resource=name, template=None), members)
                result.parts.append(part)
                result.written.setdefault(name, set()).add(entry.resource)
                result.of_device |= {raw.id: part.entry for raw in members}
    return result


def _problems(
    entry: EntrySpec, named: Mapping[str, Sequence[RawDevice]], wrong: Mapping[str, str]
) -> Iterator[Problem]:
    for name, why in wrong.items():
        message = f"{named[name][0].id} has no resource: {entry.resource} would be {name!r} for it, and {why}"
        yield error(entry.where, message)
