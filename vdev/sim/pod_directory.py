"""Pods from a directory of manifests, like static pods: a file is a pod, an edited file is a new pod.

Stands in for the scheduler, too: a pod waits until the node shows enough of what it asks for, unless its manifest
names a node; then it goes straight to the kubelet. The directory is polled, so any file system will do.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from .journal import ManifestRefused, PodWaiting
from .kubelet.kubelet import Kubelet, KubeletPanic
from .objects import pod_manifest
from .objects.pod_manifest import ManifestError
from .objects.pods import PodSpec

_SUFFIXES = {".yaml", ".yml", ".json"}
_UID_SPACE = uuid.UUID("9ad1b3ad-0fd0-5b31-8f4c-1a3f2f5f0c11")
_LARGEST_MANIFEST = 1_000_000  # bytes; a Pod that the API server takes is smaller


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One file's pod. `key` is `namespace/name`; a changed file is another value."""

    document: Mapping[str, Any]
    spec: PodSpec
    bound: bool


class PodDirectory:
    """Keeps a kubelet's pods in step with a directory; `interval` seconds pass between two looks at most."""

    def __init__(self, kubelet: Kubelet, path: Path | str, *, interval: float = 0.25) -> None:
        self._kubelet = kubelet
        self._path = Path(path)
        self._interval = interval
        self._seen: dict[str, bytes] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._running: dict[str, str] = {}  # file name -> namespace/name
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._kubelet.journal.next_change(at_most=self._interval)

    async def look(self) -> None:
        """Look once: delete what is gone or changed, run what is new and fits."""
        files = await asyncio.to_thread(_read, self._path)
        for name in [name for name in self._seen if files.get(name) != self._seen[name]]:
            await self._forget(name)
        for name, content in files.items():
            if name not in self._seen:
                self._seen[name] = content
                self._parse(name, content)
        for name, wanted in self._wanted.items():
            if name not in self._running:
                await self._run(name, wanted)

    async def _forget(self, name: str) -> None:
        del self._seen[name]
        self._wanted.pop(name, None)
        self._said.pop(name, None)
        if (key := self._running.pop(name, None)) is not None:
            namespace, _, pod = key.partition("/")
            await self._kubelet.delete_pod(pod, namespace=namespace)

    def _parse(self, name: str, content: bytes) -> None:
        try:
            self._wanted[name] = _pod(name, content)
        except (yaml.YAMLError, ManifestError, UnicodeDecodeError, AttributeError, RecursionError) as error:
            self._kubelet.journal.note(ManifestRefused(str(self._path / name), str(error)))

    async def _run(self, name: str, wanted: _Wanted) -> None:
        if not wanted.bound and (short := self._short_of(wanted.spec)):
            text = f"0/1 nodes are available: {', '.join(f'1 Insufficient {resource}' for resource in short)}."
            self._say(name, text, PodWaiting(wanted.spec.key, text))
            return
        try:
            await self._kubelet.run_pod(wanted.document)
        except ManifestError as error:
            self._say(name, str(error), ManifestRefused(str(self._path / name), str(error)))
            return
        except KubeletPanic:
            pass  # The journal has it; the next start takes the pod up.
        self._running[name] = wanted.spec.key

    def _say(self, name: str, text: str, entry: PodWaiting | ManifestRefused) -> None:
        if self._said.get(name) != text:
            self._said[name] = text
            self._kubelet.journal.note(entry)

    def _short_of(self, spec: PodSpec) -> list[str]:
        """The extended resources of which the node has too little left, as the scheduler counts."""
        free = {resource: Decimal(count) for resource, count in self._kubelet.node().allocatable.items()}
        for pod in self._kubelet.pods():
            if not pod.phase.terminal:
                for resource, amount in pod.spec.requested().items():
                    free[resource] = free.get(resource, Decimal(0)) - amount
        wanted = {r: amount for r, amount in spec.requested().items() if "/" in r and amount}
        return sorted(resource for resource, amount in wanted.items() if amount > free.get(resource, Decimal(0)))


def _pod(name: str, content: bytes) -> _Wanted:
    """The pod of one file. Its UID derives from the file's name and text, so that it survives a restart."""
    document = yaml.safe_load(content)
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise ManifestError("expected one v1 Pod")
    document["metadata"].setdefault("uid", str(uuid.uuid5(_UID_SPACE, f"{name}\n{content.decode()}")))
    spec = pod_manifest.parse(document)
    return _Wanted(document, spec, bool(document["spec"].get("nodeName")))


def _read(directory: Path) -> dict[str, bytes]:
    """The manifests of a directory by file name; none if it is not there. Blocks."""
    found: dict[str, bytes] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(directory.iterdir()):
            if path.suffix in _SUFFIXES and not path.name.startswith("."):
                with contextlib.suppress(OSError):
                    if path.is_file():  # reading a pipe would block
                        with path.open("rb") as file:
                            found[path.name] = file.read(_LARGEST_MANIFEST)
    return found
