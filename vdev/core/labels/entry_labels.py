"""The labels that entries give the node: templates, rendered over the devices of the entry, which should agree."""

from collections.abc import Iterable, Sequence

from ..allocation.device_edits import placeholders
from ..inventory.resources import Inventory
from ..model.device import Device
from ..model.problem import Problem, warning
from ..model.syntax import label_syntax
from ..spec import EntrySpec
from .nvidia import sanitised


def labels(entries: Iterable[EntrySpec], inventory: Inventory) -> tuple[dict[str, str], list[Problem]]:
    """The labels of the entries whose devices are there, and where they contradict themselves or each other."""
    wanted = [entry for entry in entries if entry.labels]
    if not wanted:
        return {}, []
    devices = _devices(wanted, inventory)
    given: dict[str, tuple[EntrySpec, str]] = {}
    problems: list[Problem] = []
    for entry in wanted:
        for key, value in _of_entry(entry, devices[entry.name], problems).items():
            first, used = given.setdefault(key, (entry, value))
            if used != value:
                message = (
                    f"the entries {first.name!r} and {entry.name!r} want different values for the label {key}: "
                    f"{used!r}, which is used, and {value!r}"
                )
                problems.append(warning(_where(entry, key), message, "let them agree, or give one another label"))
    return {key: value for key, (_, value) in given.items()}, problems


def _devices(entries: Sequence[EntrySpec], inventory: Inventory) -> dict[str, list[tuple[str, Device]]]:
    """Each entry's devices in order, with the resource that each is listed under, or would be."""
    would_be = {entry.name: entry.resource for entry in entries if not entry.listed}
    found: dict[str, dict[str, tuple[str, Device]]] = {entry.name: {} for entry in entries}
    for name, resource in inventory.each_once.items():
        for slot in resource.slots:
            entry = slot.device.raw.entry
            if entry in found:
                found[entry].setdefault(slot.device.id, (would_be.get(entry, name), slot.device))
    return {entry: sorted(each.values(), key=lambda pair: pair[1].sort_key) for entry, each in found.items()}


def _of_entry(entry: EntrySpec, devices: Sequence[tuple[str, Device]], problems: list[Problem]) -> dict[str, str]:
    if not devices:
        return {}
    constant = all(template.is_constant for _, template in entry.labels)
    shown = [placeholders(name, device) for name, device in (devices[:1] if constant else devices)]
    values: dict[str, str] = {}
    for key, template in entry.labels:
        told = dict.fromkeys(template.render(each) for each in shown)
        used, *others = told
        if others:
            message = (
                f"the devices of {entry.name!r} want different values for the label {key}: {used!r}, which is used, "
                f"and {_listed(others)}"
            )
            hint = "a node has one value: use placeholders that are the same for all of them"
            problems.append(warning(_where(entry, key), message, hint))
        values[key] = used if not label_syntax.value_problem(used) else sanitised(used)
    return values


_SHOWN = 3


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(map(repr, texts[:_SHOWN])) + more


def _where(entry: EntrySpec, key: str) -> str:
    return f"{entry.where}.labels.{key}"
