"""The file `dra_manager_state`: which claims are prepared, for which pods, with what. Its form is the real one."""

import json
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...json_text import parse_json

FILE_NAME = "dra_manager_state"
_KIND = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a claim, as its driver answered."""

    pool: str
    device: str
    share: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]


@dataclass(slots=True)
class ClaimInfo:
    """A claim that the kubelet works with. `drivers` has what each driver answered, no device before it did; `prepared`
    says that they all did since this process started.
    """

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    prepared: bool = False


def take(claims: Iterable[ClaimInfo]) -> str:
    """The file's text."""
    rows = [
        {
            "ClaimUID": claim.uid,
            "ClaimName": claim.name,
            "Namespace": claim.namespace,
            "PodUIDs": {uid: {} for uid in sorted(claim.pods)},
            "DriverState": {
                driver: {"Devices": [_row(device) for device in devices] or None}
                for driver, devices in sorted(claim.drivers.items())
            },
        }
        for claim in claims
    ]
    data = json.dumps({**_KIND, "ClaimInfoStateList": rows}, separators=(",", ":"))
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}, separators=(",", ":"))


def parse(text: str) -> list[ClaimInfo]:
    """Read the file's text. Raises ValueError if it is damaged or of another kind."""
    try:
        document = parse_json(text)
        data = document["Data"]
        if document["Checksum"] != zlib.crc32(data.encode()):
            raise ValueError("the checksum does not match")
        content = parse_json(data)
        if {key: content[key] for key in _KIND} != _KIND:
            raise ValueError(f"expected {_KIND}")
        return [_claim(row) for row in content["ClaimInfoStateList"] or []]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a checkpoint of claims: {error!r}") from error


def read(directory: Path) -> tuple[list[ClaimInfo], str]:
    """The claims of a directory's file, and why it could not be read (empty if it could, or is not there). Blocks."""
    try:
        return parse((directory / FILE_NAME).read_text()), ""
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError) as error:
        return [], f"{directory / FILE_NAME}: {error}"


def write(directory: Path, text: str) -> None:
    """Replace the file atomically. Blocks."""
    with tempfile.NamedTemporaryFile("w", prefix=".", dir=directory, delete=False) as file:
        file.write(text)
    Path(file.name).replace(directory / FILE_NAME)


def _row(device: PreparedDevice) -> dict[str, Any]:
    return {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "ShareID": device.share or None,
        "RequestNames": list(device.requests) or None,
        "CDIDeviceIDs": list(device.cdi) or None,
    }


def _claim(row: dict[str, Any]) -> ClaimInfo:
    drivers = {
        driver: tuple(
            PreparedDevice(
                each["PoolName"],
                each["DeviceName"],
                each.get("ShareID") or "",
                tuple(each["RequestNames"] or ()),
                tuple(each["CDIDeviceIDs"] or ()),
            )
            for each in state["Devices"] or []
        )
        for driver, state in (row["DriverState"] or {}).items()
    }
    return ClaimInfo(row["ClaimUID"], row["ClaimName"], row["Namespace"], set(row["PodUIDs"] or ()), drivers)
