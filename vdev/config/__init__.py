"""The configuration: files, environment and flags to one checked `core.spec.Spec`.

    load       files -> document (tree)              place      positions, findings, their order
    read       tree -> models (schema, sources)      explain    pydantic's errors in a person's words
    compile    models -> core values (virtual)       check      what must fit together
    nvidia     what NVIDIA's files need              effective  where each value came from
    publish    the schema for editors
    faults     failures on demand: faultcheck, faultworld (what must fit), faultrules (to core values)

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
from . import check, compile, effective, faultrules, nvidia  # noqa: A004  # the module's name is its verb
from .effective import Origin, render
from .explain import MAX_FINDINGS
from .load import Document, join, overlaid, read_file, read_text
from .place import in_order, problem_document
from .publish import json_schema, json_schema_text
from .read import Report, read, stands_alone
from .tree import Plain
from .types import Duration

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
        check.entry(model, path, report)
    check.entries(devices, report)
    compiled = {path: compile.entry(model, path, dirs, report) for path, model in devices}
    flags = compile.flags(reading.file.flags)
    check.flags(reading, devices, report)
    check.sharing(reading, devices, compile.partition_names(compiled.values(), flags), report)
    check.sizes(reading, compiled, report)
    check.emptiness(reading, report)
    report.findings += nvidia.unused(document)
    whole = Spec(
        entries=tuple(compiled.values()),
        flags=flags,
        sharing=compile.sharing(reading, report, frozenset()),
        gpu_patterns=compile.patterns(reading, "gpus", report, frozenset()),
        mig_patterns=compile.patterns(reading, "mig", report, frozenset()),
    )
    faults = faultrules.section(reading, whole, report)

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
        sharing=compile.sharing(reading, report, broken),
        gpu_patterns=compile.patterns(reading, "gpus", report, broken),
        mig_patterns=compile.patterns(reading, "mig", report, broken),
        faults=faults,
    )
    return Loaded(spec, problems, effective.origins(reading, document, over), _fingerprint(document))


def load_rules(text: str, name: str, spec: Spec) -> FaultSpec:
    """The fault rules of a text that stands beside the configuration `spec`: `rules` with a list, or a single rule.

    Without a seed of its own it has that of the configuration. Raises ConfigError.
    """
    document = faultrules.as_section(read_text(text, name))
    report = Report(document)
    reading = read(document, report)
    rules = faultrules.section(reading, spec, report)
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
