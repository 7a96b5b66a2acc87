"""Attributes: values with their types, the standard ones, and those that the file gives."""

import functools
import re
from collections.abc import Iterator, Mapping

from ...allocation.device_edits import placeholders
from ...model.device import Device
from ...model.dra import Attribute, AttributeKind
from ...model.problem import Problem, warning
from ...model.syntax import slice_syntax
from ...model.syntax.template import Template
from ...spec import EntrySpec

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCI_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")

Attributes = dict[str, Attribute]
LeftOut = dict[str, list[tuple[str, str]]]
"""By attribute of an entry the devices that are without it, and why."""


@functools.lru_cache(maxsize=256)
def string(text: str) -> Attribute:
    """A string, cut to the length that a ResourceSlice takes."""
    return Attribute(AttributeKind.STRING, text.encode()[: slice_syntax.MAX_STRING].decode(errors="ignore"))


@functools.lru_cache(maxsize=256)
def number(value: int) -> Attribute:
    return Attribute(AttributeKind.INT, value)


@functools.lru_cache(maxsize=256)
def version(text: str, fallback: str) -> Attribute:
    """A version made of what a maker calls one: `580.95.05` is 580.95.5, and `8.0` is 8.0.0."""
    parts = text.removeprefix("v").split(".")
    plain = all(part.isascii() and part.isdigit() for part in parts) and 1 <= len(parts) <= 3
    said = ".".join(str(int(part)) for part in (*parts, "0", "0")[:3]) if plain else text
    return Attribute(AttributeKind.VERSION, fallback if slice_syntax.version_problem(said) else said)


def of_text(text: str) -> Attribute:
    """The value of a device's own attribute, which is a text: what looks like a number, or is true or false, is one."""
    if _WHOLE.fullmatch(text):
        return number(int(text))
    if text in ("true", "false"):
        return Attribute(AttributeKind.BOOL, text == "true")
    return string(text)


def standard(device: Device) -> Iterator[tuple[str, Attribute]]:
    """Where the device is, as far as that is known."""
    raw = device.raw
    address = raw.attributes.get("pciBusID", "").lower()
    if _PCI_ADDRESS.fullmatch(address):
        yield PCI_BUS_ID, string(address)
    root = raw.attributes.get("pcieRoot", "").lower()
    if _PCI_ROOT.fullmatch(root):
        yield PCIE_ROOT, string(root)
    if len(raw.numa) == 1:
        yield NUMA_NODE, number(raw.numa[0])


def given(entry: EntrySpec, device: Device, driver: str, left_out: LeftOut) -> Iterator[tuple[str, Attribute]]:
    """The attributes that the file gives the device, which win over its own."""
    shown: Mapping[str, str] | None = None
    for name, value in entry.dra.attributes if entry.dra else ():
        key = name.removeprefix(f"{driver}/")
        if not isinstance(value, Template):
            yield key, value
            continue
        shown = placeholders(entry.resource, device) if shown is None else shown
        text = value.render(shown)
        if problem := slice_syntax.string_problem(text):
            left_out.setdefault(name, []).append((device.selector or device.id, problem))
        else:
            yield key, Attribute(AttributeKind.STRING, text)


def problems_of(entry: EntrySpec, left_out: LeftOut) -> Iterator[Problem]:
    """One for each attribute, however many devices are without it."""
    for name, devices in left_out.items():
        first, problem = devices[0]
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        where = f"{entry.where}.dra.attributes.{name}"
        yield warning(where, f"the attribute {name} of {first}{more} is left out: {problem}")
