"""The sections other than `devices` and `faults`, without their broken items."""

from collections.abc import Iterable

from ..model.entry import EntrySpec, MigStrategy
from ..model.geometry import resource_suffix
from ..model.names import domain_and_name
from ..model.problem import KeyPath
from ..model.spec import Flags, PatternItem, TimeSlicing
from ..model.telemetry import Telemetry
from .config_file import ConfigFile
from .messages import ProblemReport
from .validation import Validated


def telemetry(file: ConfigFile) -> Telemetry | None:
    """What is told of all devices; None where nobody asks for what they measure."""
    asked = any(entry.telemetry is not None or entry.smi for entry in file.devices)
    return file.telemetry or (Telemetry() if asked else None)


def partition_names(compiled: Iterable[EntrySpec], over: Flags) -> frozenset[str]:
    """The resources under which partitions alone are advertised, with the strategy `mixed`."""
    if over.mig_strategy is not MigStrategy.MIXED:
        return frozenset()
    return frozenset(
        f"{domain_and_name(each.resource)[0]}/{resource_suffix(each.geometry, profile)}"
        for each in compiled
        if each.geometry
        for profile in each.possible_profiles
    )


def sharing(validated: Validated, report: ProblemReport, broken: frozenset[KeyPath]) -> TimeSlicing | None:
    """The block that is given, without its broken items; `checks` reports that both are given."""
    for key, block in validated.file.sharing.blocks[:1]:
        items = validated.items(("sharing", key, "resources"), block.resources)
        return block.sharing_only(
            item.placed(report.where(at), for_nvidia=item.is_nvidias and report.document.is_for_nvidia(at))
            for at, item in items
            if at not in broken
        )
    return None


def patterns(
    validated: Validated, kind: str, report: ProblemReport, broken: frozenset[KeyPath]
) -> tuple[PatternItem, ...]:
    """The patterns of `resources.gpus` or `resources.mig`, without the broken ones."""
    items: tuple[PatternItem, ...] = getattr(validated.file.resources, kind)
    return tuple(
        item.placed(report.where(at), for_nvidia=report.document.is_for_nvidia(at))
        for at, item in validated.items(("resources", kind), items)
        if at not in broken
    )
