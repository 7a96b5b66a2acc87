"""The record of prepared claims: a file that every instance of a driver reads before each call and replaces whole.

One line of JSON with a version, and one with its checksum. Its users hold the lock on the directory.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from ..core.claims.prepared import PreparedClaim, as_json, from_json
from ..errors import HostError
from ..hostfs import read_plain, write_atomic
from ..hostfs.look import Stamp, stamp

log = structlog.get_logger(__name__)

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
Prepared = Mapping[str, PreparedClaim]
"""Claims by uid."""


class Checkpoint:
    """The file at `path`. Blocks. `problem` says what was wrong with it, or is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.exists = False
        """Whether there was one when it was last read, with something in it that could be used."""
        self._stamp: Stamp | None = None
        self._known: Prepared = {}

    def read(self) -> Prepared:
        """The claims. A file that cannot be understood is set aside. Raises HostError where it cannot be read."""
        now = stamp(self.path)
        if now is None or now != self._stamp:
            text = read_plain(self.path, limit=MAX_BYTES, follow=False)
            try:
                self._known = {} if text is None else _parsed(text)
                self.exists = text is not None
            except ValueError as wrong:
                self._set_aside(str(wrong))
                self._known, self.exists = {}, False
            self._stamp = now
        return self._known

    def write(self, claims: Prepared) -> None:
        """Replace the record. Raises HostError; then the old one stands."""
        if claims == self._known and self.exists:
            return
        body = json.dumps({"version": VERSION, "claims": [as_json(each) for each in claims.values()]}).encode()
        text = body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"
        if len(text) > MAX_BYTES:
            raise HostError(f"cannot write {self.path}: it would have more than {MAX_BYTES} bytes")
        self._stamp = None
        write_atomic(self.path, text, mode=0o600)
        self._stamp, self._known, self.exists = stamp(self.path), dict(claims), True

    def _set_aside(self, wrong: str) -> None:
        aside = self.path.with_name(f"{self.path.name}.spoilt")
        with contextlib.suppress(OSError):
            self.path.replace(aside)
        self.problem = (
            f"the record of prepared claims {self.path} cannot be used and was moved to {aside.name}: {wrong}; until "
            "the pods that have claims now have ended, vdev cannot tell when a device of theirs is given to another pod"
        )
        log.error("prepared claims are forgotten", file=str(self.path), reason=wrong)


def devices_of(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """By name what a record says of the devices that claims have; of one that cannot be used nothing. Blocks."""
    try:
        text = read_plain(path, limit=MAX_BYTES, follow=False)
        claims = _parsed(text) if text else {}
    except (HostError, ValueError):
        return {}
    return {device.device: device.record for claim in claims.values() for device in claim.devices}


def _parsed(text: bytes) -> dict[str, PreparedClaim]:
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
            return {each.uid: each for each in map(from_json, claims)}
    raise ValueError("the file is damaged")
