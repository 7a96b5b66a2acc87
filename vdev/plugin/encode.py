"""From planned values to the kubelet's messages."""

from collections.abc import Iterable

from ..core.allocation.device_edits import ContainerEdits
from ..core.model.device import Slot
from ..pb import deviceplugin_v1beta1_pb2 as pb


def list_response(slots: Iterable[Slot]) -> bytes:
    """A `ListAndWatchResponse` with these slots, encoded: it is compared with the one before, and sent many times."""
    response = pb.ListAndWatchResponse()
    for slot in slots:
        device = response.devices.add(ID=slot.id, health="Healthy" if slot.health.healthy else "Unhealthy")
        for node in slot.device.raw.topology:
            device.topology.nodes.add(ID=node)
    return response.SerializeToString()


def allocate_response(containers: Iterable[ContainerEdits]) -> pb.AllocateResponse:
    """The answer to an Allocate for these containers."""
    response = pb.AllocateResponse()
    for edits in containers:
        container = response.container_responses.add()
        for key, value in edits.env.items():
            container.envs[key] = value
        for key, value in edits.annotations.items():
            container.annotations[key] = value
        for name in edits.cdi_devices:
            container.cdi_devices.add(name=name)
        for mount in edits.mounts.values():
            container.mounts.add(
                container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only
            )
        for node in edits.nodes.values():
            container.devices.add(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
    return response
