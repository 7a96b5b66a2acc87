"""Turns files into a checked `Spec`: read, validate, complete, check; items with errors are refused or left out.

An entry is completed with the values of its preset, its layouts and the vendors' conventions. Values in the file take
precedence. The result is the same model, in which defaults no longer depend on other values.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import ConfigError
from ..faults.rules import FaultRule, Faults
from ..model import names
from ..model.dra import ClaimApi, Dra, DraPartitions
from ..model.entry import Entry
from ..model.geometry import PartitionChoice
from ..model.names import domain_and_name
from ..model.problem import KeyPath, Override, Problem, did_you_mean, errors, listed
from ..model.section import NO_VALUE, FileMapping, templates
from ..model.spec import Spec
from ..model.telemetry import EntryTelemetry, Telemetry
from ..model.template import ATTRIBUTE, parse
from ..model.virtual import NO_PRESET, Preset, VirtualDevices
from ..planning.partitions import MAX_COUNTERS, counters
from .entry_checks import check_entry, check_links, check_numa
from .fault_checks import check_rule, check_rules
from .file_checks import check_file, notices
from .loader import Document, FileText, FileTexts, overlaid, read, read_text
from .messages import ITEM_LISTS, ProblemReport, explained, scope_of, stands_alone
from .origins import Origin, origins
from .parser import in_order
from .partitions import check_partitioning, chosen_layouts, partitions
from .presets import load_preset


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be served."""

    spec: Spec
    problems: tuple[Problem, ...] = ()  # warnings and, when loaded in part, the errors of the parts that were left out
    fingerprint: str = ""  # equal for files of equal content with equal overrides
    texts: FileTexts = field(default_factory=FileTexts)  # the files that it was read from
    origins: Callable[[], tuple[Origin, ...]] = field(default=tuple, compare=False, repr=False)  # of every value
    # Facts about the file that a user should know, but that are not problems.
    notices: Callable[[], tuple[Problem, ...]] = field(default=tuple, compare=False, repr=False)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if not problem.is_error)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The errors of items that were left out; empty unless loaded in part."""
        return errors(self.problems)


NO_OVERRIDES: Mapping[str, Override] = {}


def load(
    sources: Sequence[FileText | Path | str],
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    texts: FileTexts | None = None,
    partial: bool = False,
) -> Loaded:
    """Load and check files, given by path or with their text, and join them by their top-level sections.

    `overrides` maps paths such as `flags.migStrategy` to values that take precedence over the files. `texts` has the
    presets and layouts of an earlier load, which are not read again. With `partial`, items of `devices`,
    `sharing.*.resources` and `resources.*` with errors are left out and reported, and the others are served. Raises
    ConfigError with every problem found.
    """
    document = read([each if isinstance(each, FileText) else Path(each) for each in sources])
    files = texts or FileTexts(preset_dirs=tuple(preset_dirs))
    over: dict[KeyPath, Override] = {tuple(path.split(".")): override for path, override in overrides.items()}
    if over:
        document = overlaid(document, over)
    report = ProblemReport(document)
    written = _validated(document, report)
    if written.presets_dir is not None and not files.files:
        files.preset_dirs += _presets_dir(written.presets_dir, report)
    # Sensors are on by default if an entry configures them.
    asked = any(entry.telemetry is not None or entry.smi for entry in written.entries)
    telemetry = written.telemetry or (Telemetry() if asked else None)
    for entry in written.entries:
        check_entry(entry, report.of(entry))
    entries = tuple(
        _resolved(entry, files, report.of(entry), is_measured=telemetry is not None) for entry in written.entries
    )
    spec = written.model_copy(update={"entries": entries, "telemetry": telemetry})
    check_file(spec, report)
    rules = _rules(spec.faults, spec, report, spec.faults.seed)
    named = tuple(each.file for each in (*files.presets.values(), *files.layouts.values()))
    in_files = (problem for _, problem in report.in_files)
    problems = in_order((*report.problems, *in_files), (*(each.file for each in document.texts), *named))
    broken = report.broken()
    if broken and not (partial and all(stands_alone(scope) for scope in broken)):
        raise ConfigError(problems, named=named)
    served = spec.only(lambda item: item.where.path not in broken) if broken else spec
    return Loaded(
        served.model_copy(update={"faults": spec.faults.model_copy(update={"rules": rules})}),
        problems,
        hashlib.sha256(json.dumps(document.root, sort_keys=True).encode()).hexdigest()[:16],
        FileTexts(document.texts, files.presets, files.layouts),
        origins=functools.partial(origins, written, document, over),
        notices=functools.partial(notices, spec, document),
    )


def load_text(text: str, name: str = "<text>", **options: Any) -> Loaded:
    """Like `load`, for the text of one file. Raises ConfigError."""
    return load([FileText(name, text)], **options)


def load_rules(text: str, name: str, spec: Spec) -> tuple[FaultRule, ...]:
    """Load fault rules for the configuration `spec` from a text: a mapping with `rules`, or a single rule.

    The default seed is that of the configuration. Raises ConfigError.
    """
    document = read_text(text, name, has_rules=True)
    report = ProblemReport(document)
    section = _validated(document, report).faults
    seed = section.seed if "seed" in section.model_fields_set else spec.faults.seed
    rules = _rules(section, spec, report, seed)
    if "kernel_log" in section.model_fields_set:
        report.error(("faults", "kernelLog"), "a file of rules cannot set it", "set it in the configuration")
    if report.broken():
        raise ConfigError(in_order(report.problems, [name]))
    return rules


def _rules(section: Faults, spec: Spec, report: ProblemReport, seed: int) -> tuple[FaultRule, ...]:
    """Return the checked fault rules for the devices of `spec`. If there are errors in the report, ignore them."""
    rules = tuple(rule.model_copy(update={"seed": seed}) for rule in section.rules)
    for rule in rules:
        check_rule(rule, report.of(rule))
    if rules and all(scope[:1] == ("faults",) for scope in report.broken()):
        check_rules(rules, spec, report)
    return rules


def _presets_dir(name: str, report: ProblemReport) -> tuple[Path, ...]:
    """Return the directory that the file names, relative to the file; nothing if it does not exist."""
    path = ("presetsDir",)
    directory = Path(report.document.value_place(path).file).parent / name
    if os.path.isdir(directory):  # Path.is_dir raises for a name that is not allowed
        return (directory,)
    report.error(path, f"{directory} is not a directory")
    return ()


# --- documents to models ----------------------------------------------------------------------------------------------

_STRICT = frozenset({"devices", "faults", "node"})
"""Sections in which each key needs a value. NVIDIA's sections are read as NVIDIA's plugin reads them."""


def _validated(document: Document, report: ProblemReport) -> Spec:
    """Return the configuration of a document. Invalid values are reported and left out; the rest is still checked."""
    report.problems += document.problems
    gone: set[KeyPath] = set()
    while True:
        try:
            return Spec.model_validate(_without(document.root, gone, ()))
        except ValidationError as invalid:
            found = list(explained(invalid, document, Spec))
        # A list from which all items were removed is not an error.
        shortened = {path[:-1] for path in gone} & {*ITEM_LISTS}
        # In a file for NVIDIA's plugin, unknown keys are ignored, and the rest is validated without them.
        ignored = [each for each in found if not each.is_error]
        report.problems += (each for each in ignored or found if each.path not in shortened)
        wrong = {each.path for each in ignored} or {scope_of(each.path) for each in found}
        assert not wrong <= gone, "each turn leaves something out"
        gone |= wrong


def _without(tree: Any, gone: Collection[KeyPath], path: KeyPath) -> Any:
    """Copy mappings and lists without the values at these paths. Keys that need a value get NO_VALUE."""
    match tree:
        case dict():
            values = FileMapping(
                {key: _without(value, gone, (*path, key)) for key, value in tree.items() if (*path, key) not in gone}
            )
            if isinstance(tree, FileMapping):  # not from an override
                values.where = tree.where
            return values
        case list():
            items = (((*path, number), item) for number, item in enumerate(tree))
            return [_without(item, gone, at) for at, item in items if at not in gone]
        case None if len(path) > 1 and path[0] in _STRICT and isinstance(path[-1], str):
            return NO_VALUE
        case _:
            return tree


# --- values of presets and layouts, and the vendors' conventions ------------------------------------------------------

_NVIDIAS_COUNTERS = 7  # for engines, multiprocessors and memory, even if a geometry does not need them
_DRIVERS = {"nvidia.com": "gpu.nvidia.com", "amd.com": "gpu.amd.com"}
"""The vendors' driver names, by the domain of the resources of their device plugins."""


def _resolved(entry: Entry, files: FileTexts, report: ProblemReport, *, is_measured: bool) -> Entry:
    """Return the entry with the values of its preset and of its file of layouts, one of `files`.

    `is_measured`: sensors are on. Real devices have sensors only if the entry gives `telemetry`. With errors in the
    report, ignore the result.
    """
    if entry.virtual is not None:
        virtual = _virtual(entry.virtual, files, report.at("virtual"))
        if virtual is None:
            return entry  # the other checks need the preset
        environment = entry.visible_devices_env or virtual.model.visible_devices_env
        entry = entry.model_copy(update={"virtual": virtual, "visible_devices_env": environment})
    _check_templates(entry, report)
    if entry.smi and entry.vendor is None:
        hint = "leave smi out, or use a preset of NVIDIA or AMD"
        report.error("smi", "these devices have no smi: only presets of NVIDIA and AMD do", hint)
    has_sensors = is_measured and (entry.virtual is not None or entry.telemetry is not None)
    entry = entry.model_copy(
        update={
            "dra": _dra(entry, report) if ClaimApi.DRA in entry.advertise else None,
            "telemetry": (entry.telemetry or EntryTelemetry()) if has_sensors else None,
            "smi": is_measured if entry.smi is None else entry.smi,
        }
    )
    at_partitions = report.at("partitions")
    if isinstance(entry.wanted_partitions, PartitionChoice):
        choice = chosen_layouts(entry.wanted_partitions, entry.virtual, files, at_partitions)
        return entry.model_copy(update={"wanted_partitions": choice, "partitions": choice.initial})
    if not entry.wanted_partitions:
        return entry
    count = entry.virtual.count if entry.virtual else 0
    parts = partitions(entry.wanted_partitions, entry.geometry, count, at_partitions)
    return entry.model_copy(update={"partitions": parts})


# --- virtual devices --------------------------------------------------------------------------------------------------


def _virtual(given: VirtualDevices, files: FileTexts, report: ProblemReport) -> VirtualDevices | None:
    """Return the block `virtual` with the values of its preset, or None if the block has errors."""
    preset: Preset | None = NO_PRESET
    if given.preset:
        try:
            preset = load_preset(given.preset, files)
        except ConfigError as bad:
            preset = None
            report.errors_in_file("preset", bad)
    own = given.partitioning
    if (own and not check_partitioning(own, report.at("partitioning"))) or preset is None:
        return None
    count = given.count if "count" in given.model_fields_set else len(given.ids) or preset.count or 1
    if given.ids and len(given.ids) != count:
        report.error("ids", f"{len(given.ids)} ids for {count} devices", "give one for each, or leave out count")
        return None
    if preset.count and count > preset.count:
        hint = "for more devices, use the preset of the device, not of a whole node"
        report.error("count", f"the preset {preset.name!r} has only {preset.count} devices, not {count}", hint)
    if "numa" in given.model_fields_set:
        check_numa(given.numa, count, report.at("numa"))
    if given.link_rows:
        check_links(given.link_rows, count, report.at("links"))
    return given.resolved(preset, count=count)


# --- templates --------------------------------------------------------------------------------------------------------


def _check_templates(entry: Entry, report: ProblemReport) -> None:
    """Report placeholders for attributes that the entry's devices do not have."""
    attributes = entry.attribute_names
    for at, template in (*templates(entry), (("resource",), parse(entry.resource))):
        # The paths of real devices' nodes are rendered by discovery, with the node as `base`.
        known = attributes | {"base"} if at[0] in ("glob", "sysfs", "usb") else attributes
        for name in (each.removeprefix(ATTRIBUTE) for each in template.names if each.startswith(ATTRIBUTE)):
            if name not in known:
                words = sorted(known) or ["none"]
                hint = listed(words, did_you_mean(name, known), lead="the device's attributes:")
                report.error(at, f"unknown attribute {name!r}", hint)


# --- Dynamic Resource Allocation --------------------------------------------------------------------------------------


def _dra(entry: Entry, report: ProblemReport) -> Dra:
    """Return the block `dra` with the driver that publishes the devices, and the conventions of that driver."""
    block, here = entry.dra or Dra(), report.at("dra")
    is_dynamic = block.partitions is DraPartitions.DYNAMIC
    if is_dynamic:
        _check_dynamic(entry, here.at("partitions"))
    vendor = domain_and_name(entry.virtual.model.resource)[0] if entry.virtual else ""
    driver = block.driver or _DRIVERS.get(vendor, domain_and_name(entry.resource)[0])
    if problem := names.driver_problem(driver):
        report.error("resource", f"the domain cannot be the name of a driver: {problem}", "give dra.driver")
    for name in (name for name, each in block.capacity.items() if is_dynamic and each.request_policy):
        message = "claims do not share devices whose partitions are dynamic"
        here.key_error(("capacity", name, "requestPolicy"), message, "remove the key, or set partitions to static")
    # NVIDIA's Ampere GPUs cannot change their MIG mode without a reset.
    is_ampere = entry.is_nvidia and entry.virtual and entry.virtual.attributes.get("architecture") == "ampere"
    has_fixed_mode = is_dynamic and is_ampere
    if block.mig_enabled is not None and not has_fixed_mode:
        message = "has no effect here: it is for NVIDIA's Ampere presets with partitions: dynamic"
        here.key_error("migEnabled", message, "remove the key")
    extended = entry.is_nvidia if block.extended_resource is None else block.extended_resource
    mig_enabled = block.mig_enabled is not False if has_fixed_mode else None
    return block.model_copy(update={"driver": driver, "mig_enabled": mig_enabled, "extended_resource": extended})


def _check_dynamic(entry: Entry, report: ProblemReport) -> None:
    if entry.geometry is None:
        hint = "give virtual.partitioning, or a preset that has partitions"
        report.error((), "these devices cannot be partitioned", hint)
    elif entry.geometry.whole_device:
        message = "all partitions of such a device are alike, which the counters of ResourceSlices cannot express"
        report.error((), message, "use static, with the entry's partitions")
    else:
        room = MAX_COUNTERS - (_NVIDIAS_COUNTERS if entry.is_nvidia else 0)
        needed = len(counters(entry.geometry).all)
        if needed > room:
            message = (
                f"these devices need {needed} counters for their slices and limits, and a ResourceSlice has {room}"
            )
            report.error((), message, "use static, or a partitioning with fewer slices")
