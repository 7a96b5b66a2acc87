"""The paths of a driver's sockets and files below the kubelet's directory.

    plugins_registry/<driver>-reg.sock            the kubelet finds it here, and calls GetInfo on it
    plugins/<driver>/dra.sock                     the endpoint in the answer of GetInfo
    plugins/<driver>/prepared-claims.json

In a pod, the names of the sockets contain its uid, because in a rolling update the next pod serves before this one
ends: `<driver>-<uid>-reg.sock`, `dra-<uid>.sock`. A name that is too long for a socket is replaced by a fingerprint.
"""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..deviceplugin.socket_server import MAX_SOCKET_PATH, remove_dead
from ..model.names import digest
from .checkpoint import CHECKPOINT

_ID = "(?:-[0-9a-zA-Z-]{8,36})?"  # of a pod
_SHORT = "vdev-"  # the prefix of a fingerprint


@dataclass(frozen=True, kw_only=True)
class Places:
    """The paths of the driver of this name; `pod_uid` is empty outside of a pod."""

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
        return _fitting(self.registry / f"{self.driver}{self._instance}-reg.sock")

    @property
    def dra_socket(self) -> Path:
        return _fitting(self.directory / f"dra{self._instance}.sock")

    @property
    def _instance(self) -> str:
        return f"-{self.pod_uid}" if self.pod_uid else ""

    def remove_leftovers(self) -> list[Path]:
        """Remove sockets of this driver on which nobody listens any more, and return them. Blocks briefly."""
        found = []
        for directory, name in ((self.registry, rf"{re.escape(self.driver)}{_ID}-reg"), (self.directory, rf"dra{_ID}")):
            found += remove_dead(directory, rf"(?:{name}|{_SHORT}[0-9a-z]+)\.sock")
        return found


def _fitting(path: Path) -> Path:
    is_too_long = len(os.fsencode(path)) > MAX_SOCKET_PATH
    return path.with_name(f"{_SHORT}{digest(path.name)}.sock") if is_too_long else path
