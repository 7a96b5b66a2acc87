"""Runs the pods of a directory of manifests, like static pods. An edited file has new pods.

A file may also have claims, templates, classes and slices of DRA, which are created and deleted with it. The directory
is polled, so it may be on any file system.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import UsageError
from .api.server_objects import ApiObjectError
from .device_manager.device_table import KubeletPanic
from .kubelet.kubelet import Kubelet
from .objects import pod_manifest, yaml_text
from .objects.pod_manifest import ManifestError
from .objects.pods import PodSpec

_OBJECTS = ("Namespace", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_SUFFIXES = {".yaml", ".yml", ".json"}
_UID_SPACE = uuid.UUID("9ad1b3ad-0fd0-5b31-8f4c-1a3f2f5f0c11")
_LARGEST_MANIFEST = 1_000_000  # bytes; the API server's limit is near that


@dataclass(slots=True)
class _Pod:
    """A Pod manifest in a file."""

    line: int  # its first line
    document: Mapping[str, Any]
    spec: PodSpec
    created: bool = False
    refused: str = ""  # why the kubelet refused it the last time


@dataclass(slots=True)
class _File:
    """A file of the directory."""

    content: bytes
    pods: list[_Pod] = field(default_factory=list)
    objects: list[tuple[str, str, str]] = field(default_factory=list)  # kind, name and namespace of created objects


class _FileError(UsageError):
    """A file is refused because of an error on a line."""

    def __init__(self, line: int, error: str) -> None:
        super().__init__(error)
        self.line = line


class PodDirectory:
    """Creates and deletes a kubelet's pods as the files of a directory say. It is read every `interval` seconds."""

    def __init__(self, kubelet: Kubelet, path: Path | str, *, interval: float = 0.25) -> None:
        self._kubelet = kubelet
        self._path = Path(path)
        self._interval = interval
        self._files: dict[str, _File] = {}

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        while True:
            await self.sync()
            await self._kubelet.journal.next_change(at_most=self._interval)

    async def sync(self) -> None:
        """Read the directory: delete the pods of removed and changed files, and create new pods."""
        found = await asyncio.to_thread(_read, self._path)
        for name in [name for name, file in self._files.items() if found.get(name) != file.content]:
            await self._delete(self._files.pop(name))
        for name in sorted(found.keys() - self._files.keys()):
            self._files[name] = await self._load(name, found[name])
        for name, file in sorted(self._files.items()):
            for pod in file.pods:
                if not pod.created:
                    await self._create(name, pod)

    async def _load(self, name: str, content: bytes) -> _File:
        """Read a file and create its objects. Pods are created later, when the objects of all files exist."""
        file = _File(content)
        try:
            file.pods, objects = _content(name, content)
        except _FileError as error:
            self._refuse(name, error, error.line)
            return file
        for line, document in objects:
            try:
                meta = (await self._kubelet.objects.create(document["kind"], document))["metadata"]
                file.objects.append((document["kind"], meta["name"], meta.get("namespace", "")))
            except ApiObjectError as error:
                self._refuse(name, error, line)
        return file

    async def _delete(self, file: _File) -> None:
        for pod in file.pods:
            if pod.created:
                await self._kubelet.delete_pod(pod.spec.name, namespace=pod.spec.namespace)
        for kind, name, namespace in file.objects:
            await self._kubelet.objects.delete(kind, name, namespace)

    async def _create(self, name: str, pod: _Pod) -> None:
        try:
            await self._kubelet.run_pod(pod.document, wait_for_devices=True)
        except ManifestError as error:
            # It is tried again, because the old pod of this name may be Terminating.
            if pod.refused != str(error):
                pod.refused = str(error)
                self._refuse(name, error, pod.line)
            return
        except KubeletPanic:
            pass  # it is in the journal, and the next kubelet process admits the pod
        pod.created = True

    def _refuse(self, name: str, error: Exception, line: int) -> None:
        self._kubelet.journal.note_refused(str(self._path / name), str(error), line)


def _content(name: str, content: bytes) -> tuple[list[_Pod], list[tuple[int, Mapping[str, Any]]]]:
    """The pods of a file, and its objects of DRA with their lines. Raises _FileError."""
    try:
        documents = [each for each in yaml_text.numbered_documents(content) if each[1] is not None]
    except yaml.YAMLError as error:
        line, problem = yaml_text.line_and_problem(error)
        raise _FileError(line, problem) from error
    if not documents:
        raise _FileError(1, "the file is empty: expected Pods or objects of DRA")
    pods: dict[str, _Pod] = {}
    objects: list[tuple[int, Mapping[str, Any]]] = []
    for line, document in documents:
        try:
            if isinstance(document, dict) and document.get("kind") in _OBJECTS:
                objects.append((line, _object(document)))
                continue
            spec = _pod(document, uid_from=f"{name}\n{line}\n{content.decode()}")
        except (ManifestError, UnicodeDecodeError, AttributeError, RecursionError) as error:
            raise _FileError(line, str(error)) from error
        if spec.key in pods:
            raise _FileError(line, f"pod {spec.key} is in this file already")
        pods[spec.key] = _Pod(line, document, spec)
    return list(pods.values()), objects


def _pod(document: Any, *, uid_from: str) -> PodSpec:
    """The pod of a manifest. Its UID derives from the file, so a restarted `vdev sim` has the same pod.

    Raises ManifestError.
    """
    if not isinstance(document, dict) or not isinstance(document.get("metadata", {}), dict):
        raise ManifestError("expected a v1 Pod")
    document.setdefault("metadata", {}).setdefault("uid", str(uuid.uuid5(_UID_SPACE, uid_from)))
    return pod_manifest.parse(document)


def _object(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object of DRA, or a Namespace. Raises ManifestError."""
    kind, version = document["kind"], document.get("apiVersion")
    expected = "v1" if kind == "Namespace" else "resource.k8s.io/v1"
    if version != expected:
        raise ManifestError(f"expected a {kind} of {expected}, found {version!r}")
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not meta.get("name"):
        raise ManifestError(f"{kind}: metadata.name: expected a name")
    if kind != "Namespace" and not isinstance(document.get("spec"), dict):
        raise ManifestError(f"{kind} {meta['name']}: spec: expected a mapping")
    return document


def _read(directory: Path) -> dict[str, bytes]:
    """The manifests of a directory by file name; none if it does not exist. Blocks."""
    found: dict[str, bytes] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(directory.iterdir()):
            if path.suffix in _SUFFIXES and not path.name.startswith("."):
                with contextlib.suppress(OSError):
                    if path.is_file():  # reading a pipe would block
                        with path.open("rb") as file:
                            found[path.name] = file.read(_LARGEST_MANIFEST)
    return found
