"""Where a driver's sockets and files are below the kubelet's directory, and which leftovers are its own.

    plugins_registry/<driver>-reg.sock            the kubelet looks for it here, and calls GetInfo on it
    plugins/<driver>/dra.sock                     what that announces
    plugins/<driver>/prepared-claims.json

In a pod the names of the sockets have its uid, because in a rolling update the next pod serves before this one ends:
`<driver>-<uid>-reg.sock`, `dra-<uid>.sock`. Where that is longer than a socket's path may be, fingerprints stand in.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog

from ..deviceplugin.socket_server import MAX_SOCKET_PATH, remove_dead
from ..errors import HostError, reason_of
from ..hostfs import read_plain, write_atomic
from ..hostfs.files import Stamp, names, stamp
from ..model.names import digest
from .claim import PreparedClaim, as_json, from_json
from .preparation import file_name

_ID = "[0-9a-zA-Z-]{8,36}"  # of a pod, or its fingerprint


RECORD = "prepared-claims.json"


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
        return self.directory / RECORD

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


_MAX_BYTES = 2**22


class ClaimFiles:
    """The files of one driver's claims in the directory of CDI specifications. Blocks."""

    def __init__(self, directory: Path, driver: str) -> None:
        self.directory = directory
        self._driver = driver
        self._texts: dict[str, tuple[PreparedClaim, bytes]] = {}  # by uid: what was made of which claim

    def path(self, uid: str) -> Path:
        return self.directory / file_name(self._driver, uid)

    def write(self, claim: PreparedClaim) -> None:
        """Let the claim's file be there, and say what it shall. Raises HostError."""
        path, text = self.path(claim.uid), self._text(claim)
        try:
            if read_plain(path, limit=_MAX_BYTES, follow=False) == text:
                return
        except HostError:  # whatever stands there is replaced
            pass
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            raise HostError(f"cannot make the CDI directory {self.directory}: {reason_of(failed)}") from failed
        write_atomic(path, text)

    def _text(self, claim: PreparedClaim) -> bytes:
        """What the file says; the very claim of before says what it said."""
        known = self._texts.get(claim.uid)
        if known is None or known[0] is not claim:
            known = self._texts[claim.uid] = claim, (json.dumps(claim.document, indent=2) + "\n").encode()
        return known[1]

    def remove(self, uid: str) -> None:
        """Remove the claim's file, if there is one. Raises HostError."""
        path = self.path(uid)
        self._texts.pop(uid, None)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as failed:
            raise HostError(f"cannot remove {path}: {reason_of(failed)}") from failed

    def unknown(self, claims: Iterable[PreparedClaim]) -> list[str]:
        """The names of the files that are of none of these claims; what a killed process did not finish is removed."""
        prefix, suffix = file_name(self._driver, "\0").split("\0")
        known = {file_name(self._driver, each.uid) for each in claims}
        found = names(self.directory)
        for name in found:
            if name.startswith(f".{prefix}") and name.endswith(".tmp"):
                with contextlib.suppress(OSError):
                    (self.directory / name).unlink()
        return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix) and name not in known)


log = structlog.get_logger(__name__)

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
Prepared = Mapping[str, PreparedClaim]
"""Claims by uid."""


class Checkpoint:
    """The file at `path`. Blocks. `problem` says what was wrong with it at the first look, or is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._stamp: Stamp | None = None  # of the file that says what is known
        self._serial = -1  # of what is known; -1: nothing was read or written yet
        self._known: Prepared = {}

    def read(self) -> Prepared:
        """The claims. A file that cannot be understood is set aside. Raises HostError if it cannot be read."""
        now = stamp(self.path)
        if now is not None and now == self._stamp:
            return self._known
        text, serial, claims = read_plain(self.path, limit=MAX_BYTES, follow=False), -1, dict[str, PreparedClaim]()
        try:
            if text is not None:
                serial, claims = _parsed(text)
        except ValueError as wrong:
            self._set_aside(str(wrong))
        if serial > self._serial:
            self._stamp, self._serial, self._known = now, serial, claims
        elif self._known or (self._serial >= 0 and text is not None):
            log.error("the record of prepared claims was lost, and is written again", file=str(self.path))
            self._replace(self._known)
        return self._known

    def write(self, claims: Prepared) -> None:
        """Replace the record. Raises HostError; then the old one stands."""
        if claims != self._known or (claims and self._stamp is None):
            self._replace(claims)

    def _replace(self, claims: Prepared) -> None:
        serial = max(self._serial + 1, time.time_ns() // 1_000_000)
        content = {"version": VERSION, "serial": serial, "claims": [*map(as_json, claims.values())]}
        body = json.dumps(content).encode()
        text = body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"
        if len(text) > MAX_BYTES:
            raise HostError(f"cannot write {self.path}: it would have more than {MAX_BYTES} bytes")
        self._stamp = None
        write_atomic(self.path, text, mode=0o600)
        self._stamp, self._serial, self._known = stamp(self.path), serial, dict(claims)

    def _set_aside(self, wrong: str) -> None:
        aside = self.path.with_name(f"{self.path.name}.spoilt")
        with contextlib.suppress(OSError):
            self.path.replace(aside)
        log.error("the record of prepared claims cannot be used", file=str(self.path), reason=wrong)
        if self._serial >= 0:
            return
        self.problem = (
            f"the record of prepared claims {self.path} cannot be used and was moved to {aside.name}: {wrong}; until "
            "the pods that have claims now have ended, vdev cannot tell when a device of theirs is given to another pod"
        )


def devices_of(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """By name what a record says of the devices that claims have; of one that cannot be used nothing. Blocks."""
    try:
        text = read_plain(path, limit=MAX_BYTES, follow=False)
        _, claims = _parsed(text) if text else (0, dict[str, PreparedClaim]())
    except (HostError, ValueError):
        return {}
    return {device.device: device.record for claim in claims.values() for device in claim.devices}


def _parsed(text: bytes) -> tuple[int, dict[str, PreparedClaim]]:
    """The serial number, which a record of an earlier vdev does not have, and the claims."""
    body, _, rest = text.partition(b"\n")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"version": int(version)} if version != VERSION:
            raise ValueError(f"it has version {version}, and this vdev knows version {VERSION}")
        case {"version": int(), "claims": list(claims)}:
            if hashlib.sha256(body).hexdigest().encode() != rest.strip():
                raise ValueError("its checksum does not fit")
            serial = found.get("serial")
            return serial if isinstance(serial, int) else 0, {each.uid: each for each in map(from_json, claims)}
    raise ValueError("the file is damaged")
