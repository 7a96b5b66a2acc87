"""The load of an entry's devices: keys that need each other, and the file of a replay."""

from ...core.model.place import KeyPath
from ...core.model.telemetry import LoadPattern
from ...errors import ConfigError
from ..compile.telemetry_spec import replay_path
from ..replay_file import replay
from ..report import ProblemReport
from ..schema.devices.entry import Entry
from ..schema.telemetry_block import EntryTelemetry

_UNTIMED = (LoadPattern.IDLE, LoadPattern.STEADY, LoadPattern.REPLAY)


def check_telemetry(model: Entry, path: KeyPath, report: ProblemReport, *, read: bool) -> None:
    """The key `telemetry` of one entry; `read`: files that it names are looked at."""
    if model.telemetry is not None:
        _load(model.telemetry, (*path, "telemetry"), report)
        if read and model.telemetry.file is not None and model.telemetry.pattern is LoadPattern.REPLAY:
            try:
                replay(replay_path(model.telemetry.file, report, path))
            except ConfigError as bad:
                report.errors_elsewhere((*path, "telemetry", "file"), bad)


def _load(block: EntryTelemetry, path: KeyPath, report: ProblemReport) -> None:
    if block.pattern is LoadPattern.REPLAY:
        if block.file is None:
            report.error(path, "nothing says what is replayed", "give file, the path of a CSV file")
        for key, value in (("gpu", block.gpu), ("memory", block.memory)):
            if value is not None:
                report.key_error(
                    (*path, key), f"{key} and pattern replay exclude each other", "the file has the levels"
                )
    elif block.file is not None:
        report.key_error((*path, "file"), "file is for pattern replay only", "set pattern to replay")
    if block.pattern in _UNTIMED and block.period is not None:
        report.key_error((*path, "period"), f"{block.pattern} has no period", "leave it out")
    if block.pattern is LoadPattern.IDLE:
        for key in ("gpu", "memory", "encoder", "decoder"):
            if getattr(block, key) is not None:
                report.key_error((*path, key), f"idle devices have no load, so {key} has no effect")
