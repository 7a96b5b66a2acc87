"""The load of an entry's devices: keys that need each other."""

from ..model.entry import VirtualSource
from ..model.problem import KeyPath
from ..model.telemetry import NOTHING, EntryTelemetry, LoadPattern, LoadSpec, Range, SmiTool, TelemetrySpec
from . import telemetry_block as schema
from .config_file import ConfigFile
from .entry import Entry
from .messages import ProblemReport
from .virtual_block import ResolvedSource

_UNTIMED = (LoadPattern.IDLE, LoadPattern.STEADY)


def check_telemetry(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    """Report keys that have no meaning for the pattern of the entry."""
    block = model.telemetry
    if block is None:
        return
    path = (*path, "telemetry")
    if block.pattern in _UNTIMED and block.period is not None:
        report.key_error((*path, "period"), f"{block.pattern} has no period", "leave it out")
    if block.pattern is LoadPattern.IDLE:
        for key in ("gpu", "memory", "encoder", "decoder"):
            if getattr(block, key) is not None:
                report.key_error((*path, key), f"idle devices have no load, so {key} has no effect")


_PERIOD = 60.0  # seconds
_BUSY = LoadSpec()
_DEFAULTS = {  # of `gpu` and `memory`
    LoadPattern.IDLE: (NOTHING, NOTHING),
    LoadPattern.STEADY: (Range(70, 70), Range(55, 55)),
    LoadPattern.BUSY: (_BUSY.gpu, _BUSY.memory),
    LoadPattern.BURST: (Range(5, 95), Range(10, 80)),
    LoadPattern.WAVE: (Range(10, 90), Range(30, 60)),
    LoadPattern.RAMP: (Range(0, 100), Range(0, 80)),
}
_TOOLS = {"nvidia.com/gpu": SmiTool.NVIDIA, "amd.com/gpu": SmiTool.AMD}
"""By the resource under which the maker's own plugin advertises."""


def telemetry(file: ConfigFile) -> TelemetrySpec:
    """What is told of all devices."""
    model = file.telemetry or schema.Telemetry()
    return TelemetrySpec(
        on=is_on(file),
        address=model.address or "",
        hostname_label=model.hostname_label,
        annotations=model.pod_annotations,
    )


def is_on(file: ConfigFile) -> bool:
    """Whether anything asks for what devices measure."""
    return file.telemetry is not None or any(entry.telemetry is not None or entry.smi for entry in file.devices)


def entry_telemetry(model: Entry, resolved: ResolvedSource) -> EntryTelemetry:
    """How an entry's devices are loaded, and what they are like."""
    block = model.telemetry or schema.EntryTelemetry()
    gpu, memory = _DEFAULTS[block.pattern]
    load = LoadSpec(
        pattern=block.pattern,
        period=block.period or (_BUSY.period if block.pattern is LoadPattern.BUSY else _PERIOD),
        gpu=block.gpu or gpu,
        memory=block.memory or memory,
        encoder=block.encoder or NOTHING,
        decoder=block.decoder or NOTHING,
        always=block.always,
    )
    return EntryTelemetry(load, resolved.physics, _maker(resolved))


def smi_tool(
    model: Entry, resolved: ResolvedSource, path: KeyPath, report: ProblemReport, *, on: bool
) -> SmiTool | None:
    """The tool that containers get to look at the devices with; by default that of the maker, once `on`."""
    tool = _maker(resolved)
    if model.smi and tool is None and not resolved.lacks_preset:
        hint = "leave smi out, or use a preset of NVIDIA or AMD"
        report.error((*path, "smi"), "these devices have no smi: only presets of NVIDIA and AMD do", hint)
    return tool if (on if model.smi is None else model.smi) else None


def _maker(resolved: ResolvedSource) -> SmiTool | None:
    return _TOOLS.get(resolved.source.maker_resource) if isinstance(resolved.source, VirtualSource) else None
