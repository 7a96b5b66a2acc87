"""The labels of a Node: those of each maker, and those of entries. `node_labels` puts them together."""

from collections.abc import Mapping, Sequence

from ..model import names
from ..model.device import Device, RawDevice, grouped
from ..model.entry import Entry
from ..model.problem import Problem, warning
from ..model.spec import Spec
from ..planning.allocation import placeholders
from ..planning.resources import Inventory
from .conditions import named
from .maker_labels import (
    GKE,
    INTEL,
    NVIDIA,
    Machine,
    amd_labels,
    gke_gpu_labels,
    gke_tpu_labels,
    hardware,
    intel_labels,
    maker,
)
from .nvidia_labels import nvidia_labels, sanitised


def node_labels(
    spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], inventory: Inventory, machine: Machine
) -> tuple[Mapping[str, str], Sequence[Problem]]:
    """The labels of the node by key, sorted, and problems with them.

    `found` are the raw devices by entry, `inventory` the resources made of them.
    """
    entries = spec.on_node(node)
    devices = grouped((each.maker, each) for each in hardware(spec, node, found, inventory))
    problems: list[Problem] = []
    values: dict[str, str] = {}
    if any(maker(entry) == NVIDIA for entry in entries):
        gpus = devices.get(NVIDIA, [])
        values |= nvidia_labels(spec, gpus, machine, problems) | gke_gpu_labels(spec, gpus)
    values |= amd_labels(devices.get("amd.com", []))
    values |= intel_labels([each for domain in INTEL for each in devices.get(domain, [])])
    values |= gke_tpu_labels(devices.get(GKE, []))
    values |= _entry_labels(entries, inventory, problems)
    places = {key: entry.where for entry in reversed(entries) for key in entry.labels}
    for key, value in sorted(values.items()):
        if wrong := names.key_problem(key) or names.value_problem(value):
            hint = "give the node this label under the entry's labels, or change the attribute that it is made of"
            problems.append(warning(places.get(key, ""), f"the label {key} is left out: {wrong}", hint))
            del values[key]
    return dict(sorted(values.items())), tuple(dict.fromkeys(problems))


def _entry_labels(entries: Sequence[Entry], inventory: Inventory, problems: list[Problem]) -> dict[str, str]:
    """The labels of the entries that have devices; problems are warnings if labels contradict each other."""
    wanted = [entry for entry in entries if entry.labels]
    if not wanted:
        return {}
    devices = _devices(wanted, inventory)
    given: dict[str, tuple[Entry, str]] = {}
    for entry in wanted:
        for key, value in _of_entry(entry, devices[entry.name], problems).items():
            first, used = given.setdefault(key, (entry, value))
            if used != value:
                message = (
                    f"the entries {first.name!r} and {entry.name!r} want different values for the label {key}: "
                    f"{used!r}, which is used, and {value!r}"
                )
                problems.append(
                    warning(f"{entry.where}.labels.{key}", message, "let them agree, or give one another label")
                )
    return {key: value for key, (_, value) in given.items()}


def _devices(entries: Sequence[Entry], inventory: Inventory) -> dict[str, list[tuple[str, Device]]]:
    """The devices of each entry in order, each with its resource, or the one that it would have."""
    would_be = {entry.name: entry.resource for entry in entries if not entry.listed}
    found: dict[str, dict[str, tuple[str, Device]]] = {entry.name: {} for entry in entries}
    for name, resource in inventory.each_once.items():
        for slot in resource.slots:
            entry = slot.device.raw.entry
            if entry in found:
                found[entry].setdefault(slot.device.id, (would_be.get(entry, name), slot.device))
    return {entry: sorted(each.values(), key=lambda pair: pair[1].sort_key) for entry, each in found.items()}


def _of_entry(entry: Entry, devices: Sequence[tuple[str, Device]], problems: list[Problem]) -> dict[str, str]:
    if not devices:
        return {}
    constant = all(template.is_constant for template in entry.labels.values())
    shown = [placeholders(name, device) for name, device in (devices[:1] if constant else devices)]
    values: dict[str, str] = {}
    for key, template in entry.labels.items():
        rendered = dict.fromkeys(template.render(each) for each in shown)
        used, *others = rendered
        if others:
            message = (
                f"the devices of {entry.name!r} want different values for the label {key}: {used!r}, which is used, "
                f"and {named([*map(repr, others)])}"
            )
            hint = "a node has one value: use placeholders that are the same for all of them"
            problems.append(warning(f"{entry.where}.labels.{key}", message, hint))
        values[key] = used if not names.value_problem(used) else sanitised(used)
    return values
