"""The file as a whole: numbers of devices, flags, keys without effect, and a file without devices."""

import re
from collections.abc import Mapping

from ...core.model.dra import ClaimApi
from ...core.model.place import KeyPath
from ...core.model.syntax.names import visible_devices_env
from ...core.spec import DeviceListStrategy, EntrySpec, MigStrategy, VirtualSource
from ..report import ProblemReport
from ..schema.config_file import ANNOTATION_PREFIX, ConfigFile
from ..schema.devices.sources import MAX_COUNT
from ..validation import Validated
from .entries import Entries

MAX_TOTAL = 1_000_000  # devices of a node, over all resources: about a gigabyte of memory
_LIMIT = f"the kubelet accepts lists of up to 4 MiB, about {MAX_COUNT} devices"


def check_sizes(validated: Validated, compiled: Mapping[KeyPath, EntrySpec], report: ProblemReport) -> None:
    """Numbers of devices that no list can hold, refused before anything creates them.

    The exact limit is in bytes and judged by `core.inventory.resources`. Entries for some nodes only may never be on
    one node.
    """
    counts: dict[str, int] = {}
    for path, entry in compiled.items():
        if isinstance(entry.source, VirtualSource) and not entry.on_nodes and entry.listed:
            before = counts.get(entry.resource, 0)
            counts[entry.resource] = before + entry.source.count
            if before <= MAX_COUNT < counts[entry.resource]:
                report.error((*path, "virtual"), f"{entry.resource} has {counts[entry.resource]} devices", _LIMIT)
    if (total := sum(counts.values())) > MAX_TOTAL:
        report.error(("devices",), f"a node would have {total} devices", f"at most {MAX_TOTAL} are allowed")
    model = validated.file.sharing
    for key, block in (("timeSlicing", model.time_slicing), ("mps", model.mps)):
        for path, item in validated.items(("sharing", key, "resources"), block.resources if block else ()):
            known = counts.get(item.name, 1)
            shared = min(known, item.devices) if isinstance(item.devices, int) else known
            shared = len(item.devices) if isinstance(item.devices, tuple) else shared
            if shared * item.replicas > MAX_COUNT:
                message = f"{shared} devices of {item.name} shared by {item.replicas} make {shared * item.replicas}"
                report.error((*path, "replicas"), message, _LIMIT)


def check_flags(
    validated: Validated, models: Entries, compiled: Mapping[KeyPath, EntrySpec], report: ProblemReport
) -> None:
    """The flags against each other, and against the entries."""
    model = validated.file.flags
    is_none = model.mig_strategy is MigStrategy.NONE and ("flags",) not in report.broken()
    for path, entry_ in models:
        if is_none and entry_.partitions and ClaimApi.DEVICE_PLUGIN in entry_.advertise:
            message = f"the partitions of {entry_.name} are not advertised under migStrategy none"
            report.warning((*path, "partitions"), message, "set flags.migStrategy to single or mixed")
    for key, value in (("mpsRoot", model.mps_root), ("nvidiaDevRoot", model.nvidia_dev_root)):
        if value and not value.startswith("/"):
            report.error(("flags", key), f"{value!r} is not an absolute path; it must start with '/'")
    chosen = set(model.plugin.device_list_strategy)
    if not chosen:
        hint, instead = "name at least one, or leave the key out", "containers get no list, as from NVIDIA's plugin"
        report.unless_for_nvidia(("flags", "plugin", "deviceListStrategy"), "the list is empty", hint, instead)
    prefix = model.plugin.cdi_annotation_prefix
    if not re.fullmatch(ANNOTATION_PREFIX, prefix):
        message = f"{prefix!r} is not the beginning of an annotation's key"
        hint, instead = "expected one such as cdi.k8s.io/", "it is used all the same, as by NVIDIA's plugin"
        report.unless_for_nvidia(("flags", "plugin", "cdiAnnotationPrefix"), message, hint, instead)
    if chosen and model.plugin.pass_device_specs and all(each.is_cdi for each in chosen):
        message = "passDeviceSpecs has no effect where only CDI strategies are on"
        report.warning(("flags", "plugin", "passDeviceSpecs"), message, "the nodes are in the CDI specification")
    if {DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI} <= chosen:
        message = "cdi-annotations and cdi-cri together inject every device twice"
        report.warning(("flags", "plugin", "deviceListStrategy"), message, "one of them is enough")
    if not all(each.is_cdi for each in chosen):
        _variables(compiled, report)


def _variables(compiled: Mapping[KeyPath, EntrySpec], report: ProblemReport) -> None:
    """A warning for resources whose device lists would have one variable: a container with both sees one list."""
    first: dict[str, EntrySpec] = {}
    for path, entry in compiled.items():
        if entry.visible_devices_env or entry.template or not entry.listed:
            continue
        variable = visible_devices_env(entry.resource)
        other = first.setdefault(variable, entry)
        if other.resource != entry.resource:
            message = (
                f"{entry.resource} and {other.resource} have the variable {variable}: a container sees one of them"
            )
            report.warning((*path, "resource"), message, "set visibleDevicesEnv on one of the entries")


def check_emptiness(validated: Validated, report: ProblemReport) -> None:
    """A warning for a file without devices, which advertises nothing."""
    if not validated.file.devices and not report.broken():
        report.warning((), "no devices are declared, so nothing will be advertised", "list them under devices")


_UNUSED: Mapping[tuple[str, ...], str] = {
    ("flags", "useNodeFeatureAPI"): "it is an option of GPU feature discovery",
    ("flags", "deviceDiscoveryStrategy"): "devices come from the section 'devices'",
    ("flags", "plugin", "nvidiaCTKPath"): "no CDI hooks are needed",
    ("flags", "plugin", "containerDriverRoot"): "no driver is looked for",
    ("flags", "gfd"): "these are options of GPU feature discovery",
    ("imex",): "virtual devices have no IMEX channels",
}
_NO_WISH: tuple[object, ...] = (None, {}, [], "false", "auto", "/usr/bin/nvidia-ctk", "/driver-root")


def unused_keys(model: ConfigFile, report: ProblemReport) -> None:
    """A warning for each NVIDIA key that is given, asks for something, and is not used."""
    used = {("flags", "gfd", "noTimestamp")} if model.node.labels else set()
    for path, reason in _UNUSED.items():
        value: object = report.document.root
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        given = {(*path, key): item for key, item in value.items()} if isinstance(value, dict) else {path: value}
        for each, item in given.items():
            if item not in _NO_WISH and each not in used:
                report.warning(each, f"{each[-1]} is accepted and not used: {reason}")
