"""Devices of a class or bus in sysfs whose attributes meet every condition."""

import posixpath
from collections import Counter

from ...core import attribute_match
from ...core.model.syntax import names
from ...core.spec import Condition, EntrySpec, SysfsSource
from ...errors import HostError
from ...hostfs import HostRoot
from ..dangerous_nodes import Danger
from ..device_nodes import Numa, looked_at
from ..found import Candidate, Check, Found, Problems
from ..numbering import Numbering
from .sysfs_devices import NodeFinder
from .sysfs_tree import SysTree

_ABSENT = "(absent)"


def discover(entry: EntrySpec, source: SysfsSource, host: HostRoot, *, numbering: Numbering) -> Found:
    problems, tree, danger = Problems(entry), SysTree(host), Danger(host)
    listing = f"/sys/class/{source.subsystem}" if source.kind == "class" else f"/sys/bus/{source.subsystem}/devices"
    members = tree.members(listing)
    identities = _identities(source, tree, members)
    candidates, matched = [], []
    for name, directory in members:
        checks = [_check(tree, directory, condition) for condition in source.match]
        reason = ""
        if not source.allow_dangerous and all(check.ok for check in checks) and (node := tree.node(directory)):
            info = looked_at(host, node)
            reason = danger.of(info) if info is not None else ""
        if reason:
            problems.warn(name, f"is not handed out because it {reason}", "allowDangerous: true permits it")
            checks.append(Check("is not dangerous", reason, ok=False))
        candidates.append(Candidate(posixpath.join(listing, name), tuple(checks)))
        if candidates[-1].matched:
            matched.append((name, directory))
    if not host.exists(listing):
        problems.warn(f"{source.kind} {source.subsystem}", "does not exist on this node")
    elif not matched:
        problems.warn(f"{source.kind} {source.subsystem}", "has no device on this node that meets the conditions")
    finder = NodeFinder(entry, source, host, tree, Numa(host), {listing})
    ids = [names.device_id(entry.name, identities[name]) for name, _ in matched]
    devices = tuple(
        finder.device(device_id, index, directory, _attributes(tree, source, name, directory), _bus(source))
        for device_id, index, (name, directory) in zip(ids, numbering.assign(ids), matched, strict=True)
    )
    if "vfio" in source.children:
        groups = Counter(device.attributes.get("vfio", "") for device in devices)
        for group, count in groups.items():
            if group and count > 1:
                problems.warn(
                    f"IOMMU group {group}", f"is shared by {count} devices", "only one pod can open it at a time"
                )
    return Found(
        devices=devices,
        problems=problems.all(),
        candidates=tuple(candidates),
        watch=frozenset(finder.watched),
    )


def _bus(source: SysfsSource) -> str:
    return source.subsystem if source.kind == "bus" else ""


def _check(tree: SysTree, directory: str, condition: Condition) -> Check:
    try:
        value = tree.attribute(directory, condition.attribute)
    except HostError as broken:
        return Check(attribute_match.wording(condition), f"({broken})", ok=False)
    return Check(
        attribute_match.wording(condition),
        _ABSENT if value is None else value,
        ok=attribute_match.meets(condition, value),
    )


def _attributes(tree: SysTree, source: SysfsSource, name: str, directory: str) -> dict[str, str]:
    """Facts for templates: the device's name, its driver, and the attributes that were asked about."""
    asked = {condition.attribute: tree.text(directory, condition.attribute) for condition in source.match}
    driver = tree.text(directory, "driver") or tree.text(directory, "device/driver")
    return {"name": name, "driver": driver, **asked}


def _identities(source: SysfsSource, tree: SysTree, members: list[tuple[str, str]]) -> dict[str, str]:
    """What each member's id is made of: where it is plugged in, and which of the class's devices there it is.

    `video2` may be `video0` after a re-plug; `1-1.4:1.0` is the same port. All members are counted, whatever the
    conditions, so that an edit of these renames nothing.
    """
    if source.kind == "bus":
        return {name: name.replace(":", "-") for name, _ in members}
    identities: dict[str, str] = {}
    used: Counter[str] = Counter()
    for name, directory in members:
        place = tree.place(tree.parent(directory)).replace(":", "-")
        if not place:
            identities[name] = name
            continue
        identities[name] = f"{place}.{used[place]}" if used[place] else place
        used[place] += 1
    return identities
