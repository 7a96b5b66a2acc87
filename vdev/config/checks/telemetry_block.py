"""The load of an entry's devices: keys that need each other."""

from ...core.model.place import KeyPath
from ...core.model.telemetry import LoadPattern
from ..report import ProblemReport
from ..schema.devices.entry import Entry

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
