"""squat/generic-device-plugin: its file, its flags, and MicroShift's block of the same.

Facts: 179b1fe of 2026-04-09, `config.go`, `deviceplugin/path.go` and `usb.go`. A group of its becomes an entry. What it
merges (all USB devices of a group) or lets overlap (one node in two devices) is said so here too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from .. import config
from ..errors import ConfigError
from .draft import Arguments, Block, Draft, ImportSource, Wishes, is_true, listed, mapping, number
from .go_patterns import NotAPatternError, glob, literal, may_meet

_DOMAIN = "squat.ai"
_MICROSHIFT = "device.microshift.io"
# What is read of each; anything else is named.
_FILE_KEYS = ("domain", "device", "devices", "listen", "log-level", "plugin-directory")
_MICROSHIFT_KEYS = ("status", "domain", "devices")
_DEVICE_KEYS = ("name", "groups")
_GROUP_KEYS = ("count", "paths", "usb", "usbs")
_PATH_KEYS = ("path", "type", "mountPath", "readOnly", "permissions", "limit", "optional")
_USB_KEYS = ("vendor", "product", "serial")
_DANGEROUS = ("/dev/mem", "/dev/kmem", "/dev/port")
_NUMBER = re.compile(r"[0-9]{2,}|[0-9]+[eE][0-9]")  # what YAML 1.1 reads without quotes as another number
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,4})")


def recognises(content: Any) -> bool:
    """Whether it is the file, a device of it, or the plugin's arguments."""
    if isinstance(content, Arguments):
        return any(word.partition("=")[0] in ("--device", "-device") for word in content.words)
    if not isinstance(content, dict):
        return False
    if isinstance(content.get("genericDevicePlugin"), dict):
        return True
    devices = [*listed(content.get("device")), *listed(content.get("devices"))]
    return "groups" in content or any("groups" in mapping(each) for each in devices)


@dataclass(frozen=True, slots=True)
class _Given:
    """What one source declares. `is_file`: unquoted ids are read as decimal numbers, as viper does."""

    domain: str
    devices: Sequence[tuple[str, Any]]  # with their paths in the source
    is_file: bool = False


def drafts(found: Sequence[ImportSource], wishes: Wishes) -> list[Draft]:
    """One file of all sources."""
    draft = Draft("Made by vdev import of a configuration of generic-device-plugin.")
    for source in found:
        given = _given(source, draft)
        domain = wishes.domain or given.domain
        for where, device in given.devices:
            _device(draft, device, f"{source.where}: {where}" if source.where else where, domain, is_file=given.is_file)
    return [draft]


def _given(source: ImportSource, draft: Draft) -> _Given:
    content = source.content
    if isinstance(content, Arguments):
        return _arguments(content, draft)
    if isinstance(content.get("genericDevicePlugin"), dict):
        block = content["genericDevicePlugin"]
        draft.unread("genericDevicePlugin", block, _MICROSHIFT_KEYS)
        if _text(block.get("status")) == "Disabled":
            draft.told("genericDevicePlugin.status", "MicroShift has it Disabled, so that it offers none of these")
        found = [(f"devices[{n}]", each) for n, each in enumerate(listed(block.get("devices")))]
        return _Given(_text(block.get("domain")) or _MICROSHIFT, found)
    if "groups" in content and "devices" not in content:
        return _Given(_DOMAIN, [("", content)])
    draft.unread("", content, _FILE_KEYS)
    key = "device" if isinstance(content.get("device"), list) else "devices"
    found = [(f"{key}[{n}]", each) for n, each in enumerate(listed(content.get(key)))]
    return _Given(_text(content.get("domain")) or _DOMAIN, found, is_file=True)


def _arguments(given: Arguments, draft: Draft) -> _Given:
    domain = _DOMAIN
    devices: list[tuple[str, Any]] = []
    words = list(given.words)
    while words:
        name, equals, value = words.pop(0).partition("=")
        flag = name.lstrip("-")
        if not name.startswith("-") or flag not in ("device", "domain", "config"):
            continue
        value = value if equals else (words.pop(0) if words else "")
        if flag == "domain":
            domain = value
        elif flag == "config":
            draft.lost("--config", f"the file {value} is not in these arguments; import it as well")
        else:
            try:
                devices += [(f"--device {len(devices) + 1}", each) for each in config.trees(value, "--device")]
            except ConfigError as bad:
                draft.lost("--device", f"is not YAML: {bad}")
    return _Given(domain, devices)


def _device(draft: Draft, device: Any, where: str, domain: str, *, is_file: bool) -> None:
    draft.unread(where, mapping(device), _DEVICE_KEYS)
    name = _text(mapping(device).get("name")).strip()
    groups = listed(mapping(device).get("groups"))
    if not name:
        draft.lost(where, "the device has no name")
        return
    resource = f"{domain}/{name}"
    made: list[tuple[Block, int]] = []
    for place, group in enumerate(groups):
        at = f"{where}.groups[{place}]".lstrip(".")
        body = _group(draft, mapping(group), at, is_file=is_file)
        if body is None:
            continue
        count = number(mapping(group).get("count"))
        if count is None:
            draft.lost(f"{at}.count", f"{mapping(group)['count']!r} is no number")
        wish = name if len(groups) == 1 else f"{name}-{place + 1}"
        body.body = {"name": draft.entry_name(wish), "resource": resource, **body.body}
        _let_overlap(draft, body)
        draft.devices.append(body)
        made.append((body, count or 1))
    counts = {count for _, count in made}
    for body, count in made:
        if count > 1 and len(counts) > 1:
            draft.share(resource, count, [body.body["name"]])
    if len(counts) == 1 and counts != {1}:
        draft.share(resource, counts.pop())


def _group(draft: Draft, group: dict[str, Any], where: str, *, is_file: bool) -> Block | None:
    draft.unread(where, group, _GROUP_KEYS)
    # MicroShift's configurations have an item without values where nothing is meant.
    sticks = [*listed(group.get("usb")), *(each for each in listed(group.get("usbs")) if any(mapping(each).values()))]
    paths = listed(group.get("paths"))
    if paths and sticks:
        draft.lost(where, "has both paths and usb, which generic-device-plugin refuses")
        return None
    block = Block({})
    if paths:
        items = [
            each for n, path in enumerate(paths) if (each := _path(draft, block, mapping(path), f"{where}.paths[{n}]"))
        ]
        _warn_of_pairs(draft, block, items, where)
        block.body["glob"] = items
        if any(item["path"] in _DANGEROUS for item in items):
            block.body["allowDangerous"] = True
    else:
        items = [
            each
            for n, one in enumerate(sticks)
            if (each := _stick(draft, block, mapping(one), f"{where}.usb[{n}]", is_file=is_file))
        ]
        if items:
            block.body["usb"] = items[0] if len(items) == 1 else [{**each, "optional": True} for each in items]
            block.body["groupBy"] = "all"
            block.comments.append("All that match are one device; without groupBy each would be a device of its own.")
    if not items:
        draft.remarks += block.comments
        if not (paths or sticks):
            draft.lost(where, "the group has no paths and no usb")
        return None
    return block


def _path(draft: Draft, block: Block, path: dict[str, Any], where: str) -> dict[str, Any] | None:
    draft.unread(where, path, _PATH_KEYS)
    written = _text(path.get("path")).strip()
    try:
        pattern = glob(written)
    except NotAPatternError as wrong:
        draft.lost(where, f"the pattern {written!r} cannot be read: {wrong}", block)
        return None
    kind = path.get("type") or "Device"
    if kind not in ("Device", "Mount"):
        draft.lost(where, f"type {kind!r} is neither Device nor Mount, so nothing is handed out for it", block)
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
        draft.lost(f"{where}.limit", f"{path['limit']!r} is no number", block)
    elif limit > 1:
        item["limit"] = limit
    if is_true(path.get("optional")):
        item["optional"] = True
    return item


def _warn_of_pairs(draft: Draft, block: Block, items: Sequence[dict[str, Any]], where: str) -> None:
    """Where the numbers of matches decide, the two do not count alike."""
    several = [item for item in items if item["path"] != literal(item["path"])]
    if len(several) > 1:
        draft.told(
            where, "matches are paired in the order ttyUSB2, ttyUSB10 here, and the other way round there", block
        )
    if len(items) > 1 and any(item.get("optional") for item in items) and several:
        draft.told(where, "there, an optional path with fewer matches than others limits the number of devices", block)


def _stick(draft: Draft, block: Block, stick: dict[str, Any], where: str, *, is_file: bool) -> dict[str, Any] | None:
    draft.unread(where, stick, _USB_KEYS)
    item: dict[str, Any] = {}
    for key in ("vendor", "product"):
        value = stick.get(key)
        hit = _HEX.fullmatch(str(value)) if isinstance(value, str) else None
        if hit is None:
            draft.lost(f"{where}.{key}", "is missing, or no hexadecimal id; nothing can match it", block)
            return None
        item[key] = hit[1].lower().zfill(4)
        if is_file and isinstance(value, config.Plain) and _NUMBER.fullmatch(str(value)):
            draft.told(
                f"{where}.{key}", f"{value} without quotes is a number in its file, so it looked for another id", block
            )
    if serial := stick.get("serial"):
        item["serial"] = literal(str(serial))
    return item


def _let_overlap(draft: Draft, body: Block) -> None:
    """There, one node may be in several devices; here it belongs to the first one, unless that is said."""
    for other in draft.devices:
        if _meet(body.body, other.body):
            body.body["shared"] = True
            body.comments.append(
                f"Its devices may be those of {other.body['name']}, too: two pods could get one at once."
            )
            return


def _meet(one: dict[str, Any], other: dict[str, Any]) -> bool:
    paths = product(one.get("glob", ()), other.get("glob", ()))
    if any(may_meet(a["path"], b["path"]) for a, b in paths):
        return True
    return bool(_ids(one) & _ids(other))


def _ids(body: dict[str, Any]) -> set[tuple[str, str]]:
    """Vendor and product of the USB devices of an entry."""
    usb = body.get("usb", [])
    return {(each["vendor"], each["product"]) for each in (usb if isinstance(usb, list) else [usb])}


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else ""
