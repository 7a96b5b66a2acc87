"""Validated models to the core's values, entry by entry; what concerns several of them at once is in `checks`.

An error is reported with its place; the caller leaves out what it concerns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path as FilePath

from ...core import spec
from ...core.model.names import domain_and_name
from ...core.model.template import Template, TemplateError, parse
from ...core.partitions.geometry import resource_suffix
from ...core.spec import EntrySpec, Flags, NamePattern, SharedResource, SharingKind, SharingSpec
from ..document.position import Path
from ..schema import config_file, lifecycle_actions, node_block, sources
from ..validation import Reading, Report
from .virtual_block import Resolved, partitions, virtual


def flags(model: config_file.Flags) -> Flags:
    """The flags; device nodes are looked for below the driver's root where no root of their own is given."""
    plugin = model.plugin
    return Flags(
        mig_strategy=model.mig_strategy,
        fail_on_init_error=model.fail_on_init_error,
        driver_root=model.nvidia_driver_root,
        dev_root=model.nvidia_dev_root or model.nvidia_driver_root,
        mps_root=model.mps_root,
        pass_device_specs=plugin.pass_device_specs,
        device_list_strategies=tuple(dict.fromkeys(plugin.device_list_strategy)),
        device_id_strategy=plugin.device_id_strategy,
        cdi_annotation_prefix=plugin.cdi_annotation_prefix,
        gdrcopy_enabled=model.gdrcopy_enabled,
        gds_enabled=model.gds_enabled,
        mofed_enabled=model.mofed_enabled,
        shared_devices_allocation_policy=plugin.shared_devices_allocation_policy,
    )


def entry(model: config_file.Entry, path: Path, dirs: Sequence[FilePath], report: Report) -> EntrySpec:
    """One entry. With errors in the report, the value is of no use."""
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
    templates = _Templates(report, _attributes(resolved))
    if model.virtual and model.virtual.node and isinstance(source, spec.VirtualSource):
        node = node_block.compiled(model.virtual.node, templates.parse, (*path, "virtual", "node"))
        source = replace(source, node=node)
    return EntrySpec(
        name=model.name,
        resource=model.resource,
        source=source,
        where=report.where(path),
        on_nodes=tuple(model.on_nodes),
        container=_container(model.container, templates, (*path, "container")),
        health=_health(model.health, templates, (*path, "health")) if model.health else None,
        visible_devices_env=model.visible_devices_env or (resolved.visible_devices_env if resolved else ""),
        geometry=geometry,
        partitions=partitions(model.partitions if is_known else {}, geometry, count, (*path, "partitions"), report),
        exclude_topology=model.exclude_topology,
        shared=model.shared,
        on_allocate=lifecycle_actions.compiled(model.on_allocate, templates.parse, (*path, "onAllocate")),
        on_release=lifecycle_actions.compiled(model.on_release, templates.parse, (*path, "onRelease")),
        pre_start=lifecycle_actions.compiled(model.pre_start, templates.parse, (*path, "preStart")),
        gpu_names=resolved.gpu_names if resolved else (),
    )


def partition_names(compiled: Iterable[EntrySpec], over: Flags) -> frozenset[str]:
    """The resources that partitions have for themselves, under the strategy `mixed`."""
    if over.mig_strategy is not spec.MigStrategy.MIXED:
        return frozenset()
    return frozenset(
        f"{domain_and_name(each.resource)[0]}/{resource_suffix(each.geometry, profile.partition('@')[0])}"
        for each in compiled
        if each.geometry
        for profiles in (*each.partitions.values(), [each.geometry.first_mode] * bool(each.geometry.first_mode))
        for profile in profiles
    )


def sharing(reading: Reading, report: Report, broken: frozenset[Path]) -> SharingSpec | None:
    """The block that is given, without its broken items; that both are given is an error found by `checks`."""
    model = reading.file.sharing
    for kind, key, block in (
        (SharingKind.MPS, "mps", model.mps),
        (SharingKind.TIME_SLICING, "timeSlicing", model.time_slicing),
    ):
        if block is not None:
            return SharingSpec(
                kind=kind,
                resources=tuple(
                    SharedResource(
                        name=item.name,
                        replicas=item.replicas,
                        rename=item.rename or "",
                        devices=item.devices,
                        where=report.where(at),
                    )
                    for at, item in reading.items(("sharing", key, "resources"), block.resources)
                    if at not in broken
                ),
                rename_by_default=block.rename_by_default,
                fail_requests_greater_than_one=block.fail_requests_greater_than_one,
            )
    return None


def patterns(reading: Reading, kind: str, report: Report, broken: frozenset[Path]) -> tuple[NamePattern, ...]:
    """The patterns of `resources.gpus` or `resources.mig`, without the broken ones."""
    models: list[config_file.PatternItem] = getattr(reading.file.resources, kind)
    return tuple(
        NamePattern(pattern=item.pattern, name=item.name, where=report.where(at))
        for at, item in reading.items(("resources", kind), models)
        if at not in broken
    )


# --- parts of an entry -----------------------------------------------------------------------------------------------


def _glob(model: config_file.Entry) -> spec.GlobSource:
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
    """The attributes that templates may name; None where discovery finds them."""
    if resolved is None:
        return None
    profiles = resolved.geometry.profiles if resolved.geometry else ()
    return frozenset(resolved.source.attributes).union(*(profile.attributes for profile in profiles))


class _Templates:
    """Parses the templates of one entry and reports those that name what its devices lack."""

    def __init__(self, report: Report, attributes: frozenset[str] | None) -> None:
        self._report = report
        self._attributes = attributes

    def parse(self, text: str, path: Path) -> Template:
        try:
            return parse(text, attributes=self._attributes)
        except TemplateError as error:
            self._report.error(path, str(error))
            return Template(text, (text,), ())


def _container(model: config_file.Container, templates: _Templates, path: Path) -> spec.ContainerSpec:
    def paths(item: config_file.ContainerNode | config_file.ContainerMount, at: Path) -> tuple[Template, Template]:
        host = templates.parse(item.host_path, (*at, "hostPath"))
        return host, templates.parse(item.container_path, (*at, "containerPath")) if item.container_path else host

    return spec.ContainerSpec(
        env=tuple((name, templates.parse(value, (*path, "env", name))) for name, value in model.env.items()),
        nodes=tuple(
            spec.NodeTemplate(*paths(node, (*path, "deviceNodes", number)), node.permissions)
            for number, node in enumerate(model.device_nodes)
        ),
        mounts=tuple(
            spec.MountTemplate(*paths(mount, (*path, "mounts", number)), mount.read_only)
            for number, mount in enumerate(model.mounts)
        ),
        annotations=tuple(
            (name, templates.parse(value, (*path, "annotations", name))) for name, value in model.annotations.items()
        ),
    )


def _health(model: config_file.Health, templates: _Templates, path: Path) -> spec.HealthSpec:
    return spec.HealthSpec(
        probe=model.probe,
        interval=model.interval,
        timeout=model.timeout,
        path=templates.parse(model.path, (*path, "path")) if model.path else None,
        content=model.content,
        command=tuple(templates.parse(word, (*path, "command", number)) for number, word in enumerate(model.command)),
        unhealthy_threshold=model.unhealthy_threshold,
        healthy_threshold=model.healthy_threshold,
        start_grace=model.start_grace,
    )
