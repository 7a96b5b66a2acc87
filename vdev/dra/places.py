"""Where a driver's sockets and files are below the kubelet's directory, and which leftovers are its own.

    plugins_registry/<driver>-reg.sock            the kubelet looks for it here, and calls GetInfo on it
    plugins/<driver>/dra.sock                     what that announces
    plugins/<driver>/prepared-claims.json

In a pod the names of the sockets have its uid, because in a rolling update the next pod serves before this one ends:
`<driver>-<uid>-reg.sock`, `dra-<uid>.sock`. Where that is longer than a socket's path may be, fingerprints stand in.
"""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..deviceplugin.socket_server import MAX_SOCKET_PATH, remove_dead
from ..model.names import digest
from .checkpoint import CHECKPOINT

_ID = "[0-9a-zA-Z-]{8,36}"  # of a pod, or its fingerprint


@dataclass(frozen=True, kw_only=True)
class Places:
    """The places of the driver of this name; `pod_uid` is empty outside of a pod."""

    driver: str
    kubelet_dir: Path
    cdi_dir: Path
    pod_uid: str = ""

    @cached_property
    def registry(self) -> Path:
        """The directory that the kubelet watches, and makes."""
        return self.kubelet_dir / "plugins_registry"

    @cached_property
    def directory(self) -> Path:
        return self.kubelet_dir / "plugins" / self.driver

    @cached_property
    def checkpoint(self) -> Path:
        """The record of prepared claims, which all instances of the driver share."""
        return self.directory / CHECKPOINT

    @property
    def registration_socket(self) -> Path:
        if not self.pod_uid:
            return _fitting(self.registry / f"{self.driver}-reg.sock", self.registry / f"{self._short}-reg.sock")
        return _fitting(
            self.registry / f"{self.driver}-{self.pod_uid}-reg.sock",
            self.registry / f"{self._short}-{digest(self.pod_uid)}-reg.sock",
        )

    @property
    def dra_socket(self) -> Path:
        if not self.pod_uid:
            return self.directory / "dra.sock"
        return _fitting(
            self.directory / f"dra-{self.pod_uid}.sock", self.directory / f"dra-{digest(self.pod_uid)}.sock"
        )

    @property
    def _short(self) -> str:
        return f"vdev-{digest(self.driver)}"

    def remove_leftovers(self) -> list[Path]:
        """Remove this driver's sockets on which nobody listens any more; which those were. Blocks briefly."""
        names = f"(?:{re.escape(self.driver)}|{self._short})"
        patterns = {self.registry: rf"{names}(?:-{_ID})?-reg\.sock", self.directory: rf"dra(?:-{_ID})?\.sock"}
        return [path for directory, pattern in patterns.items() for path in remove_dead(directory, pattern)]


def _fitting(path: Path, shorter: Path) -> Path:
    return path if len(os.fsencode(path)) <= MAX_SOCKET_PATH else shorter
