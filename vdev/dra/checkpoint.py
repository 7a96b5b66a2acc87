"""The checkpoint of a driver: a file that says which claims are prepared, with a version and a checksum.

All instances of a driver share it, and it outlives them: the kubelet unprepares at any later process what this one
prepared.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from ..errors import HostError
from ..hostfs import read_plain, write_atomic
from ..hostfs.files import Stamp, stamp
from ..planning.cdi import is_document
from .claim import PreparedClaim, PreparedDevice

log = structlog.get_logger(__name__)

CHECKPOINT = "prepared-claims.json"
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


def as_json(claim: PreparedClaim) -> dict[str, Any]:
    return {
        "uid": claim.uid,
        "namespace": claim.namespace,
        "name": claim.name,
        "devices": [
            {
                "pool": each.pool,
                "device": each.device,
                "requests": list(each.requests),
                "cdi": list(each.cdi),
                "shareID": each.share_id,
                "admin": each.admin,
                "id": each.id,
                "raw": each.raw,
                "slices": list(each.slices),
                "record": dict(each.record),
                "ignored": list(each.ignored),
            }
            for each in claim.devices
        ],
        "together": claim.together,
        "document": claim.document,
    }


def from_json(given: object) -> PreparedClaim:
    """The claim that `as_json` wrote down. Raises ValueError for anything else."""
    match given:
        case {
            "uid": str(uid),
            "namespace": str(namespace),
            "name": str(name),
            "devices": list(devices),
            "together": str(together),
            "document": document,
        } if uid and is_document(document):
            return PreparedClaim(
                uid=uid,
                namespace=namespace,
                name=name,
                devices=tuple(map(_device, devices)),
                document=document,
                together=together,
            )
    raise ValueError("it holds something that is no prepared claim")


def _device(given: Mapping[str, Any]) -> PreparedDevice:
    match given:
        case {
            "pool": str(pool),
            "device": str(device),
            "requests": list(requests),
            "cdi": list(cdi),
            "shareID": str(share_id),
            "admin": bool(admin),
            "id": str(id_),
            "raw": str(raw),
            "slices": [int(first), int(end)],
        } if all(isinstance(each, str) for each in (*requests, *cdi)):
            return PreparedDevice(
                pool=pool,
                device=device,
                requests=tuple(requests),
                cdi=tuple(cdi),
                share_id=share_id,
                admin=admin,
                id=id_,
                raw=raw,
                slices=(first, end),
                record=written if isinstance(written := given.get("record"), Mapping) else {},
                ignored=tuple(map(str, kinds)) if isinstance(kinds := given.get("ignored"), list) else (),
            )
    raise ValueError("it holds something that is no prepared device")
