"""USB devices by vendor, product, serial number, port and class. Several USB devices can make up one device."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ..hostfs import HostRoot
from ..model import names
from ..model.device import HEALTHY, RawDevice
from ..model.entry import Entry
from ..model.sources import GroupBy, Usb
from .found import Candidate, Check, Findings, Found, Numbering
from .sysfs_source import NodeFinder, SysTree

_LISTING = "/sys/bus/usb/devices"
_CONDITIONS = frozenset({"vendor", "product", "serial", "port", "class"})


@dataclass(frozen=True, slots=True)
class _Usb:
    """A USB device: its directory in sysfs, and the values that conditions test."""

    directory: str
    values: Mapping[str, str]
    """By condition: vendor, product, serial, port, and the classes of the device and of its interfaces."""


Members = Sequence[tuple[int, _Usb]]
"""The USB devices that make up one device, each with the number of the selector that it matches."""


def discover(entry: Entry, host: HostRoot, *, numbering: Numbering) -> Found:
    """The devices, each named after the match of the first required selector, or else by its number."""
    findings, tree = Findings(entry), SysTree(host)
    findings.watch.add(_LISTING)
    present = [_read(tree, name, directory) for name, directory in tree.members(_LISTING) if ":" not in name]
    findings.candidates += (_nearest(entry, device) for device in present)
    for selector in entry.usb:
        if not selector.optional and not any(_meets(selector, device) for device in present):
            wanted = " ".join(f"{key} {value}" for key, value in _conditions(selector).items())
            findings.warn(f"usb {wanted}", "matches no device on this node")
    groups = _together(entry, present) if entry.group_by is GroupBy.ALL else list(_by_position(entry, present))
    ids = [names.device_id(entry.name, identity) for identity in _identities(entry, groups, numbering)]
    finders = [NodeFinder(entry, selector, host, tree, findings) for selector in entry.usb]

    def device(device_id: str, index: int, members: Members) -> RawDevice:
        parts = [
            finders[place].device(device_id, index, each.directory, _attributes(tree, each)) for place, each in members
        ]
        return _joined(parts)

    return findings.with_devices(map(device, ids, numbering.assign(ids), groups))


def _by_position(entry: Entry, present: Sequence[_Usb]) -> Iterator[Members]:
    """Groups with one USB device per selector, until a required selector has no match left. A device is used once."""
    left = list(present)
    while True:
        members: list[tuple[int, _Usb]] = []
        for place, selector in enumerate(entry.usb):
            hit = next((each for each in left if _meets(selector, each)), None)
            if hit is not None:
                members.append((place, hit))
                left.remove(hit)
            elif not selector.optional:
                return
        if not members:
            return
        yield members


def _together(entry: Entry, present: Sequence[_Usb]) -> list[Members]:
    """One group of all matches; no group if a required selector has no match."""
    members: dict[str, tuple[int, _Usb]] = {}  # by port
    for place, selector in enumerate(entry.usb):
        hits = [each for each in present if _meets(selector, each)]
        if not hits and not selector.optional:
            return []
        for each in hits:
            members.setdefault(each.values["port"], (place, each))
    return [tuple(members.values())] if members else []


def _identities(entry: Entry, groups: Sequence[Members], numbering: Numbering) -> Sequence[str]:
    """The text that each id is made of. It does not depend on optional members."""
    naming = next((place for place, selector in enumerate(entry.usb) if not selector.optional), None)
    if entry.group_by is GroupBy.ALL:
        return ["all" for _ in groups]
    if naming is None:
        return [str(number) for number, _ in enumerate(groups)]
    named = [next(each for place, each in members if place == naming) for members in groups]
    return numbering.identities([(each.values["serial"], each.values["port"]) for each in named])


def _joined(parts: Sequence[RawDevice]) -> RawDevice:
    """One device of several parts. It is healthy if all parts are."""
    owns = tuple(dict.fromkeys(key for part in parts for key in part.owns))
    return replace(
        parts[0],
        nodes=tuple(node for part in parts for node in part.nodes),
        numa=tuple(sorted({node for part in parts for node in part.numa})),
        paths=tuple(dict.fromkeys(path for part in parts for path in part.paths)),
        health=next((part.health for part in parts if not part.health.healthy), HEALTHY),
        owns=owns,
        uses=tuple(dict.fromkeys(key for part in parts for key in part.uses if key not in owns)),
    )


def _read(tree: SysTree, port: str, directory: str) -> _Usb:
    interfaces = tree.children(directory, "usb", bus="usb")
    classes = [tree.text(directory, "bDeviceClass"), *(tree.text(each, "bInterfaceClass") for each in interfaces)]
    values = {
        "vendor": tree.text(directory, "idVendor").lower(),
        "product": tree.text(directory, "idProduct").lower(),
        "serial": tree.text(directory, "serial"),
        "port": port,
        "class": " ".join(dict.fromkeys(each.lower() for each in classes if each)),
    }
    return _Usb(directory, values)


def _meets(source: Usb, device: _Usb) -> bool:
    return all(check.ok for check in _checks(source, device))


def _nearest(entry: Entry, device: _Usb) -> Candidate:
    """The USB device with the conditions of the selector that fits it best."""
    tried = [_checks(selector, device) for selector in entry.usb]
    best = max(tried, key=lambda checks: (all(check.ok for check in checks), sum(check.ok for check in checks)))
    return Candidate(posixpath.join(_LISTING, device.values["port"]), best)


def _checks(source: Usb, device: _Usb) -> tuple[Check, ...]:
    checks = []
    for key, wanted in _conditions(source).items():
        value = device.values[key]
        # Ids are patterns without wildcards.
        ok = wanted in value.split() if key == "class" else bool(value) and fnmatchcase(value, wanted)
        checks.append(Check(f"{key} = {wanted}", value, ok=ok))
    return tuple(checks)


def _conditions(source: Usb) -> dict[str, str]:
    return {key: value for key, value in source.by_key.items() if key in _CONDITIONS and value}


def _attributes(tree: SysTree, device: _Usb) -> dict[str, str]:
    own = {key: value for key, value in device.values.items() if key != "class"}
    manufacturer, product = (tree.text(device.directory, name) for name in ("manufacturer", "product"))
    return {**own, "manufacturerName": manufacturer, "productName": product}
