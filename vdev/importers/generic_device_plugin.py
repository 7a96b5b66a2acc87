"""squat/generic-device-plugin: its file, its flags, and MicroShift's block with the same keys.

Source: 179b1fe of 2026-04-09, `config.go`, `deviceplugin/path.go` and `usb.go`. Each group becomes an entry. All USB
devices of a group are one device, and a node may be in several devices; the entries have keys for both.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

from .. import config
from ..errors import ConfigError
from .draft import Draft, DraftEntry, Item, listed, mapping
from .go_patterns import NotAPatternError, fixed_part, glob, literal
from .sources import Arguments, Form, ImportOptions, ImportSource

_DOMAIN = "squat.ai"
_MICROSHIFT, _MICROSHIFT_DOMAIN = "genericDevicePlugin", "device.microshift.io"
_DANGEROUS = ("/dev/mem", "/dev/kmem", "/dev/port")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,4})")


def _recognizes(content: Any) -> bool:
    """Whether the content is the file, one of its devices, or the plugin's arguments."""
    if isinstance(content, Arguments):
        return any(word.partition("=")[0] == "--device" for word in content)
    given = mapping(content)
    devices = [given, *listed(given.get("device")), *listed(given.get("devices"))]
    return isinstance(given.get(_MICROSHIFT), dict) or any("groups" in mapping(each) for each in devices)


def _files(found: Sequence[ImportSource]) -> Iterator[tuple[str, Any]]:
    yield "", [source.content for source in found]


def _fill(draft: Draft, contents: list[Any], options: ImportOptions) -> None:
    for content in contents:
        domain, devices = _devices(content, draft)
        for device in devices:
            _device(draft, device, options.domain or domain)


FORM = Form(title="generic-device-plugin", recognizes=_recognizes, files=_files, fill=_fill)


def _devices(content: Any, draft: Draft) -> tuple[str, list[Item]]:
    if isinstance(content, Arguments):
        return _arguments(content, draft)
    if isinstance(content.get(_MICROSHIFT), dict):
        block = Item(draft, content[_MICROSHIFT], _MICROSHIFT)
        if block.text("status") == "Disabled":
            draft.note(block.at("status"), "it is Disabled in MicroShift, which offers none of these devices")
        return block.text("domain") or _MICROSHIFT_DOMAIN, block.items("devices")
    file = Item(draft, content)
    if "groups" in content and "devices" not in content:
        return _DOMAIN, [file]
    file.ignore("listen", "log-level", "plugin-directory")
    return file.text("domain") or _DOMAIN, file.items("device") or file.items("devices")


def _arguments(given: Arguments, draft: Draft) -> tuple[str, list[Item]]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--domain", nargs="?")
    parser.add_argument("--config", nargs="?")
    parser.add_argument("--device", nargs="?", action="append", default=[])
    known, _ = parser.parse_known_args(given)
    if known.config:
        draft.omit("--config", f"the file {known.config} is not in these arguments; import it as well")
    devices: list[Item] = []
    for text in known.device:
        try:
            for device in config.trees(text or "", "--device"):
                devices.append(Item(draft, device, f"--device {len(devices) + 1}"))
        except ConfigError as bad:
            draft.omit("--device", f"is not YAML: {bad}")
    return known.domain or _DOMAIN, devices


def _device(draft: Draft, device: Item, domain: str) -> None:
    name = device.text("name")
    if not name:
        device.omit("the device has no name")
        return
    groups, resource = device.items("groups"), f"{domain}/{name}"
    for number, group in enumerate(groups, 1):
        wanted = draft.entry_name(name if len(groups) == 1 else f"{name}-{number}")
        entry = DraftEntry({"name": wanted, "resource": resource})
        if _group(draft, entry, group):
            _allow_overlap(draft, entry)
            draft.devices.append(entry)
            if (count := group.number("count")) > 1:
                draft.share(resource, count, wanted if len(groups) > 1 else "")


def _group(draft: Draft, entry: DraftEntry, group: Item) -> bool:
    """Add the devices of a group to the entry. Returns whether it has any."""
    paths = group.items("paths")
    # In MicroShift's configurations, an item without values means nothing.
    usb_devices = [*group.items("usb"), *(each for each in group.items("usbs") if any(each.given.values()))]
    if bool(paths) is bool(usb_devices):
        both = "has both paths and usb, which generic-device-plugin refuses"
        group.omit(both if paths else "the group has no paths and no usb")
        return False
    items = [item for path in paths if (item := _path(path))]
    items += (item for each in usb_devices if (item := _usb_device(each)))
    if not items:
        return False
    if paths:
        entry["glob"] = items
        _note_pairs(draft, items, group.where)
        if any(item["path"] in _DANGEROUS for item in items):
            entry["allowDangerous"] = True
    else:
        entry["usb"] = items[0] if len(items) == 1 else [{**each, "optional": True} for each in items]
        entry["groupBy"] = "all"
        entry.comments.append("All matches are one device. Without groupBy, each match is a device.")
    return True


def _path(path: Item) -> dict[str, Any] | None:
    """Return an item of `glob`, or None if the path cannot be converted."""
    written, kind = path.text("path"), path.text("type") or "Device"
    try:
        item: dict[str, Any] = {"path": glob(written)}
    except NotAPatternError as wrong:
        path.omit(f"the pattern {written!r} cannot be read: {wrong}")
        return None
    if kind not in ("Device", "Mount"):
        path.omit(f"type {kind!r} is neither Device nor Mount, so the plugin ignores it")
        return None
    if inside := path.text("mountPath"):
        item["containerPath"] = inside.replace("{", "{{").replace("}", "}}")
    if kind == "Mount":
        item |= {"type": "mount"} | ({"readOnly": True} if path.flag("readOnly") else {})
    else:
        item["permissions"] = path.text("permissions") or "mrw"
        if item["path"] == literal(written):
            item["kinds"] = ["char", "block", "directory"]
    if (limit := path.number("limit")) > 1:
        item["limit"] = limit
    if path.flag("optional"):
        item["optional"] = True
    return item


def _note_pairs(draft: Draft, items: Sequence[dict[str, Any]], where: str) -> None:
    """Report the cases in which the plugin combines the matches of several paths differently."""
    patterns = [item for item in items if item["path"] != literal(item["path"])]
    if len(patterns) > 1:
        order = "vdev pairs matches in the order ttyUSB2, ttyUSB10, and the plugin in the order ttyUSB10, ttyUSB2"
        draft.note(where, order)
    if patterns and len(items) > 1 and any(item.get("optional") for item in items):
        draft.note(where, "in the plugin, an optional path with fewer matches than others limits the number of devices")


def _usb_device(usb_device: Item) -> dict[str, Any] | None:
    """Return an item of `usb`, or None if the plugin would find no devices."""
    item: dict[str, Any] = {}
    for key in ("vendor", "product"):
        hit = _HEX.fullmatch(usb_device.text(key))
        if hit is None:
            usb_device.omit("is missing or not a hexadecimal id, so nothing matches", key=key)
            return None
        item[key] = hit[1].lower().zfill(4)
    if serial := usb_device.text("serial"):
        item["serial"] = literal(serial)
    return item


def _allow_overlap(draft: Draft, entry: DraftEntry) -> None:
    """Set `shared` if another entry may have the same nodes. In the plugin, a node may be in several devices.

    Only the parts of paths before the first wildcard are compared. A false positive does little harm: the devices may
    be shared, and a comment says so.
    """
    for other in draft.devices:
        if any(one.startswith(each) or each.startswith(one) for one in _places(entry) for each in _places(other)):
            entry["shared"] = True
            entry.comments.append(f"It may have the same devices as {other['name']}, so two pods could get one device.")
            return


def _places(entry: DraftEntry) -> list[str]:
    """Return the paths of an entry up to the first wildcard, and vendor and product of its USB devices."""
    usb = entry.get("usb", [])
    ids = [f"{each['vendor']}:{each['product']}" for each in (usb if isinstance(usb, list) else [usb])]
    return ids + [fixed_part(item["path"]) for item in entry.get("glob", [])]
