"""The files of a driver: its socket, the record that lists its prepared claims, and their CDI files.

    plugins_registry/<driver>-reg.sock            the kubelet finds this socket, and calls all services on it
    plugins/<driver>/prepared-claims.json

In a pod, the name of the socket contains its uid, because in a rolling update the next pod serves before this one ends:
`<driver>-<uid>-reg.sock`. A name that is too long for a socket is replaced by a fingerprint.

All instances of a driver share the record and the CDI files. These outlive the process, because the kubelet may ask a
later process to unprepare claims that this one prepared.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel

from ..deviceplugin.socket_server import MAX_SOCKET_PATH, remove_dead
from ..errors import HostError, reason_of
from ..hostfs.files import listed, read_plain, remove_unfinished, sealed, unsealed, write_atomic, write_if_changed
from ..model.names import digest
from .claim import PreparedClaim
from .preparation import file_name

CHECKPOINT = "prepared-claims.json"
VERSION = 2
MAX_BYTES = 64 * 1024 * 1024
Prepared = Mapping[str, PreparedClaim]
"""Claims by uid."""
_ID = "(?:-[0-9a-zA-Z-]{8,36})?"  # of a pod
_SHORT = "vdev-"  # the prefix of a fingerprint


class _Record(BaseModel):
    version: int
    claims: tuple[PreparedClaim, ...]


@dataclass(frozen=True, kw_only=True)
class Places:
    """The paths of the driver of this name; `pod_uid` is empty outside of a pod."""

    driver: str
    kubelet_dir: Path
    cdi_dir: Path
    pod_uid: str = ""

    @cached_property
    def registry(self) -> Path:
        """The directory that the kubelet creates and watches."""
        return self.kubelet_dir / "plugins_registry"

    @cached_property
    def directory(self) -> Path:
        return self.kubelet_dir / "plugins" / self.driver

    @cached_property
    def checkpoint(self) -> Path:
        """The record of prepared claims, which all instances of the driver share."""
        return self.directory / CHECKPOINT

    def cdi_file(self, uid: str) -> Path:
        return self.cdi_dir / file_name(self.driver, uid)

    @cached_property
    def socket(self) -> Path:
        pod = f"-{self.pod_uid}" if self.pod_uid else ""
        path = self.registry / f"{self.driver}{pod}-reg.sock"
        is_too_long = len(os.fsencode(path)) > MAX_SOCKET_PATH
        return path.with_name(f"{_SHORT}{digest(path.name)}.sock") if is_too_long else path

    def remove_leftovers(self) -> list[Path]:
        """Remove sockets of this driver on which no process listens, and return them. Blocks briefly."""
        return remove_dead(self.registry, rf"(?:{re.escape(self.driver)}{_ID}-reg|{_SHORT}[0-9a-z]+)\.sock")


def read_checkpoint(path: Path) -> Prepared | None:
    """Return the claims; None if there is no record. Blocks.

    Raises HostError if the file cannot be read, and ValueError if its content is not a record of this version.
    """
    text = read_plain(path, limit=MAX_BYTES, follow=False)
    if text is None:
        return None
    return {each.uid: each for each in unsealed(text, _Record, VERSION).claims}


def write_checkpoint(path: Path, claims: Prepared) -> None:
    """Replace the record, with a version and a checksum. Blocks. Raises HostError and keeps the old one if it fails."""
    text = sealed(_Record(version=VERSION, claims=tuple(claims.values())))
    if len(text) > MAX_BYTES:
        raise HostError(f"cannot write {path}: it would have more than {MAX_BYTES} bytes")
    write_atomic(path, text, mode=0o600)


def write_cdi_file(path: Path, claim: PreparedClaim) -> None:
    """Write the CDI specification of a claim, unless the file has it already. Blocks. Raises HostError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise HostError(f"cannot make the CDI directory {path.parent}: {reason_of(failed)}") from failed
    write_if_changed(path, (json.dumps(claim.document, indent=2) + "\n").encode())


def unknown_cdi_files(places: Places, claims: Iterable[PreparedClaim]) -> list[str]:
    """Return the names of CDI files of other claims than these. Removes unfinished files of killed processes."""
    prefix, suffix = file_name(places.driver, "\0").split("\0")
    remove_unfinished(places.cdi_dir, prefix)
    found = [path.name for path in listed(places.cdi_dir)]
    known = {file_name(places.driver, each.uid) for each in claims}
    return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix) and name not in known)
