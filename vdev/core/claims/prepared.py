"""A prepared claim: what was answered, what is injected, and which parts of which devices it has.

It is what the driver remembers, so that a second call gets the same answer, also from the next process, and that
nothing is handed out twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..allocation.cdi import Document, is_document
from .claim import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device of a claim. `requests` are names as the kubelet uses them, `cdi` fully qualified names.

    `id` is the device's own id, `raw` that of the physical device; `slices` is the range of memory slices that it has
    of that, (0, 0) for all of it. `record` is what a process needs to publish it though it is away. `ignored` are the
    kinds of configuration that the driver ignored.
    """

    pool: str
    device: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]
    share_id: str = ""
    admin: bool = False
    id: str = ""
    raw: str = ""
    slices: tuple[int, int] = (0, 0)
    record: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def excludes(self, other: "PreparedDevice") -> bool:
        """Whether a device of another claim cannot be had at the same time."""
        if self.admin or other.admin:
            return False
        if (self.pool, self.device) == (other.pool, other.device):
            return not (self.share_id and other.share_id)
        if not self.raw or self.raw != other.raw:
            return False
        whole = (0, 0) in (self.slices, other.slices)
        return whole or (self.slices[0] < other.slices[1] and other.slices[0] < self.slices[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """A claim that is prepared. `document` is its CDI specification.

    `together` is the CDI name of what a container gets that uses all requests of the claim at once, empty where that is
    no more than what it gets with each of them.
    """

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]
    document: Document
    together: str = ""

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name}"

    def is_of(self, claim: Claim) -> bool:
        """Whether it is what the claim is allocated now: the same devices for the same requests."""
        return [(each.pool, each.device, each.share_id, each.admin, each.requests) for each in self.devices] == [
            (each.pool, each.device, each.share_id, each.admin, (each.main_request,)) for each in claim.results
        ]

    def conflict(self, others: Iterable["PreparedClaim"]) -> str:
        """Why it cannot be prepared beside these, in a sentence; the empty string where it can."""
        for other in others:
            if other.uid == self.uid:
                continue
            for mine in self.devices:
                for its in other.devices:
                    if mine.excludes(its):
                        same = (mine.pool, mine.device) == (its.pool, its.device)
                        what = "it" if same else f"{its.device}, which is of the same physical device,"
                        return (
                            f"device {mine.device} of pool {mine.pool} cannot be given to {self}: {what} is prepared "
                            f"for {other}, whose pods have not ended"
                        )
        return ""


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
