"""The node's labels as a file for Node Feature Discovery, whose worker adds them to the Node: no API access needed.

The format is `<label>=<value>` lines; files whose name begins with a dot are not read (NFD, source/local).
"""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import structlog

from ....core.decide import Plan
from ....errors import HostError
from ....hostfs.atomic_write import write_atomic
from ....hostfs.plain_file import read_plain
from ..base import Output

log = structlog.get_logger(__name__)

FILE = "vdev"
_MOST = 2**20  # bytes that are read of what is there


class FeaturesFile(Output):
    """Keeps `<directory>/vdev`; it is removed when labels no longer go there, and stays when the agent ends."""

    name = "writing the features file"

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._wanted: Mapping[str, str] | None = None  # None: nothing was ever wanted
        self._is_checked = False

    async def settle(self, plan: Plan) -> None:
        """Write the labels where they are others, or something took the file. Raises HostError."""
        wanted = plan.features
        if wanted is None and self._wanted is None:
            return
        if self._is_checked and wanted == self._wanted:
            return
        await asyncio.to_thread(self._write, wanted)
        self._wanted, self._is_checked = wanted, True

    def _write(self, wanted: Mapping[str, str] | None) -> None:
        if wanted is None:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            return
        text = "".join(f"{label}={value}\n" for label, value in sorted(wanted.items())).encode()
        with contextlib.suppress(HostError):
            if read_plain(self.path, limit=_MOST) == text:
                return
        write_atomic(self.path, text)
        log.info("features file written", file=str(self.path), labels=len(wanted))

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """Compare with the disk at the next `settle`; only the file itself says anything."""
        if self._wanted is None or (changed and FILE not in changed):
            return False
        self._is_checked = False
        return True

    @property
    def directories(self) -> frozenset[Path]:
        return frozenset() if self._wanted is None else frozenset({self.path.parent})
