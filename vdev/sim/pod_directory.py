"""Pods from a directory of manifests, like static pods: a file is a pod, an edited file is a new pod.

A file may also hold claims, templates, classes and slices of DRA, with a pod or without; they come and go with it.

Stands in for the scheduler, too: a pod waits until the node shows enough of what it asks for, unless its manifest
names a node; then it goes straight to the kubelet. The directory is polled, so any file system will do.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .dra.api_objects import KINDS, NAMESPACE, ApiObjectError
from .journal import ManifestRefused, PodWaiting
from .kubelet.kubelet import Kubelet, KubeletPanic
from .kubelet.predicates import unschedulable
from .objects import pod_manifest, yaml_text
from .objects.pod_manifest import ManifestError
from .objects.pods import PodSpec

_SUFFIXES = {".yaml", ".yml", ".json"}
_UID_SPACE = uuid.UUID("9ad1b3ad-0fd0-5b31-8f4c-1a3f2f5f0c11")
_LARGEST_MANIFEST = 1_000_000  # bytes; a Pod that the API server takes is smaller


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a file holds: at most one pod, and objects of DRA. A changed file is another value."""

    document: Mapping[str, Any]
    spec: PodSpec | None
    objects: tuple[Mapping[str, Any], ...] = ()


class PodDirectory:
    """Keeps a kubelet's pods in step with a directory; `interval` seconds pass between two looks at most."""

    def __init__(self, kubelet: Kubelet, path: Path | str, *, interval: float = 0.25) -> None:
        self._kubelet = kubelet
        self._path = Path(path)
        self._interval = interval
        self._seen: dict[str, bytes] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._running: dict[str, str] = {}  # file name -> namespace/name
        self._made: dict[str, list[tuple[str, str, str]]] = {}  # file name -> kind, name and namespace of objects
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
            await self._make(name, wanted)
        for name, wanted in self._wanted.items():
            if name not in self._running and wanted.spec is not None:
                await self._run(name, wanted.document, wanted.spec)

    async def _forget(self, name: str) -> None:
        del self._seen[name]
        self._wanted.pop(name, None)
        self._said.pop(name, None)
        if (key := self._running.pop(name, None)) is not None:
            namespace, _, pod = key.partition("/")
            await self._kubelet.delete_pod(pod, namespace=namespace)
        for kind, made, where in self._made.pop(name, []):
            await self._kubelet.objects.delete(kind, made, where)

    async def _make(self, name: str, wanted: _Wanted) -> None:
        """Create the objects of a file, once."""
        if name in self._made:
            return
        made = self._made[name] = []
        for document in wanted.objects:
            try:
                meta = (await self._kubelet.objects.create(document["kind"], document))["metadata"]
                made.append((document["kind"], meta["name"], meta.get("namespace", "")))
            except ApiObjectError as error:
                self._kubelet.journal.note(ManifestRefused(str(self._path / name), str(error)))

    def _parse(self, name: str, content: bytes) -> None:
        try:
            self._wanted[name] = _content(name, content)
        except (yaml.YAMLError, ManifestError, UnicodeDecodeError, AttributeError, RecursionError) as error:
            self._kubelet.journal.note(ManifestRefused(str(self._path / name), str(error)))

    async def _run(self, name: str, document: Mapping[str, Any], spec: PodSpec) -> None:
        short = [] if spec.node else await self._kubelet.short_of(spec)
        if short:
            text = unschedulable(short)
            self._say(name, text, PodWaiting(spec.key, text))
            return
        try:
            await self._kubelet.run_pod(document)
        except ManifestError as error:
            self._say(name, str(error), ManifestRefused(str(self._path / name), str(error)))
            return
        except KubeletPanic:
            pass  # The journal has it; the next start takes the pod up.
        self._running[name] = spec.key

    def _say(self, name: str, text: str, entry: PodWaiting | ManifestRefused) -> None:
        if self._said.get(name) != text:
            self._said[name] = text
            self._kubelet.journal.note(entry)


def _content(name: str, content: bytes) -> _Wanted:
    """What is in one file. The pod's UID derives from the file's name and text, so that it survives a restart."""
    documents = [each for each in yaml_text.documents(content) if each is not None]
    pods = [each for each in documents if not (isinstance(each, dict) and each.get("kind") in KINDS)]
    objects = tuple(_object(each) for each in documents if each not in pods)
    if len(pods) > 1 or not documents:
        raise ManifestError("expected one v1 Pod, and beside it or instead of it objects of DRA")
    if not pods:
        return _Wanted({}, None, objects)
    document = pods[0]
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise ManifestError("expected one v1 Pod")
    document["metadata"].setdefault("uid", str(uuid.uuid5(_UID_SPACE, f"{name}\n{content.decode()}")))
    return _Wanted(document, pod_manifest.parse(document), objects)


def _object(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object of DRA, or a Namespace. Raises ManifestError."""
    kind, version = document["kind"], document.get("apiVersion")
    expected = "v1" if kind == NAMESPACE else "resource.k8s.io/v1"
    if version != expected:
        raise ManifestError(f"expected a {kind} of {expected}, found {version!r}")
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not meta.get("name"):
        raise ManifestError(f"{kind}: metadata.name: expected a name")
    if kind != NAMESPACE and not isinstance(document.get("spec"), dict):
        raise ManifestError(f"{kind} {meta['name']}: spec: expected a mapping")
    return document


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
