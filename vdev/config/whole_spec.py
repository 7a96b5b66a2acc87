"""The sections other than `devices` and `faults` to the core's values: flags, sharing, names, node."""

from collections.abc import Iterable

from ..model.entry import EntrySpec, Flags, LabelOutput, MigStrategy, NodeSpec
from ..model.geometry import resource_suffix
from ..model.names import domain_and_name
from ..model.problem import KeyPath
from ..model.spec import NamePattern, SharedResource, SharingKind, SharingSpec
from ..model.telemetry import Telemetry
from . import config_file
from .messages import ProblemReport
from .validation import Validated

CHART_MPS_ROOT = "/run/nvidia/mps"
"""Where NVIDIA's Helm chart lets the MPS daemon be; the plugin alone has no default."""


def flags(file: config_file.ConfigFile) -> Flags:
    """The flags; device nodes are looked for below the driver's root where no root of their own is given."""
    model, plugin = file.flags, file.flags.plugin
    mps_root = CHART_MPS_ROOT if file.sharing.mps and "mps_root" not in model.model_fields_set else model.mps_root
    return Flags(
        mig_strategy=model.mig_strategy,
        fail_on_init_error=model.fail_on_init_error,
        driver_root=model.nvidia_driver_root,
        dev_root=model.nvidia_dev_root or model.nvidia_driver_root,
        mps_root=mps_root,
        pass_device_specs=plugin.pass_device_specs and bool(plugin.device_list_strategy),
        device_list_strategies=tuple(dict.fromkeys(plugin.device_list_strategy)),
        device_id_strategy=plugin.device_id_strategy,
        cdi_annotation_prefix=plugin.cdi_annotation_prefix,
        gdrcopy_enabled=model.gdrcopy_enabled,
        gds_enabled=model.gds_enabled,
        mofed_enabled=model.mofed_enabled,
        shared_devices_allocation_policy=plugin.shared_devices_allocation_policy,
    )


def telemetry(file: config_file.ConfigFile) -> Telemetry | None:
    """What is told of all devices; None where nobody asks for what they measure."""
    asked = any(entry.telemetry is not None or entry.smi for entry in file.devices)
    return file.telemetry or (Telemetry() if asked else None)


def node(file: config_file.ConfigFile) -> NodeSpec:
    model, gfd = file.node, file.flags.gfd
    labels = {False: LabelOutput.OFF, True: LabelOutput.NODE, config_file.NFD: LabelOutput.NFD}[model.labels]
    return NodeSpec(
        labels=labels,
        timestamp=not (gfd and gfd.no_timestamp),
        events=model.events,
        conditions=model.conditions,
        status=model.status,
    )


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


def sharing(validated: Validated, report: ProblemReport, broken: frozenset[KeyPath]) -> SharingSpec | None:
    """The block that is given, without its broken items; `checks` reports that both are given."""
    model = validated.file.sharing
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
                        devices=item.devices or None,
                        for_nvidia=item.is_nvidias and report.document.is_for_nvidia(at),
                        where=report.where(at),
                    )
                    for at, item in validated.items(("sharing", key, "resources"), block.resources)
                    if at not in broken
                ),
                rename_by_default=block.rename_by_default,
                fail_requests_greater_than_one=block.fail_requests_greater_than_one,
            )
    return None


def patterns(
    validated: Validated, kind: str, report: ProblemReport, broken: frozenset[KeyPath]
) -> tuple[NamePattern, ...]:
    """The patterns of `resources.gpus` or `resources.mig`, without the broken ones."""
    models: list[config_file.PatternItem] = getattr(validated.file.resources, kind)
    return tuple(
        NamePattern(
            pattern=item.pattern,
            name=item.name,
            for_nvidia=report.document.is_for_nvidia(at),
            where=report.where(at),
        )
        for at, item in validated.items(("resources", kind), models)
        if at not in broken
    )
