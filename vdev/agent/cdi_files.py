"""vdev's CDI specifications on disk: `vdev-*.json`, each written, repaired and removed separately.

A file that cannot be written does not affect the others. A file that something else deletes or changes is written again
at once, but not again before a pause.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog

from ..aio.clock import Timing
from ..errors import HostError
from ..hostfs import HostRoot, read_plain, remove_unfinished, write_atomic
from ..planning import allocation, cdi
from ..planning.plan import DesiredState
from .host_files import HostFiles

log = structlog.get_logger(__name__)

_OURS = "vdev-*.json"
_MAX_BYTES = 2**26  # of a file that an earlier process left: tens of thousands of devices

_Name = tuple[str, str]  # kind, device name
_Device = Mapping[str, Any]  # of a document


class CdiFiles(HostFiles[_Name, _Device]):
    """The files of one directory. A device whose name is not in its file is undeliverable."""

    name = "writing CDI specifications"

    def __init__(self, directory: Path, timing: Timing) -> None:
        super().__init__({directory}, timing)
        self.directory = directory
        self._documents: list[cdi.Document] | None = None  # the wanted content of our files; None: not read yet
        self._texts: dict[str, bytes] = {}  # the text that was read or written last, by file name
        self._repair_at: dict[str, float] = {}  # when a file may be repaired again, by file name

    @property
    def trouble(self) -> str:
        """Why containers may not get their devices, or the empty string."""
        return "; ".join(dict.fromkeys(self.failed.values()))

    def wanted(self, plan: DesiredState) -> Mapping[_Name, _Device]:
        return _devices(plan.cdi.values())

    def present(self, wanted: Mapping[_Name, _Device]) -> Collection[_Name]:
        del wanted
        if self._documents is None:
            self._documents = self._read()
        return _devices(self._documents).keys()

    def in_use(self, left: Collection[_Name], plan: DesiredState) -> Collection[_Name]:
        named = {(kind, name) for kind, name, _, _ in allocation.cdi_members(plan.observed.previous.advertised)}
        devices = _devices(self._documents or ())
        return [name for name in left if name in named or not plan.is_free(cdi.device_id(devices[name]))]

    def withheld(self, plan: DesiredState) -> Mapping[str, str]:
        members = allocation.cdi_members(plan.advertised)
        return {device.raw.id: why for kind, name, _, device in members if (why := self.failed.get((kind, name)))}

    def make(
        self, plan: DesiredState, wanted: Mapping[_Name, _Device], kept: frozenset[_Name], gone: frozenset[_Name]
    ) -> Mapping[_Name, str]:
        del wanted, gone
        before = {cdi.file_name(each["kind"]): each for each in self._documents or ()}
        documents = cdi.with_leftovers(plan.cdi, self._documents or (), kept) if kept else plan.cdi
        self._documents = list(documents.values())
        texts: dict[str, bytes] = {}
        for kind, document in documents.items():
            name, text = cdi.file_name(kind), (json.dumps(document, indent=2) + "\n").encode()
            fault = plan.observed.cdi_faults.get(name)
            if fault != "missing":
                texts[name] = text[: len(text) // 2] if fault == "broken" else text
        failed: dict[_Name, str] = {}
        for name in self._texts.keys() - texts.keys():
            if (reason := self._remove(name)) and name in before:
                self._documents.append(before[name])
                failed |= dict.fromkeys(_devices([before[name]]), reason)
        if texts:
            self.directory.mkdir(parents=True, exist_ok=True)
        for kind, document in documents.items():
            file = cdi.file_name(kind)
            if file in texts and (reason := self._write(file, texts[file])):
                # A runtime reads the old file, so only devices that differ from it or are not in it are undeliverable.
                old = _document(_content(self.directory / file))
                on_disk, edits = _devices([old] if old else ()), _devices([document])
                why = f"its CDI specification cannot be written: {reason}"
                failed |= {name: why for name, each in edits.items() if on_disk.get(name) != each}
        return failed

    def _read(self) -> list[cdi.Document]:
        """Return the specifications that earlier processes left, with any name in `_OURS`. Raises HostError."""
        documents: list[cdi.Document] = []
        remove_unfinished(self.directory, "vdev-")
        for name, is_directory in sorted(HostRoot().entries(str(self.directory.absolute()))):
            path = self.directory / name
            if path.match(_OURS) and not is_directory:
                text = self._texts[path.name] = _content(path)
                if document := _document(text):
                    documents.append(document)
                else:
                    log.warning("invalid CDI specification of an earlier process ignored", file=str(path))
        return documents

    def _write(self, name: str, text: bytes) -> str:
        """Write the file unless it has this text; return why it could not be written, or the empty string."""
        path = self.directory / name
        if _content(path) == text:
            self._texts[name] = text
            return ""
        if self._texts.get(name) == text:
            now = self._clock.now()
            if now < self._repair_at.get(name, now):
                return f"something else keeps deleting or changing {path}; it is written again after a pause"
            self._repair_at[name] = now + self._intervals.retry_host_files
            log.warning("CDI specification deleted or changed by something else", file=str(path))
        try:
            write_atomic(path, text)
        except HostError as failed:
            return str(failed)
        self._texts[name] = text
        log.info("CDI specification written", file=str(path))
        return ""

    def _remove(self, name: str) -> str:
        """Remove a file; return why that failed, or the empty string."""
        path = self.directory / name
        try:
            path.unlink(missing_ok=True)
        except OSError as cause:
            return f"cannot remove {path}, which is no longer needed: {cause.strerror}"
        log.info("CDI specification removed", file=str(path))
        del self._texts[name]
        return ""


def _devices(documents: Iterable[cdi.Document]) -> dict[_Name, _Device]:
    return {(document["kind"], device["name"]): device for document in documents for device in document["devices"]}


def _content(path: Path) -> bytes:
    """Return the content of a plain file, empty for any other kind."""
    try:
        return read_plain(path, limit=_MAX_BYTES, follow=False) or b""
    except HostError:
        return b""


def _document(text: bytes) -> cdi.Document | None:
    """Return vdev's specification in this text, or None."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if cdi.is_document(document) else None
