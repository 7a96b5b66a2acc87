"""Pods from a directory of manifests, like static pods: an edited file is new pods.

A file may also hold claims, templates, classes and slices of DRA, with pods or without; they come and go with it.

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

from ..errors import UsageError
from .dra.api_objects import KINDS, NAMESPACE, ApiObjectError
from .kubelet.kubelet import Kubelet, KubeletPanic
from .kubelet.node_status import unschedulable
from .objects import pod_manifest, yaml_text
from .objects.pod_manifest import ManifestError
from .objects.pods import PodSpec

_SUFFIXES = {".yaml", ".yml", ".json"}
_UID_SPACE = uuid.UUID("9ad1b3ad-0fd0-5b31-8f4c-1a3f2f5f0c11")
_LARGEST_MANIFEST = 1_000_000  # bytes; a Pod that the API server takes is smaller


@dataclass(frozen=True, slots=True)
class _Pod:
    """A Pod manifest, and the line of its file on which it begins."""

    line: int
    document: Mapping[str, Any]
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a file holds: pods, and objects of DRA with their lines. A changed file is another value."""

    pods: tuple[_Pod, ...]
    objects: tuple[tuple[int, Mapping[str, Any]], ...]


class _Wrong(UsageError):
    """A file is refused for what is on this line."""

    def __init__(self, line: int, error: str) -> None:
        super().__init__(error)
        self.line = line


class PodDirectory:
    """Keeps a kubelet's pods in step with a directory; `interval` seconds pass between two looks at most."""

    def __init__(self, kubelet: Kubelet, path: Path | str, *, interval: float = 0.25) -> None:
        self._kubelet = kubelet
        self._path = Path(path)
        self._interval = interval
        self._seen: dict[str, bytes] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._running: dict[str, set[str]] = {}  # file name -> namespace/name
        self._made: dict[str, list[tuple[str, str, str]]] = {}  # file name -> kind, name and namespace of objects
        self._said: dict[tuple[str, str], str] = {}  # file name and namespace/name -> why the pod does not run

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
            for pod in wanted.pods:
                if pod.spec.key not in self._running.get(name, ()):
                    await self._run(name, pod)

    async def _forget(self, name: str) -> None:
        del self._seen[name]
        self._wanted.pop(name, None)
        self._said = {key: said for key, said in self._said.items() if key[0] != name}
        for key in self._running.pop(name, ()):
            namespace, _, pod = key.partition("/")
            await self._kubelet.delete_pod(pod, namespace=namespace)
        for kind, made, where in self._made.pop(name, []):
            await self._kubelet.objects.delete(kind, made, where)

    async def _make(self, name: str, wanted: _Wanted) -> None:
        """Create the objects of a file, once."""
        if name in self._made:
            return
        made = self._made[name] = []
        for line, document in wanted.objects:
            try:
                meta = (await self._kubelet.objects.create(document["kind"], document))["metadata"]
                made.append((document["kind"], meta["name"], meta.get("namespace", "")))
            except ApiObjectError as error:
                self._refuse(name, error, line)

    def _parse(self, name: str, content: bytes) -> None:
        try:
            self._wanted[name] = _content(name, content)
        except _Wrong as error:
            self._refuse(name, error, error.line)

    def _refuse(self, name: str, error: Exception, line: int) -> None:
        path = str(self._path / name)
        text = f"{path}{f':{line}' if line else ''} refused: {error}"
        self._kubelet.journal.note("manifestRefused", "pod", text, path=path, error=str(error), line=line)

    async def _run(self, name: str, pod: _Pod) -> None:
        key = name, pod.spec.key
        short = [] if pod.spec.node else await self._kubelet.short_of(pod.spec)
        if short:
            why = unschedulable(short)
            if self._is_news(key, why):
                self._kubelet.journal.tell_waiting(pod.spec.key, why)
            return
        try:
            await self._kubelet.run_pod(pod.document)
        except ManifestError as error:
            if self._is_news(key, str(error)):
                self._refuse(name, error, pod.line)
            return
        except KubeletPanic:
            pass  # The journal has it; the next start takes the pod up.
        self._running.setdefault(name, set()).add(pod.spec.key)

    def _is_news(self, key: tuple[str, str], why: str) -> bool:
        """Whether this was not said of the pod the last time."""
        before = self._said.get(key)
        self._said[key] = why
        return before != why


def _content(name: str, content: bytes) -> _Wanted:
    """What is in one file. Raises _Wrong."""
    try:
        documents = [each for each in yaml_text.numbered_documents(content) if each[1] is not None]
    except yaml.YAMLError as error:
        line, problem = yaml_text.line_and_problem(error)
        raise _Wrong(line, problem) from error
    if not documents:
        raise _Wrong(1, "the file is empty: expected Pods or objects of DRA")
    pods: dict[str, _Pod] = {}
    objects: list[tuple[int, Mapping[str, Any]]] = []
    for line, document in documents:
        try:
            if isinstance(document, dict) and document.get("kind") in KINDS:
                objects.append((line, _object(document)))
                continue
            spec = _pod(document, uid_from=f"{name}\n{line}\n{content.decode()}")
        except (ManifestError, UnicodeDecodeError, AttributeError, RecursionError) as error:
            raise _Wrong(line, str(error)) from error
        if spec.key in pods:
            raise _Wrong(line, f"pod {spec.key} is in this file already")
        pods[spec.key] = _Pod(line, document, spec)
    return _Wanted(tuple(pods.values()), tuple(objects))


def _pod(document: Any, *, uid_from: str) -> PodSpec:
    """The pod of a manifest. Its UID derives from the file's text, so that it survives a restart. Raises
    ManifestError.
    """
    if not isinstance(document, dict) or not isinstance(document.get("metadata", {}), dict):
        raise ManifestError("expected a v1 Pod")
    document.setdefault("metadata", {}).setdefault("uid", str(uuid.uuid5(_UID_SPACE, uid_from)))
    return pod_manifest.parse(document)


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
