"""squat/generic-device-plugin: its file, its flags, and MicroShift's block of the same.

Source: 179b1fe of 2026-04-09, `config.go`, `deviceplugin/path.go` and `usb.go`. Each group becomes an entry. All USB
devices of a group are one device, and one node may be in two devices; the entries have keys for both.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from .. import config
from ..errors import ConfigError
from .draft import Draft, DraftEntry, keys
from .go_patterns import NotAPatternError, glob, literal, may_overlap
from .sources import Arguments, ImportOptions, ImportSource, is_true, listed, mapping, number

TITLE = "generic-device-plugin"
_DOMAIN = "squat.ai"
_MICROSHIFT = "device.microshift.io"
_USB = keys("vendor", "product", "serial")
_PATHS = keys("path", "type", "mountPath", "readOnly", "permissions", "limit", "optional")
_DEVICE = keys("name", groups=keys("count", paths=_PATHS, usb=_USB, usbs=_USB))
_FILE = keys("domain", "listen", "log-level", "plugin-directory", device=_DEVICE, devices=_DEVICE)
_MICROSHIFT_BLOCK = keys("status", "domain", devices=_DEVICE)
_DANGEROUS = ("/dev/mem", "/dev/kmem", "/dev/port")
_NUMBER = re.compile(r"[0-9]{2,}|[0-9]+[eE][0-9]")  # YAML 1.1 reads these as numbers, not as text
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,4})")


def recognizes(content: Any) -> bool:
    """Whether it is the file, one of its devices, or the plugin's arguments."""
    if isinstance(content, Arguments):
        return any(word.partition("=")[0] in ("--device", "-device") for word in content)
    given = mapping(content)
    devices = [given, *listed(given.get("device")), *listed(given.get("devices"))]
    return isinstance(given.get("genericDevicePlugin"), dict) or any("groups" in mapping(each) for each in devices)


@dataclass(frozen=True, slots=True)
class _Given:
    """The devices of one source."""

    domain: str
    devices: Sequence[tuple[str, Any]]  # with their paths in the source
    is_file: bool = False  # in a file, the plugin reads unquoted ids as numbers


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for all sources."""
    draft = Draft("Made by vdev import of a configuration of generic-device-plugin.")
    for source in found:
        given = _given(source, draft)
        domain = options.domain or given.domain
        for where, device in given.devices:
            _device(draft, device, f"{source.where}: {where}" if source.where else where, domain, is_file=given.is_file)
    return [draft]


def _given(source: ImportSource, draft: Draft) -> _Given:
    content = source.content
    if isinstance(content, Arguments):
        return _arguments(content, draft)
    if isinstance(content.get("genericDevicePlugin"), dict):
        block = content["genericDevicePlugin"]
        draft.name_unread(block, _MICROSHIFT_BLOCK, "genericDevicePlugin")
        if _text(block.get("status")) == "Disabled":
            draft.note("genericDevicePlugin.status", "it is Disabled in MicroShift, which offers none of these devices")
        return _Given(_text(block.get("domain")) or _MICROSHIFT, _numbered("devices", block))
    if "groups" in content and "devices" not in content:
        draft.name_unread(content, _DEVICE)
        return _Given(_DOMAIN, [("", content)])
    draft.name_unread(content, _FILE)
    key = "device" if isinstance(content.get("device"), list) else "devices"
    return _Given(_text(content.get("domain")) or _DOMAIN, _numbered(key, content), is_file=True)


def _numbered(key: str, content: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{key}[{place}]", each) for place, each in enumerate(listed(content.get(key)))]


def _arguments(given: Arguments, draft: Draft) -> _Given:
    domain = _DOMAIN
    devices: list[tuple[str, Any]] = []
    words = list(given)
    while words:
        name, equals, value = words.pop(0).partition("=")
        flag = name.lstrip("-")
        if not name.startswith("-") or flag not in ("device", "domain", "config"):
            continue
        value = value if equals else (words.pop(0) if words else "")
        if flag == "domain":
            domain = value
        elif flag == "config":
            draft.omit("--config", f"the file {value} is not in these arguments; import it as well")
        else:
            try:
                for device in config.trees(value, "--device"):
                    devices.append((f"--device {len(devices) + 1}", device))
                    draft.name_unread(device, _DEVICE, f"--device {len(devices)}")
            except ConfigError as bad:
                draft.omit("--device", f"is not YAML: {bad}")
    return _Given(domain, devices)


def _device(draft: Draft, device: Any, where: str, domain: str, *, is_file: bool) -> None:
    name = _text(mapping(device).get("name")).strip()
    groups = listed(mapping(device).get("groups"))
    if not name:
        draft.omit(where, "the device has no name")
        return
    resource = f"{domain}/{name}"
    made: list[tuple[str, int]] = []  # entries, and how many pods share their devices
    for place, group in enumerate(groups):
        at = f"{where}.groups[{place}]".lstrip(".")
        wanted = draft.entry_name(name if len(groups) == 1 else f"{name}-{place + 1}")
        entry = DraftEntry({"name": wanted, "resource": resource})
        if not _group(draft, entry, mapping(group), at, is_file=is_file):
            continue
        count = number(mapping(group).get("count"))
        if count is None:
            draft.omit(f"{at}.count", f"{mapping(group)['count']!r} is not a number")
        _allow_overlap(draft, entry)
        draft.devices.append(entry)
        made.append((wanted, count or 1))
    counts = {count for _, count in made}
    if len(counts) == 1 and counts != {1}:
        draft.share(resource, counts.pop())
    for wanted, count in made if len(counts) > 1 else ():
        if count > 1:
            draft.share(resource, count, [wanted])


def _group(draft: Draft, block: DraftEntry, group: dict[str, Any], where: str, *, is_file: bool) -> bool:
    """Add the devices of a group to the entry. Returns whether it has any."""
    # In MicroShift's configurations, an item without values means nothing.
    usb_devices = [
        *listed(group.get("usb")),
        *(each for each in listed(group.get("usbs")) if any(mapping(each).values())),
    ]
    paths = listed(group.get("paths"))
    if paths and usb_devices:
        draft.omit(where, "has both paths and usb, which generic-device-plugin refuses")
        return False
    if paths:
        items = [
            each for n, path in enumerate(paths) if (each := _path(draft, block, mapping(path), f"{where}.paths[{n}]"))
        ]
        _warn_of_pairs(draft, block, items, where)
        block["glob"] = items
        if any(item["path"] in _DANGEROUS for item in items):
            block["allowDangerous"] = True
    else:
        items = [
            each
            for n, one in enumerate(usb_devices)
            if (each := _usb_item(draft, block, mapping(one), f"{where}.usb[{n}]", is_file=is_file))
        ]
        if items:
            block["usb"] = items[0] if len(items) == 1 else [{**each, "optional": True} for each in items]
            block["groupBy"] = "all"
            block.comments.append("All matches are one device. Without groupBy, each match is a device.")
    if not items:
        draft.remarks += block.comments
        if not (paths or usb_devices):
            draft.omit(where, "the group has no paths and no usb")
    return bool(items)


def _path(draft: Draft, block: DraftEntry, path: dict[str, Any], where: str) -> dict[str, Any] | None:
    written = _text(path.get("path")).strip()
    try:
        pattern = glob(written)
    except NotAPatternError as wrong:
        draft.omit(where, f"the pattern {written!r} cannot be read: {wrong}", block)
        return None
    kind = path.get("type") or "Device"
    if kind not in ("Device", "Mount"):
        draft.omit(where, f"type {kind!r} is neither Device nor Mount, so the plugin ignores it", block)
        return None
    item: dict[str, Any] = {"path": pattern}
    inside = _text(path.get("mountPath")).strip()
    if inside:
        item["containerPath"] = inside.replace("{", "{{").replace("}", "}}")
    if kind == "Mount":
        item["type"] = "mount"
        if is_true(path.get("readOnly")):
            item["readOnly"] = True
    else:
        item["permissions"] = _text(path.get("permissions")) or "mrw"
        if pattern == literal(written):
            item["kinds"] = ["char", "block", "directory"]
    limit = number(path.get("limit"))
    if limit is None:
        draft.omit(f"{where}.limit", f"{path['limit']!r} is not a number", block)
    elif limit > 1:
        item["limit"] = limit
    if is_true(path.get("optional")):
        item["optional"] = True
    return item


def _warn_of_pairs(draft: Draft, block: DraftEntry, items: Sequence[dict[str, Any]], where: str) -> None:
    """Report the cases in which the plugin combines the matches of several paths in another way."""
    several = [item for item in items if item["path"] != literal(item["path"])]
    if len(several) > 1:
        draft.note(
            where,
            "vdev pairs matches in the order ttyUSB2, ttyUSB10, and the plugin in the order ttyUSB10, ttyUSB2",
            block,
        )
    if len(items) > 1 and any(item.get("optional") for item in items) and several:
        draft.note(
            where, "in the plugin, an optional path with fewer matches than others limits the number of devices", block
        )


def _usb_item(
    draft: Draft, block: DraftEntry, usb_device: dict[str, Any], where: str, *, is_file: bool
) -> dict[str, Any] | None:
    item: dict[str, Any] = {}
    for key in ("vendor", "product"):
        value = usb_device.get(key)
        hit = _HEX.fullmatch(str(value)) if isinstance(value, str) else None
        if hit is None:
            draft.omit(f"{where}.{key}", "is missing or not a hexadecimal id, so nothing matches", block)
            return None
        item[key] = hit[1].lower().zfill(4)
        if is_file and isinstance(value, config.Plain) and _NUMBER.fullmatch(str(value)):
            draft.note(
                f"{where}.{key}",
                f"{value} without quotes is a number for the plugin, so it looked for another id",
                block,
            )
    if serial := usb_device.get("serial"):
        item["serial"] = literal(str(serial))
    return item


def _allow_overlap(draft: Draft, entry: DraftEntry) -> None:
    """Set `shared` if another entry may have the same nodes. In the plugin, a node may be in several devices."""
    for other in draft.devices:
        paths = product(entry.get("glob", ()), other.get("glob", ()))
        if _ids(entry) & _ids(other) or any(may_overlap(one["path"], another["path"]) for one, another in paths):
            entry["shared"] = True
            entry.comments.append(f"It may have the same devices as {other['name']}, so two pods could get one device.")
            return


def _ids(body: dict[str, Any]) -> set[tuple[str, str]]:
    """Vendor and product of the USB devices of an entry."""
    usb = body.get("usb", [])
    return {(each["vendor"], each["product"]) for each in (usb if isinstance(usb, list) else [usb])}


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else ""
