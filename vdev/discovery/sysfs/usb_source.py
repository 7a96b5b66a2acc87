"""USB devices by vendor, product, serial number, port and class; one device per match, never merged."""

import posixpath
from dataclasses import dataclass

from ...core.model.syntax import names, path_pattern
from ...core.spec import EntrySpec, UsbSource
from ...hostfs import HostRoot
from ..device_nodes import Numa
from ..found import Candidate, Check, Found, Problems
from ..numbering import Numbering
from .sysfs_devices import NodeFinder
from .sysfs_tree import SysTree

_LISTING = "/sys/bus/usb/devices"


@dataclass(frozen=True, slots=True)
class _Usb:
    """A USB device's identity. `classes` are those of the device and of its interfaces."""

    port: str
    directory: str
    vendor: str
    product: str
    serial: str
    classes: tuple[str, ...]


def discover(entry: EntrySpec, source: UsbSource, host: HostRoot, *, numbering: Numbering) -> Found:
    """The USB devices that match, named after their serial number, or their port where that is not unique."""
    problems, tree = Problems(entry), SysTree(host)
    present = [_read(tree, name, directory) for name, directory in tree.members(_LISTING) if ":" not in name]
    candidates = [Candidate(posixpath.join(_LISTING, device.port), _checks(source, device)) for device in present]
    matched = [device for device, candidate in zip(present, candidates, strict=True) if candidate.matched]
    if not matched:
        problems.warn(f"usb {_wanted(source)}", "matches no device on this node")
    identities = numbering.tell_apart([(device.serial, device.port) for device in matched])
    ids = [names.device_id(entry.name, identity) for identity in identities]
    finder = NodeFinder(entry, source, host, tree, Numa(host), {_LISTING})
    devices = tuple(
        finder.device(device_id, index, device.directory, _attributes(tree, device), "usb")
        for device_id, index, device in zip(ids, numbering.assign(ids), matched, strict=True)
    )
    return Found(
        devices=devices,
        problems=problems.all(),
        candidates=tuple(candidates),
        watch=frozenset(finder.watched),
    )


def _read(tree: SysTree, port: str, directory: str) -> _Usb:
    interfaces = tree.children(directory, ("usb",), bus="usb")
    classes = [tree.text(directory, "bDeviceClass"), *(tree.text(each, "bInterfaceClass") for each in interfaces)]
    return _Usb(
        port=port,
        directory=directory,
        vendor=tree.text(directory, "idVendor").lower(),
        product=tree.text(directory, "idProduct").lower(),
        serial=tree.text(directory, "serial"),
        classes=tuple(dict.fromkeys(each.lower() for each in classes if each)),
    )


def _checks(source: UsbSource, device: _Usb) -> tuple[Check, ...]:
    """One check per given condition."""
    wanted_class = f"{int(source.device_class, 16):02x}" if source.device_class else ""
    checks = []
    if source.vendor:
        checks.append(Check(f"vendor = {source.vendor}", device.vendor, ok=device.vendor == source.vendor))
    if source.product:
        checks.append(Check(f"product = {source.product}", device.product, ok=device.product == source.product))
    if source.serial:
        checks.append(Check(f"serial = {source.serial}", device.serial, ok=_fits(device.serial, source.serial)))
    if source.port:
        checks.append(Check(f"port = {source.port}", device.port, ok=_fits(device.port, source.port)))
    if wanted_class:
        checks.append(Check(f"class = {wanted_class}", " ".join(device.classes), ok=wanted_class in device.classes))
    return tuple(checks)


def _fits(value: str, wanted: str) -> bool:
    return bool(value) and path_pattern.component_matches(wanted, value)


def _wanted(source: UsbSource) -> str:
    given = {
        "vendor": source.vendor,
        "product": source.product,
        "serial": source.serial,
        "port": source.port,
        "class": source.device_class,
    }
    return " ".join(f"{key} {value}" for key, value in given.items() if value)


def _attributes(tree: SysTree, device: _Usb) -> dict[str, str]:
    """Facts for templates."""
    return {
        "vendor": device.vendor,
        "product": device.product,
        "serial": device.serial,
        "port": device.port,
        "manufacturerName": tree.text(device.directory, "manufacturer"),
        "productName": tree.text(device.directory, "product"),
    }
