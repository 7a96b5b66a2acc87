"""One entry's model to its `EntrySpec`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...core import spec
from ...core.model.place import KeyPath
from ...core.spec import EntrySpec
from ..report import Report
from ..schema import sources
from ..schema.entry import Entry
from .templated import actions, container, health, parser, virtual_node
from .virtual_block import Resolved, partitions, virtual


def entry_spec(model: Entry, path: KeyPath, dirs: Sequence[Path], report: Report) -> EntrySpec:
    """One entry, whose preset is looked for in `dirs` first. With errors in the report, the value is of no use."""
    resolved: Resolved | None = None
    source: spec.Source
    if model.virtual:
        resolved = virtual(model.virtual, (*path, "virtual"), dirs, report)
        source = resolved.source
    elif model.glob:
        source = _glob(model)
    elif model.sysfs:
        source = _sysfs(model.sysfs, allow_dangerous=model.allow_dangerous)
    else:
        source = _usb(model.usb or sources.Usb())
    geometry = resolved.geometry if resolved else None
    count = resolved.source.count if resolved else 0
    is_known = not (model.virtual and model.virtual.preset and resolved and not resolved.source.preset)
    parse = parser(report, _attributes(resolved))
    if model.virtual and model.virtual.node and isinstance(source, spec.VirtualSource):
        node = virtual_node(model.virtual.node, parse, (*path, "virtual", "node"))
        source = replace(source, node=node)
    return EntrySpec(
        name=model.name,
        resource=model.resource,
        source=source,
        where=report.where(path),
        on_nodes=tuple(model.on_nodes),
        container=container(model.container, parse, (*path, "container")),
        health=health(model.health, parse, (*path, "health")) if model.health else None,
        visible_devices_env=model.visible_devices_env or (resolved.visible_devices_env if resolved else ""),
        geometry=geometry,
        partitions=partitions(model.partitions if is_known else {}, geometry, count, (*path, "partitions"), report),
        exclude_topology=model.exclude_topology,
        shared=model.shared,
        on_allocate=actions(model.on_allocate, parse, (*path, "onAllocate")),
        on_release=actions(model.on_release, parse, (*path, "onRelease")),
        pre_start=actions(model.pre_start, parse, (*path, "preStart")),
        gpu_names=resolved.gpu_names if resolved else (),
    )


def _glob(model: Entry) -> spec.GlobSource:
    return spec.GlobSource(
        paths=tuple(
            spec.GlobPath(
                path=item.path,
                container_path=item.container_path,
                permissions=item.permissions or "rw",
                type=item.type,
                read_only=bool(item.read_only),
                optional=item.optional,
                limit=item.limit,
                kinds=tuple(dict.fromkeys(item.kinds)),
            )
            for item in model.glob or ()
        ),
        exclude=tuple(model.exclude),
        group_by=model.group_by or spec.GroupBy.POSITION,
        allow_dangerous=model.allow_dangerous,
    )


def _sysfs(model: sources.Sysfs, *, allow_dangerous: bool) -> spec.SysfsSource:
    return spec.SysfsSource(
        kind="class" if model.class_ else "bus",
        subsystem=model.class_ or model.bus or "",
        match=tuple(
            spec.Condition(attribute=attribute, operator=test.operator, values=test.values)
            for attribute, test in model.match.items()
        ),
        children=tuple(model.children),
        container_path=model.container_path,
        permissions=model.permissions,
        allow_dangerous=allow_dangerous,
    )


def _usb(model: sources.Usb) -> spec.UsbSource:
    return spec.UsbSource(
        vendor=_hex(model.vendor, 4),
        product=_hex(model.product, 4),
        serial=model.serial or "",
        port=model.port or "",
        device_class=_hex(model.class_, 2),
        children=tuple(model.children),
        container_path=model.container_path,
        permissions=model.permissions,
    )


def _hex(digits: str | None, width: int) -> str:
    """Hexadecimal digits as sysfs writes them: lower case, full width, no prefix."""
    return digits.lower().removeprefix("0x").zfill(width) if digits else ""


def _attributes(resolved: Resolved | None) -> frozenset[str] | None:
    """The attributes that templates may name; None for real devices, whose attributes are known after discovery."""
    if resolved is None:
        return None
    profiles = resolved.geometry.profiles if resolved.geometry else ()
    return frozenset(resolved.source.attributes).union(*(profile.attributes for profile in profiles))
