"""The configuration: files, environment and flags to one checked `core.spec.Spec`.

    document/   text to a tree of values, each with its position
    schema/     keys and single values, and what each means
    validation  tree to models; what is broken is left out and reported by `messages`
    checks/     what must fit together
    compile/    models to `core.spec.Spec`, with what `presets/` describe
    origins     where each value came from      editor_schema   the JSON Schema

This module is the only face: nobody outside imports the others.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ..core.model.fault_rules import FaultSpec
from ..core.model.origin import Override
from ..core.model.problem import Problem, error
from ..core.spec import Spec
from ..errors import ConfigError, UsageError
from . import origins as effective
from .checks import entries
from .compile import entry_spec, fault_spec
from .document.loader import Document, join, overlaid, read_file, read_text
from .document.parser import Plain
from .document.position import in_order, problem_document
from .editor_schema import json_schema, json_schema_text
from .messages import MAX_FINDINGS
from .origins import Origin, render
from .schema import nvidia_forms  # the module's name is its verb
from .schema.scalars import Duration
from .validation import Report, read, stands_alone

__all__ = [
    "Loaded",
    "Origin",
    "Override",
    "duration",
    "json_schema",
    "json_schema_text",
    "load",
    "load_rules",
    "load_text",
    "problem_document",
    "render",
]

DURATION: TypeAdapter[float] = TypeAdapter(Duration)
NO_OVERRIDES: Mapping[str, Override] = {}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be served.

    `problems` holds warnings and, when loaded in part, the errors of what was left out. `origins` tells for each value
    where it came from. `fingerprint` is equal for files of equal content under equal overrides.
    """

    spec: Spec
    problems: tuple[Problem, ...] = ()
    origins: tuple[Origin, ...] = ()
    fingerprint: str = ""

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that stop nothing."""
        return tuple(problem for problem in self.problems if not problem.is_error)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Why items were left out; empty unless loaded in part."""
        return tuple(problem for problem in self.problems if problem.is_error)


def load(
    paths: Sequence[Path | str],
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    partial: bool = False,
) -> Loaded:
    """Load and check the files, joined by their top-level sections.

    `overrides` maps paths such as `flags.migStrategy` to values that win over the files. With `partial`, items of
    `devices`, `sharing.*.resources` and `resources.*` that have errors are left out and reported: a broken entry never
    takes down its neighbours. Raises ConfigError with every problem found.
    """
    documents: list[Document] = []
    problems: list[object] = []
    for path in paths:
        try:
            documents.append(read_file(Path(path), may_be_empty=len(paths) > 1))
        except ConfigError as bad:
            problems += bad.problems
    if problems:
        raise ConfigError(tuple(problems))
    if not any(document.root for document in documents):
        read_file(Path(paths[0]))  # which says what is wrong with a configuration that says nothing
    return _build(join(documents), overrides, preset_dirs, partial=partial)


def load_text(
    text: str,
    name: str = "<text>",
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    partial: bool = False,
) -> Loaded:
    """As `load`, for the text of one file. Raises ConfigError."""
    return _build(read_text(text, name), overrides, preset_dirs, partial=partial)


def _build(
    document: Document, overrides: Mapping[str, Override], preset_dirs: Sequence[Path], *, partial: bool
) -> Loaded:
    over: dict[tuple[str | int, ...], Override] = {
        tuple(path.split(".")): override for path, override in overrides.items()
    }
    document = overlaid(document, over)
    report = Report(document)
    reading = read(document, report)
    devices = list(reading.items(("devices",), reading.file.devices))
    dirs = [*preset_dirs, *_presets_dir(reading.file.presets_dir, report)]
    for path, model in devices:
        entries.entry(model, path, report)
    entries.entries(devices, report)
    compiled = {path: entry_spec.entry(model, path, dirs, report) for path, model in devices}
    flags = entry_spec.flags(reading.file.flags)
    entries.flags(reading, devices, report)
    entries.sharing(reading, devices, entry_spec.partition_names(compiled.values(), flags), report)
    entries.sizes(reading, compiled, report)
    entries.emptiness(reading, report)
    report.findings += nvidia_forms.unused(document)
    whole = Spec(
        entries=tuple(compiled.values()),
        flags=flags,
        sharing=entry_spec.sharing(reading, report, frozenset()),
        gpu_patterns=entry_spec.patterns(reading, "gpus", report, frozenset()),
        mig_patterns=entry_spec.patterns(reading, "mig", report, frozenset()),
    )
    faults = fault_spec.section(reading, whole, report)

    problems = in_order(report.findings, document.files)
    if len(problems) > MAX_FINDINGS:
        more = error(document.files[0], f"there are {len(problems) - MAX_FINDINGS} more problems")
        problems = (*problems[:MAX_FINDINGS], more)
    broken = report.broken()
    if broken and not (partial and all(stands_alone(unit) for unit in broken)):
        raise ConfigError(problems)
    spec = Spec(
        entries=tuple(entry for path, entry in compiled.items() if path not in broken),
        flags=flags,
        sharing=entry_spec.sharing(reading, report, broken),
        gpu_patterns=entry_spec.patterns(reading, "gpus", report, broken),
        mig_patterns=entry_spec.patterns(reading, "mig", report, broken),
        faults=faults,
    )
    return Loaded(spec, problems, effective.origins(reading, document, over), _fingerprint(document))


def load_rules(text: str, name: str, spec: Spec) -> FaultSpec:
    """The fault rules of a text that stands beside the configuration `spec`: `rules` with a list, or a single rule.

    Without a seed of its own it has that of the configuration. Raises ConfigError.
    """
    document = fault_spec.as_section(read_text(text, name))
    report = Report(document)
    reading = read(document, report)
    rules = fault_spec.section(reading, spec, report)
    if report.broken():
        raise ConfigError(in_order(report.findings, document.files))
    return rules if "seed" in reading.file.faults.model_fields_set else replace(rules, seed=spec.faults.seed)


def duration(text: str, what: str) -> float:
    """Seconds of a duration as the file takes them, such as 10m or 30s. Raises UsageError, which names `what`."""
    try:
        return DURATION.validate_python(Plain(text) if text.isdecimal() else text)
    except ValidationError as bad:
        details = bad.errors(include_url=False)[0]["ctx"]
        raise UsageError(f"{what}: {details['message']}; {details['hint']}") from bad


def _presets_dir(name: str | None, report: Report) -> Iterator[Path]:
    """The directory that the file names, which is relative to the file."""
    if name is not None:
        path = ("presetsDir",)
        directory = Path(report.document.value_place(path).file).parent / name
        if os.path.isdir(directory):  # noqa: PTH112  # is_dir raises where the name cannot be looked at
            yield directory
        else:
            report.error(path, f"{directory} is no directory")


def _fingerprint(document: Document) -> str:
    return hashlib.sha256(json.dumps(document.root, sort_keys=True).encode()).hexdigest()[:16]
