"""The CDI specification files: written before the devices in them are advertised, kept over restarts, removed when
unneeded.

Only files whose name begins with `vdev-` are ever removed. They stay when the agent ends, because a container that
restarts is given the same CDI names again.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from ..core import cdi, inject
from ..core.inventory import Inventory
from ..errors import HostError
from ..hostfs import write_atomic

log = structlog.get_logger(__name__)

_OURS = "vdev-*.json"


class CdiFiles:
    """One directory's files of ours, and what they say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trouble = ""
        self._written: dict[str, bytes] = {}

    async def write(self, inventory: Inventory) -> None:
        """Make the files say what the inventory needs. A directory that cannot be written is reported, not raised."""
        documents = inject.cdi_documents(inventory)
        if documents or self._written:
            await asyncio.to_thread(self._write, documents)

    def _write(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        wanted = {cdi.file_name(kind): _text(document) for kind, document in documents.items()}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, text in wanted.items():
                if self._written.get(name) != text:
                    write_atomic(self.directory / name, text)
                    log.info("CDI specification written", file=str(self.directory / name))
            for path in self.directory.glob(_OURS):
                if path.name not in wanted:
                    path.unlink()
                    log.info("CDI specification removed", file=str(path))
            self._written, self.trouble = wanted, ""
        except (HostError, OSError) as failed:
            self.trouble = f"cannot write CDI specifications to {self.directory}: {failed}"
            log.error("CDI specifications not written", directory=str(self.directory), reason=str(failed))  # noqa: TRY400


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
