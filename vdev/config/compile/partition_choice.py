"""`partitions: {fromLabel: …}` to the core's value: the layouts that the label can choose, and the one without it.

A layout that does not fit the entry's devices stays, and fails when it is chosen: one file is for many models.
"""

from collections.abc import Mapping
from pathlib import Path

from ...core.model.place import KeyPath
from ...core.model.syntax import label_syntax
from ...core.partitions.choice import NamedLayout, PartitionChoice, generated
from ...core.partitions.geometry import nearest
from ...errors import ConfigError
from ..layouts.layout_files import LayoutFiles
from ..layouts.subject import Subject
from ..report import ProblemReport
from ..schema.devices.partitions import FromLabel

_SHOWN = 3  # layouts that a warning names


def partition_choice(
    model: FromLabel, subject: Subject, path: KeyPath, files: LayoutFiles, report: ProblemReport
) -> PartitionChoice:
    """The choice at `path`, for the devices of `subject`. With errors in the report, the value is of no use."""
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
    if wrong := label_syntax.key_problem(choice.state_label):
        report.error((*path, "fromLabel"), f"there is no label for what became of it: {wrong}", "use a shorter label")
    if model.default is not None:
        _check_default(model.default, layouts, (*path, "default"), report)
    return choice


def _check_default(name: str, layouts: Mapping[str, NamedLayout], path: KeyPath, report: ProblemReport) -> None:
    if name not in layouts:
        near = nearest(name, layouts)
        hint = f"{near} " * bool(near) + "known: " + ", ".join(layouts)
        report.error(path, f"unknown layout {name!r}", hint)
    elif refusal := layouts[name].refusal:
        report.error(path, f"the layout {name!r} does not fit: {refusal}", "choose one that fits these devices")


def _warn_of_misfits(layouts: Mapping[str, NamedLayout], file: Path, path: KeyPath, report: ProblemReport) -> None:
    """One warning for all: a file for many models has dozens."""
    misfits = [f"{name!r} ({layout.refusal})" for name, layout in layouts.items() if layout.refusal]
    if misfits:
        more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        message = f"{len(misfits)} of the {len(layouts)} layouts in {file} do not fit these devices"
        report.warning(path, f"{message}: {', '.join(misfits[:_SHOWN])}{more}", "a label that names one of them fails")
