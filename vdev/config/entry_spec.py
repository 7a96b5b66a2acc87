"""One entry's model to its `EntrySpec`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConfigError
from ..model import names
from ..model.dra import ClaimApi
from ..model.entry import EntrySpec, OnFailure
from ..model.geometry import NamedLayout, PartitionChoice, generated, nearest
from ..model.problem import KeyPath, listed
from ..model.scalars import Section
from ..model.sources import GlobItem, GlobSource, GroupBy, Usb, UsbGroup, VirtualSource
from ..model.telemetry import EntryTelemetry, Measured, SmiTool
from ..model.template import Template, TemplateError, parse
from .dra_spec import dra_spec
from .entry import Entry
from .layouts import LayoutFiles, Subject
from .messages import ProblemReport
from .partitions_block import FromLabel
from .presets import PresetTexts
from .virtual_block import ResolvedSource, cannot_be_cut, partitions, virtual

Part = TypeVar("Part", GlobItem, Usb)

_SHOWN = 3  # layouts that a warning names


def entry_spec(
    model: Entry,
    path: KeyPath,
    presets: PresetTexts,
    layouts: LayoutFiles,
    report: ProblemReport,
    *,
    is_measured: bool = False,
) -> EntrySpec:
    """One entry, whose preset is one of `presets`, and whose file of layouts is read from `layouts`.

    `is_measured`: somebody asks for what devices measure; those that are real have no sensors unless the entry gives
    them some.

    With errors in the report, the value is of no use.
    """
    resolved = _resolved(model, path, presets, report)
    _check_templates(model, path, resolved.attributes, report)
    source = resolved.source
    count = source.count if isinstance(source, VirtualSource) else 0
    at = (*path, "partitions")
    choice = _choice(model, resolved, at, layouts, report)
    if choice:
        cut = choice.initial
    else:
        wanted = {} if resolved.lacks_preset or isinstance(model.partitions, FromLabel) else model.partitions
        cut = partitions(wanted, resolved.geometry, count, at, report)
    return EntrySpec(
        name=model.name,
        resource=model.resource,
        source=source,
        where=report.where(path),
        on_nodes=tuple(model.on_nodes),
        container=model.container,
        health=model.health,
        visible_devices_env=model.visible_devices_env or resolved.visible_devices_env,
        geometry=resolved.geometry,
        partitions=cut,
        choice=choice,
        allow_dangerous=model.allow_dangerous,
        exclude_topology=model.exclude_topology,
        shared=model.shared,
        on_allocate=model.on_allocate,
        on_release=model.on_release,
        if_release_fails=model.if_release_fails or OnFailure.BLOCK,
        pre_start=model.pre_start,
        labels=model.labels,
        conditions=model.conditions,
        listed=ClaimApi.DEVICE_PLUGIN in model.advertise,
        dra=dra_spec(model, resolved, path, report) if ClaimApi.DRA in model.advertise else None,
        telemetry=measured(model, resolved) if is_measured and (model.virtual or model.telemetry) else None,
        smi=smi_tool(model, resolved, path, report, on=is_measured),
    )


def _resolved(model: Entry, path: KeyPath, presets: PresetTexts, report: ProblemReport) -> ResolvedSource:
    if model.virtual:
        return virtual(model.virtual, (*path, "virtual"), presets, report)
    source = model.sysfs or (_glob(model) if model.glob else _usb(model))  # without any, an error is reported elsewhere
    return ResolvedSource(source, source.attribute_names)


def _check_templates(model: Entry, path: KeyPath, attributes: frozenset[str], report: ProblemReport) -> None:
    """Report placeholders for attributes that the entry's devices lack. Those that they have are `attributes`."""
    texts = [(at, each.source, attributes) for at, each in _templates(model, path)]
    texts.append(((*path, "resource"), model.resource, attributes))
    # The paths of real devices' nodes are rendered by discovery, with the node as `base`.
    texts += ((at, text, attributes | {"base"}) for at, text in _container_paths(model, path))
    for at, text, known in texts:
        try:
            parse(text, attributes=known)
        except TemplateError as error:
            report.error(at, str(error))


def _templates(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, Template]]:
    """Every template that is written in the value, with its place."""
    inner: Iterable[tuple[Any, object]] = ()
    match value:
        case Template():
            yield path, value
        case Section():
            inner = value.written.items()
        case dict():
            inner = value.items()
        case list() | tuple():
            inner = enumerate(value)
    for key, each in inner:
        yield from _templates(each, (*path, key))


def _container_paths(model: Entry, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    items = [((*path, "glob", number), item.container_path) for number, item in enumerate(model.glob or ())]
    several = len(model.usb or ()) > 1
    items += [
        ((*path, "usb", number) if several else (*path, "usb"), stick.container_path)
        for number, stick in enumerate(model.usb or ())
    ]
    if model.sysfs:
        items.append(((*path, "sysfs"), model.sysfs.container_path))
    for at, text in items:
        yield (*at, "containerPath"), text


def _choice(
    model: Entry, resolved: ResolvedSource, path: KeyPath, layouts: LayoutFiles, report: ProblemReport
) -> PartitionChoice | None:
    """What a label may make of the devices, where one is named and they can be partitioned."""
    if resolved.lacks_preset or not isinstance(model.partitions, FromLabel):
        return None
    if resolved.geometry is None or not isinstance(resolved.source, VirtualSource):
        cannot_be_cut(path, report)
        return None
    pci_id = resolved.source.attributes.get("pciDeviceId", "")
    subject = Subject(resolved.geometry, resolved.source.count, pci_id)
    return _partition_choice(model.partitions, subject, path, layouts, report)


def _glob(model: Entry) -> GlobSource:
    paths = tuple(model.glob or ())
    return GlobSource(
        paths=paths if len(paths) > 1 else tuple(map(_required, paths)),
        exclude=tuple(model.exclude),
        group_by=model.group_by or GroupBy.POSITION,
    )


def _usb(model: Entry) -> UsbGroup:
    sticks, group_by = tuple(model.usb or ()), model.group_by or GroupBy.POSITION
    if len(sticks) == 1 and group_by is not GroupBy.ALL:
        sticks = (_required(sticks[0]),)
    return UsbGroup(sticks=sticks, group_by=group_by)


def _required(only: Part) -> Part:
    """The only one of its list, of which a device cannot be without."""
    return only.model_copy(update={"optional": False}) if only.optional else only


def _partition_choice(
    model: FromLabel, subject: Subject, path: KeyPath, files: LayoutFiles, report: ProblemReport
) -> PartitionChoice:
    """The layouts that a label can choose for the devices of `subject`, and the one without it.

    A layout that does not fit the devices stays, and fails when it is chosen: one file is for many models. With errors
    in the report, the value is of no use.
    """
    layouts = generated(subject.geometry, subject.count)
    if model.file is not None:
        at = (*path, "file")
        file = Path(report.document.value_place(at).file).parent / model.file
        try:
            layouts = files.layouts(file, subject)
        except ConfigError as bad:
            report.errors_elsewhere(at, bad)
            return PartitionChoice(label=model.from_label, default="", layouts={})
        _warn_of_misfits(layouts, file, at, report)
    choice = PartitionChoice(label=model.from_label, default=model.default or "", layouts=layouts)
    if wrong := names.key_problem(choice.state_label):
        report.error((*path, "fromLabel"), f"there is no label for what became of it: {wrong}", "use a shorter label")
    if model.default is not None:
        _check_default(model.default, layouts, (*path, "default"), report)
    return choice


def _check_default(name: str, layouts: Mapping[str, NamedLayout], path: KeyPath, report: ProblemReport) -> None:
    if name not in layouts:
        report.error(path, f"unknown layout {name!r}", listed(layouts, nearest(name, layouts), lead="known:"))
    elif refusal := layouts[name].refusal:
        report.error(path, f"the layout {name!r} does not fit: {refusal}", "choose one that fits these devices")


def _warn_of_misfits(layouts: Mapping[str, NamedLayout], file: Path, path: KeyPath, report: ProblemReport) -> None:
    """One warning for all: a file for many models has dozens."""
    misfits = [f"{name!r} ({layout.refusal})" for name, layout in layouts.items() if layout.refusal]
    if misfits:
        more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        message = f"{len(misfits)} of the {len(layouts)} layouts in {file} do not fit these devices"
        report.warning(path, f"{message}: {', '.join(misfits[:_SHOWN])}{more}", "a label that names one of them fails")


_TOOLS = {"nvidia.com/gpu": SmiTool.NVIDIA, "amd.com/gpu": SmiTool.AMD}
"""By the resource under which the maker's own plugin advertises."""


def measured(model: Entry, resolved: ResolvedSource) -> Measured:
    """How an entry's devices are loaded, and what they are like."""
    return Measured(model.telemetry or EntryTelemetry(), resolved.physics, _maker(resolved))


def smi_tool(
    model: Entry, resolved: ResolvedSource, path: KeyPath, report: ProblemReport, *, on: bool
) -> SmiTool | None:
    """The tool that containers get to look at the devices with; by default that of the maker, once `on`."""
    tool = _maker(resolved)
    if model.smi and tool is None and not resolved.lacks_preset:
        hint = "leave smi out, or use a preset of NVIDIA or AMD"
        report.error((*path, "smi"), "these devices have no smi: only presets of NVIDIA and AMD do", hint)
    return tool if (on if model.smi is None else model.smi) else None


def _maker(resolved: ResolvedSource) -> SmiTool | None:
    return _TOOLS.get(resolved.source.maker_resource) if isinstance(resolved.source, VirtualSource) else None
