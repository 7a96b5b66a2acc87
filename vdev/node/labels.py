"""The labels of a Node: those of each vendor, and those of entries. `node_labels` puts them together."""

from collections.abc import Mapping, Sequence

from ..model import names
from ..model.device import Device, RawDevice, grouped
from ..model.entry import Entry
from ..model.problem import Problem, warning
from ..model.spec import Spec
from ..planning.allocation import placeholders
from ..planning.resources import Inventory
from .conditions import named
from .nvidia_labels import nvidia_labels, sanitised
from .vendor_labels import (
    GKE,
    INTEL,
    NVIDIA,
    Machine,
    amd_labels,
    gke_gpu_labels,
    gke_tpu_labels,
    hardware,
    intel_labels,
    vendor_domain,
)


def node_labels(
    spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], inventory: Inventory, machine: Machine
) -> tuple[Mapping[str, str], Sequence[Problem]]:
    """The labels of the node by key, sorted, and problems with them.

    `found` are the raw devices by entry, `inventory` the resources made of them.
    """
    entries = spec.on_node(node)
    devices = grouped((each.domain, each) for each in hardware(spec, node, found, inventory))
    problems: list[Problem] = []
    values: dict[str, str] = {}
    if any(vendor_domain(entry) == NVIDIA for entry in entries):
        gpus = devices.get(NVIDIA, [])
        values |= nvidia_labels(spec, gpus, machine, problems) | gke_gpu_labels(spec, gpus)
    values |= amd_labels(devices.get("amd.com", []))
    values |= intel_labels([each for domain, of in devices.items() if domain.endswith(INTEL) for each in of])
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
    """The labels of the entries that have devices. Of several values of a label, the first one is used."""
    wanted = [entry for entry in entries if entry.labels]
    if not wanted:
        return {}
    devices = _devices(wanted, inventory)
    values: dict[str, str] = {}
    for entry in wanted:
        members = devices[entry.name]
        if all(template.is_constant for template in entry.labels.values()):
            members = members[:1]
        shown = [placeholders(name, device) for name, device in members]
        for key, template in entry.labels.items():
            texts = dict.fromkeys(map(template.render, shown))
            rendered = dict.fromkeys(sanitised(text) if names.value_problem(text) else text for text in texts)
            others = [repr(value) for value in rendered if value != values.setdefault(key, value)]
            if others:
                message = f"the label {key} has several values: {values[key]!r}, which is used, and {named(others)}"
                hint = "a node has one value: use one that is the same for all devices and entries"
                problems.append(warning(f"{entry.where}.labels.{key}", message, hint))
    return values


def _devices(entries: Sequence[Entry], inventory: Inventory) -> dict[str, list[tuple[str, Device]]]:
    """The devices of each entry in order, each with its resource, or the one that it would have."""
    would_be = {entry.name: entry.resource for entry in entries if not entry.listed}
    found: dict[str, list[tuple[str, Device]]] = {entry.name: [] for entry in entries}
    for name, resource in inventory.each_once.items():
        for device in resource.by_device.values():
            entry = device.raw.entry
            if entry in found:
                found[entry].append((would_be.get(entry, name), device))
    return {entry: sorted(each, key=lambda pair: pair[1].sort_key) for entry, each in found.items()}
