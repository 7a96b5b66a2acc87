"""Creates the objects from a directory of manifests (Pods and DRA objects) in the API server's store.

Objects are created and deleted with their file, so editing a file replaces its pods. `node_objects` runs the pods. The
directory is polled, so it may be on any file system.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .api.kinds import BY_NAME, Refused
from .kubelet.kubelet import Kubelet
from .objects import pod_manifest, yaml_text
from .objects.pod_manifest import ManifestError

_DRA_KINDS = ("Namespace", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(slots=True)
class _Object:
    """A manifest in a file, and the object that was created from it."""

    path: str
    line: int  # its first line
    document: Mapping[str, Any]
    created: Mapping[str, Any] | None = None  # metadata of the created object
    refused: str = ""  # the last reason for a refusal

    @property
    def is_pod(self) -> bool:
        return bool(self.document["kind"] == "Pod")


class PodDirectory:
    """Keeps objects in sync with the manifests in a directory. It is read every `interval` seconds."""

    def __init__(self, kubelet: Kubelet, path: Path | str, *, interval: float = 0.25) -> None:
        self._objects = kubelet.objects.store
        self._journal = kubelet.journal
        self._path = Path(path)
        self._interval = interval
        self._files: dict[tuple[Path, bytes], list[_Object]] = {}  # objects by file and content

    async def run(self) -> None:
        """Sync the directory periodically until cancelled."""
        while True:
            await self.sync()
            await asyncio.sleep(self._interval)

    async def sync(self) -> None:
        """Read the directory: delete the objects of removed and changed files, and create new objects."""
        found = await asyncio.to_thread(_read, self._path)
        for file in sorted(self._files.keys() - found):
            self._delete(self._files.pop(file))
        for path, content in sorted(found - self._files.keys()):
            self._files[path, content] = self._load(str(path), content)
        new = [each for objects in self._files.values() for each in objects if each.created is None]
        # Pods come last, so that their claims and classes exist.
        for each in sorted(new, key=lambda each: (each.is_pod, each.path)):
            self._create(each)

    def _load(self, path: str, content: bytes) -> list[_Object]:
        """Return the objects of a file. If the file is invalid, report it and return an empty list."""
        line, why = 1, "the file is empty: expected Pods or objects of DRA"
        try:
            objects = [_Object(path, *each) for each in yaml_text.numbered_documents(content) if each[1] is not None]
            for each in objects:
                line = each.line
                _check(each.document)
        except yaml.YAMLError as error:
            line, why = yaml_text.line_and_problem(error)
        except (ManifestError, AttributeError, RecursionError) as error:
            why = str(error)
        else:
            if objects:
                return objects
        self._journal.note_refused(path, why, line)
        return []

    def _create(self, new: _Object) -> None:
        try:
            new.created = self._objects.add(BY_NAME[new.document["kind"]], new.document)["metadata"]
        except Refused as error:
            # The next sync retries, because an old pod of this name may be Terminating.
            if new.refused != str(error):
                new.refused = str(error)
                self._journal.note_refused(new.path, str(error), new.line)

    def _delete(self, objects: Iterable[_Object]) -> None:
        for each in sorted(objects, key=lambda each: not each.is_pod):
            if (meta := each.created) is not None:
                with contextlib.suppress(Refused):  # another client has deleted it
                    kind, place = BY_NAME[each.document["kind"]], (meta.get("namespace", ""), meta["name"])
                    self._objects.delete(kind, *place, {"uid": meta["uid"]}, now=False)


def _check(document: Any) -> None:
    """Raise ManifestError if a document is neither a Pod nor a DRA object."""
    if not isinstance(document, dict) or document.get("kind") not in _DRA_KINDS:
        pod_manifest.parse(document)
    elif document.get("apiVersion") != (kind := BY_NAME[document["kind"]]).api_version:
        raise ManifestError(f"expected a {kind.kind} of {kind.api_version}, found {document.get('apiVersion')!r}")


def _read(directory: Path) -> set[tuple[Path, bytes]]:
    """Return the manifests of a directory with their content; empty if the directory does not exist. Blocks."""
    found = set()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in directory.iterdir():
            if path.suffix in _SUFFIXES and not path.name.startswith("."):
                with contextlib.suppress(OSError):
                    if path.is_file():  # reading a pipe would block
                        found.add((path, path.read_bytes()))
    return found
