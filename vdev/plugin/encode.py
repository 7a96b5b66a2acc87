"""From the core's values to the kubelet's messages.

A protobuf message may be written in parts, one after the other. So each device of a list is encoded once, and its bytes
are kept: a list of tens of thousands of devices in which one changed costs one new part and a join. An answer to
Allocate is a part for each container.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..core.allocation.device_edits import ContainerEdits
from ..core.allocation.edits import prepared
from ..core.inventory.resources import Resource
from ..core.model import spans
from ..core.model.device import Slot
from ..pb import deviceplugin_v1beta1_pb2 as pb


def slot_part(slot: Slot) -> bytes:
    """A `ListAndWatchResponse` with this slot alone."""
    own = slot.id.encode()
    before, after = _around(len(own), slot.device.raw.topology, healthy=slot.health.healthy)
    return before + own + after


@lru_cache(maxsize=1024)  # a list of tens of thousands of slots has a handful of them
def _around(id_bytes: int, topology: tuple[int, ...], *, healthy: bool) -> tuple[bytes, bytes]:
    """What stands before and after the id, where it has so many bytes."""
    message, blank = pb.ListAndWatchResponse(), "\0" * id_bytes
    device = message.devices.add(ID=blank, health="Healthy" if healthy else "Unhealthy")
    for node in topology:
        device.topology.nodes.add(ID=node)
    before, _, after = message.SerializeToString().partition(blank.encode())
    return before, after


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Slots, the part of each, and all of them together."""

    slots: Sequence[Slot] = ()
    parts: Sequence[bytes] = ()
    whole: bytes = b""


class ListEncoder:
    """Encodes one list of a resource after the other, and reuses the bytes of slots that stayed the same.

    A long list is encoded ahead, in a thread; to ask for it again then costs nothing.
    """

    def __init__(self) -> None:
        self._last = _Encoded()

    def encode(self, slots: Sequence[Slot]) -> bytes:
        """A whole `ListAndWatchResponse`."""
        last = self._last
        if slots is last.slots:
            return last.whole
        start, old_end, new_end = spans.changed(last.slots, slots)
        known: dict[int, bytes] = {}  # by the slot's identity; `last` keeps them alive
        old = zip(spans.pieces(last.slots[start:old_end]), spans.pieces(last.parts[start:old_end]), strict=True)
        for some, parts in old:
            known.update(zip(map(id, some), parts, strict=True))
        new = [known.get(id(slot)) or slot_part(slot) for slot in slots[start:new_end]]
        parts = [*last.parts[:start], *new, *last.parts[old_end:]]
        whole = b"".join([b"".join(some) for some in spans.pieces(parts)])
        self._last = _Encoded(slots, parts, whole)
        return whole


def make_ready(resource: Resource) -> Iterator[None]:
    """Have the answers ready that the kubelet may ask for now; one with each step."""
    for slot, edits in prepared(resource):
        keep_ready(resource, slot.id, allocate_response([edits]))
        yield


def keep_ready(resource: Resource, slot: str, answer: bytes) -> None:
    """Let this be the answer to requests for that slot alone, which need not be read any more.

    A resource with something to do when a device changes hands does that first.
    """
    if not resource.acts_on_handovers:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[slot])])
        resource.ready[request.SerializeToString()] = (slot, answer)


def allocate_response(containers: Iterable[ContainerEdits]) -> bytes:
    """An `AllocateResponse` for some containers. Edits that are kept for the next request are encoded once."""
    return b"".join([edits.encoded or _encoded(edits) for edits in containers])


def _encoded(edits: ContainerEdits) -> bytes:
    """A part of the answer, which is filled in place: a message that is made first would be copied into it."""
    response = pb.AllocateResponse()
    container = response.container_responses.add()
    for key, value in edits.env.items():
        container.envs[key] = value
    for key, value in edits.annotations.items():
        container.annotations[key] = value
    for mount in edits.mounts.values():
        container.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
    for node in edits.nodes.values():
        container.devices.add(
            container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
        )
    for name in edits.cdi_devices:
        container.cdi_devices.add(name=name)
    edits.encoded = response.SerializeToString()
    return edits.encoded
