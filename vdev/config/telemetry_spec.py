"""The keys `telemetry` and `smi`: what must fit together, and whose devices are measured."""

from ..model.problem import KeyPath
from ..model.sources import VirtualSource
from ..model.telemetry import EntryTelemetry, LoadPattern, Measured, SmiTool, Telemetry
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


_TOOLS = {"nvidia.com/gpu": SmiTool.NVIDIA, "amd.com/gpu": SmiTool.AMD}
"""By the resource under which the maker's own plugin advertises."""


def telemetry(file: ConfigFile) -> Telemetry | None:
    """What is told of all devices; None where nobody asks for what they measure."""
    asked = any(entry.telemetry is not None or entry.smi for entry in file.devices)
    return file.telemetry or (Telemetry() if asked else None)


def measured(model: Entry, resolved: ResolvedSource) -> Measured:
    """How an entry's devices are loaded, and what they are like."""
    return Measured(model.telemetry or EntryTelemetry(), resolved.physics, _maker(resolved))


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
