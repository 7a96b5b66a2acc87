"""The blocks `virtual` and `partitions` to the core's values.

An entry's own values win over those of its preset. Partitions are placed here only to refuse lists that the hardware
would refuse.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ConfigError
from ..model.geometry import Geometry, LayoutError, layout
from ..model.problem import KeyPath
from ..model.scalars import index_range
from ..model.sources import Source, VirtualSource
from ..model.telemetry import PhysicsModel
from ..planning.partitions import place
from .entry import Virtual
from .messages import ProblemReport
from .presets import Preset, PresetTexts, UnknownPresetError, load_preset
from .validation import Links, device_links, numa_nodes

_REST = ("*", "all")  # the keys for all devices that no other key names


@dataclass(frozen=True, slots=True)
class ResolvedSource:
    """A source, and what else the entry takes from its preset, if it has one.

    `attributes` are those that templates may name.
    """

    source: Source
    attributes: frozenset[str]
    geometry: Geometry | None = None
    visible_devices_env: str = ""
    lacks_preset: bool = False
    physics: PhysicsModel = PhysicsModel()


def virtual(model: Virtual, path: KeyPath, presets: PresetTexts, report: ProblemReport) -> ResolvedSource:
    """The source of a `virtual` block at `path`, its preset one of `presets`."""
    preset = _preset(model.preset, (*path, "preset"), presets, report)
    count = model.count or len(model.ids) or preset.count or 1
    if model.ids and len(model.ids) != count:
        report.error(
            (*path, "ids"), f"{len(model.ids)} ids for {count} devices", "give one for each, or leave out count"
        )
    if preset.count and count > preset.count:
        hint = "for more devices, use the preset of the device, not of a whole node"
        report.error((*path, "count"), f"the preset {preset.name!r} has only {preset.count} devices, not {count}", hint)
    at = (*path, "numa")
    numa = preset.numa[:count] if model.numa is None else numa_nodes(model.numa, count, at, report)
    if model.links is None:
        links: Links = {pair: score for pair, score in preset.pairs.items() if max(pair) < count}
    else:
        links = device_links(model.links, count, (*path, "links"), report)
    source = VirtualSource(
        count=count,
        ids=tuple(model.ids) if len(model.ids) == count else (),
        memory=preset.memory if model.memory is None else model.memory,
        numa=numa,
        attributes={**preset.attributes, **model.attributes},
        links=links,
        id_style=preset.id_style,
        preset=preset.name,
        maker_resource=preset.resource,
        driver_nodes=preset.device_nodes,
        partition_nodes=preset.nodes_of_partitions,
        node=model.node,
    )
    geometry = model.partitioning or preset.partitioning
    profiles = geometry.profiles.values() if geometry else ()
    return ResolvedSource(
        source,
        frozenset(source.attributes).union(*(profile.attributes for profile in profiles)),
        geometry,
        preset.visible_devices_env,
        lacks_preset=model.preset is not None and not preset.name,
        physics=model.physics.over(preset.physics) if model.physics else preset.physics,
    )


def _preset(name: str | None, path: KeyPath, presets: PresetTexts, report: ProblemReport) -> Preset:
    """The preset, or an empty one."""
    try:
        return load_preset(name, presets) if name else Preset()
    except UnknownPresetError as unknown:
        report.error(path, unknown.message, unknown.hint)
    except ConfigError as bad:
        for problem in bad.problems:
            report.error(path, f"the preset {name!r} is wrong: {problem}")
    return Preset()


def partitions(
    wanted: Mapping[str, str | tuple[str, ...]],
    geometry: Geometry | None,
    count: int,
    path: KeyPath,
    report: ProblemReport,
) -> dict[int, tuple[str, ...]]:
    """Profiles by device index, with layouts resolved. `all` is for devices that no other key names."""
    if geometry is None:
        if wanted:
            cannot_be_cut(path, report)
        return {}
    result: dict[int, tuple[str, ...]] = {}
    named: dict[int, str] = {}
    if wanted.keys() >= {*_REST}:
        message = "'all' and '*' are the same: the devices that no other key names"
        report.key_error((*path, "*"), message, "remove one of them")
    for key, value in sorted(wanted.items(), key=lambda item: item[0] in _REST):
        here = (*path, key)
        profiles = _profiles(geometry, value, here, report)
        if key in _REST:
            result |= dict.fromkeys((index for index in range(count) if index not in named), profiles)
            continue
        indices = index_range(key)
        if not indices:
            report.key_error(here, f"the range {key} is empty", "write the lower index first")
        elif indices[-1] >= count:
            message = f"there is no device {max(indices[0], count)}; the entry has {count}"
            report.key_error(here, message, f"expected 0 to {count - 1}")
        for index in indices[:count]:
            if index in named:
                message = f"device {index} already gets its partitions from {named[index]!r}"
                report.key_error(here, message, "name each device once")
                break
            named[index] = key
            result[index] = profiles
    return result


def cannot_be_cut(path: KeyPath, report: ProblemReport) -> None:
    """Report `partitions` at `path` of devices that have none."""
    hint = "give virtual.partitioning, or a preset that has partitions"
    report.key_error(path, "these devices cannot be partitioned", hint)


def _profiles(
    geometry: Geometry, value: str | tuple[str, ...], path: KeyPath, report: ProblemReport
) -> tuple[str, ...]:
    """The profiles that a key asks for; a list that cannot be placed is reported where it fails."""
    try:
        profiles = layout(geometry, value) if isinstance(value, str) else value
        place(geometry, profiles)
    except LayoutError as clash:
        here = path if clash.position is None else (*path, clash.position)
        if here in report.document.values or clash.position is None:
            report.error(here, str(clash), clash.hint)
        else:
            report.key_error((*path, value[clash.position]), str(clash), clash.hint)  # of a mapping to numbers
        return ()
    return profiles
