"""A document to a checked `Spec`: validate, check, compile; what has errors is refused or left out."""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import ConfigError
from ..faults.rules import FaultRule
from ..model.entry import EntrySpec
from ..model.fleet import NO_FLEET
from ..model.problem import KeyPath, Override, Problem, error, errors
from ..model.spec import PatternItem, Spec, TimeSlicing
from ..model.telemetry import Telemetry
from . import fault_checks, file_checks
from .config_file import ConfigFile
from .entry_checks import check_entries, check_entry, check_sharing, partition_names
from .entry_spec import entry_spec
from .fault_checks import check_rule
from .file_checks import check_node
from .layouts import LayoutFiles
from .loader import Document, Texts, overlaid
from .messages import MAX_PROBLEMS, ProblemReport, stands_alone
from .origins import Origin, origins
from .parser import Tree, in_order
from .presets import PresetTexts
from .validation import Validated, validate


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be served.

    `problems` holds warnings and, when loaded in part, the errors of what was left out. `fingerprint` is equal for
    files of equal content under equal overrides. `texts` is what it was read from.
    """

    spec: Spec
    problems: tuple[Problem, ...] = ()
    fingerprint: str = ""
    texts: Texts = field(default_factory=Texts)
    find_origins: Callable[[], tuple[Origin, ...]] = field(default=tuple, compare=False, repr=False)
    find_notices: Callable[[], tuple[Problem, ...]] = field(default=tuple, compare=False, repr=False)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """For each value where it came from; found when it is asked for, which the running plugin never does."""
        return self.find_origins()

    @property
    def notices(self) -> tuple[Problem, ...]:
        """What a reader of the file should hear of, though nothing is wrong; found when it is asked for."""
        return self.find_notices()

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that stop nothing."""
        return tuple(problem for problem in self.problems if not problem.is_error)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Why items were left out; empty unless loaded in part."""
        return errors(self.problems)


def built(
    document: Document,
    overrides: Mapping[str, Override],
    preset_dirs: Sequence[Path],
    *,
    partial: bool,
    known: Texts | None = None,
) -> Loaded:
    """The configuration of a document. Raises ConfigError with every problem found.

    `known` has what an earlier reading found of the user's presets and layouts; without it they are looked for.
    """
    over: dict[KeyPath, Override] = {tuple(path.split(".")): override for path, override in overrides.items()}
    document = overlaid(document, over)
    report = ProblemReport(document)
    validated = validate(document, report)
    entries = list(validated.items(("devices",), validated.file.devices))
    if known is None:
        presets = PresetTexts([*preset_dirs, *_presets_dir(validated.file.presets_dir, report)])
        layouts = LayoutFiles()
    else:
        presets, layouts = PresetTexts(known=known.presets), LayoutFiles(known=known.layouts)
    telemetry = _telemetry(validated.file)
    compiled: dict[KeyPath, EntrySpec] = {}
    for path, model in entries:
        check_entry(model, path, report)
        compiled[path] = entry_spec(model, path, presets, layouts, report, is_measured=telemetry is not None)
    check_entries(entries, report)
    flags = validated.file.flags
    file_checks.check_flags(validated, entries, compiled, report)
    check_sharing(validated, entries, partition_names(compiled.values(), flags), report)
    file_checks.check_sizes(validated, compiled, report)
    check_node(validated.file.node, entries, report)
    file_checks.check_fleet(validated.file.fleet, report)
    file_checks.check_emptiness(validated, report)
    file_checks.unused_keys(validated.file, report)

    def spec(left_out: frozenset[KeyPath]) -> Spec:
        return Spec(
            entries=tuple(entry for path, entry in compiled.items() if path not in left_out),
            flags=flags,
            sharing=_sharing(validated, report, left_out),
            gpu_patterns=_patterns(validated, "gpus", report, left_out),
            mig_patterns=_patterns(validated, "mig", report, left_out),
            node=validated.file.node,
            telemetry=telemetry,
            fleet=validated.file.fleet or NO_FLEET,
        )

    whole = spec(frozenset())
    if not report.broken():
        file_checks.check_capacity(validated.file.fleet, whole, report)
    section = validated.file.faults
    faults = section.model_copy(update={"rules": _rules(validated, whole, report, section.seed)})
    problems = in_order((*report.problems, *report.elsewhere), (*document.files, *layouts.texts))
    if len(problems) > MAX_PROBLEMS:
        more = error(document.files[0], f"there are {len(problems) - MAX_PROBLEMS} more problems")
        problems = (*problems[:MAX_PROBLEMS], more)
    broken = report.broken()
    if broken and not (partial and all(stands_alone(unit) for unit in broken)):
        raise ConfigError(problems)
    served = replace(spec(broken), faults=faults)
    return Loaded(
        served,
        problems,
        hashlib.sha256(json.dumps(document.root, sort_keys=True).encode()).hexdigest()[:16],
        Texts(document.texts, presets.own, layouts.texts),
        find_origins=functools.partial(origins, validated, document, over),
        find_notices=functools.partial(file_checks.notices, validated, document),
    )


def _telemetry(file: ConfigFile) -> Telemetry | None:
    """What is told of all devices; None where nobody asks for what they measure."""
    asked = any(entry.telemetry is not None or entry.smi for entry in file.devices)
    return file.telemetry or (Telemetry() if asked else None)


def _sharing(validated: Validated, report: ProblemReport, broken: frozenset[KeyPath]) -> TimeSlicing | None:
    """The block that is given, without its broken items; `checks` reports that both are given."""
    for key, block in validated.file.sharing.blocks[:1]:
        items = validated.items(("sharing", key, "resources"), block.resources)
        return block.sharing_only(
            item.placed(report.where(at), for_nvidia=item.is_nvidias and report.document.is_for_nvidia(at))
            for at, item in items
            if at not in broken
        )
    return None


def _patterns(
    validated: Validated, kind: str, report: ProblemReport, broken: frozenset[KeyPath]
) -> tuple[PatternItem, ...]:
    """The patterns of `resources.gpus` or `resources.mig`, without the broken ones."""
    items: tuple[PatternItem, ...] = getattr(validated.file.resources, kind)
    return tuple(
        item.placed(report.where(at), for_nvidia=report.document.is_for_nvidia(at))
        for at, item in validated.items(("resources", kind), items)
        if at not in broken
    )


def built_rules(document: Document, spec: Spec) -> tuple[FaultRule, ...]:
    """The fault rules of a document that stands beside the configuration `spec`. Raises ConfigError."""
    document = _as_section(document)
    report = ProblemReport(document)
    validated = validate(document, report)
    section = validated.file.faults
    seed = section.seed if "seed" in section.model_fields_set else spec.faults.seed
    rules = _rules(validated, spec, report, seed)
    if "kernel_log" in section.model_fields_set:
        report.error(("faults", "kernelLog"), "a file of rules cannot set it", "set it in the configuration")
    if report.broken():
        raise ConfigError(in_order(report.problems, document.files))
    return rules


def _as_section(document: Document) -> Document:
    """A document of rules, or of a single rule, as one that has a section `faults`."""
    if "faults" in document.root:
        return document
    lead: KeyPath = ("faults",) if "rules" in document.root else ("faults", "rules", 0)
    root: dict[str, Tree] = {"faults": document.root if lead == ("faults",) else {"rules": [document.root]}}
    top = document.value_place(())
    values = {lead[:end]: top for end in range(len(lead))} | {
        (*lead, *at): place for at, place in document.values.items()
    }
    keys = {(*lead, *at): place for at, place in document.keys.items()}
    problems = tuple(replace(each, path=(*lead, *each.path)) for each in document.problems)
    return replace(document, root=root, values=values, keys=keys, problems=problems)


def _rules(validated: Validated, spec: Spec, report: ProblemReport, seed: int) -> tuple[FaultRule, ...]:
    """The fault rules for the devices of `spec`. With errors in the report, the value is of no use."""
    rules: list[tuple[KeyPath, FaultRule]] = []
    for path, model in validated.items(("faults", "rules"), validated.file.faults.rules):
        check_rule(model, path, report)
        rules.append((path, model.loaded(report.where(path), seed)))
    if not any(each.is_error and each.path[:1] != ("faults",) for each in report.problems):
        fault_checks.check_rules(rules, spec, report)
    return tuple(rule for _, rule in rules)


def _presets_dir(name: str | None, report: ProblemReport) -> Iterator[Path]:
    """The directory that the file names, which is relative to the file."""
    if name is not None:
        path = ("presetsDir",)
        directory = Path(report.document.value_place(path).file).parent / name
        if os.path.isdir(directory):  # is_dir raises where the name cannot be looked at
            yield directory
        else:
            report.error(path, f"{directory} is not a directory")
