"""Turns a document into a checked `Spec`: validate, complete, check; items with errors are refused or left out."""

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
from ..model.problem import KeyPath, Override, Problem, error, errors
from ..model.section import NO_VALUE, FileMapping
from ..model.spec import Spec
from ..model.telemetry import Telemetry
from .entry_checks import check_entry
from .fault_checks import check_rule, check_rules
from .file_checks import check_file, notices
from .loader import Document, FileText, FileTexts, overlaid, read
from .messages import ITEM_LISTS, MAX_PROBLEMS, ProblemReport, explained, scope_of, stands_alone
from .origins import Origin, origins
from .parser import in_order
from .resolution import resolved


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be served."""

    spec: Spec
    problems: tuple[Problem, ...] = ()  # warnings and, when loaded in part, the errors of the parts that were left out
    fingerprint: str = ""  # equal for files of equal content with equal overrides
    texts: FileTexts = field(default_factory=FileTexts)  # the files that it was read from
    origins: Callable[[], tuple[Origin, ...]] = field(default=tuple, compare=False, repr=False)  # of every value
    notices: tuple[Problem, ...] = ()  # facts that are worth knowing about the file, although nothing is wrong

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if not problem.is_error)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The errors of items that were left out; empty unless loaded in part."""
        return errors(self.problems)


def built(
    sources: Sequence[FileText | Path], overrides: Mapping[str, Override], files: FileTexts, *, partial: bool = False
) -> Loaded:
    """Build the configuration of these files or texts. Raises ConfigError with every problem found."""
    document = read(sources)
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
        resolved(entry, files, report.of(entry), is_measured=telemetry is not None) for entry in written.entries
    )
    spec = written.model_copy(update={"entries": entries, "telemetry": telemetry})
    check_file(spec, report)
    rules = _rules(spec.faults, spec, report, spec.faults.seed)
    names = [each.file for each in document.texts]
    problems = in_order((*report.problems, *report.elsewhere), (*names, *files.layouts))
    if len(problems) > MAX_PROBLEMS:
        more = error(names[0], f"there are {len(problems) - MAX_PROBLEMS} more problems")
        problems = (*problems[:MAX_PROBLEMS], more)
    broken = report.broken()
    if broken and not (partial and all(stands_alone(scope) for scope in broken)):
        raise ConfigError(problems)
    served = spec.only(lambda item: item.where.path not in broken) if broken else spec
    return Loaded(
        served.model_copy(update={"faults": spec.faults.model_copy(update={"rules": rules})}),
        problems,
        hashlib.sha256(json.dumps(document.root, sort_keys=True).encode()).hexdigest()[:16],
        FileTexts(document.texts, files.presets, files.layouts),
        origins=functools.partial(origins, written, document, over),
        notices=notices(spec, document),
    )


def built_rules(document: Document, spec: Spec) -> tuple[FaultRule, ...]:
    """Build the fault rules of a document for the configuration `spec`. Raises ConfigError."""
    report = ProblemReport(document)
    section = _validated(document, report).faults
    seed = section.seed if "seed" in section.model_fields_set else spec.faults.seed
    rules = _rules(section, spec, report, seed)
    if "kernel_log" in section.model_fields_set:
        report.error(("faults", "kernelLog"), "a file of rules cannot set it", "set it in the configuration")
    if report.broken():
        raise ConfigError(in_order(report.problems))
    return rules


def _rules(section: Faults, spec: Spec, report: ProblemReport, seed: int) -> tuple[FaultRule, ...]:
    """Return the checked fault rules for the devices of `spec`. If there are errors in the report, ignore them."""
    rules = tuple(rule.seeded(seed) for rule in section.rules)
    for rule in rules:
        check_rule(rule, report.of(rule))
    if rules and not any(each.is_error and each.path[:1] != ("faults",) for each in report.problems):
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
    """The configuration of a document. What is invalid is reported and left out, and the rest is checked too."""
    report.problems += document.problems
    gone: set[KeyPath] = set()
    while True:
        try:
            return Spec.model_validate(_without(document.root, gone, ()))
        except ValidationError as invalid:
            found = list(explained(invalid, document, Spec))
        # If nothing is left of a list, that is no error.
        shortened = {path[:-1] for path in gone} & {*ITEM_LISTS}
        # In a file for NVIDIA's plugin, unknown keys are ignored, and the rest is validated without them.
        ignored = [each for each in found if not each.is_error]
        report.problems += (each for each in ignored or found if each.path not in shortened)
        wrong = {each.path for each in ignored} or {scope_of(each.path) for each in found}
        assert not wrong <= gone, "each turn leaves something out"
        gone |= wrong


def _without(tree: Any, gone: Collection[KeyPath], path: KeyPath) -> Any:
    """A copy of mappings and lists without the values at these paths; with NO_VALUE for keys that need a value."""
    match tree:
        case dict():
            values = {
                key: _without(value, gone, (*path, key)) for key, value in tree.items() if (*path, key) not in gone
            }
            return FileMapping(values, tree.where) if isinstance(tree, FileMapping) else values  # of an override
        case list():
            items = (((*path, number), item) for number, item in enumerate(tree))
            return [_without(item, gone, at) for at, item in items if at not in gone]
        case None if len(path) > 1 and path[0] in _STRICT and isinstance(path[-1], str):
            return NO_VALUE
        case _:
            return tree
