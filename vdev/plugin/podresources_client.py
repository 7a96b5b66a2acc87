"""Which pods hold which devices, according to the kubelet's PodResources API.

Only `List` is called, after changes and otherwise seldom: the kubelet allows 100 calls a second for all clients
together. Containers of finished pods are absent; so are ordinary init containers, whose devices an app container reuses
or frees.
"""

from pathlib import Path

import grpc

from ..core.retention.holders import Answer
from ..pb import podresources_v1_pb2 as pb
from ..pb import podresources_v1_pb2_grpc as rpc
from ..sockets.files import MAX_SOCKET_PATH
from .kubelet_channel import kubelet_channel


class RateLimited(Exception):
    """The kubelet is being asked too often; ask again soon."""


async def holders(socket: Path, *, within: float) -> Answer | None:
    """What all active pods hold; None when the API does not answer `within` so many seconds.

    Raises RateLimited when the kubelet's limit is hit.
    """
    if len(str(socket).encode()) > MAX_SOCKET_PATH:
        return None
    async with kubelet_channel(socket) as channel:
        try:
            answer = await rpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=within)
        except grpc.aio.AioRpcError as failed:
            if failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise RateLimited from failed
            return None
    named = {
        (devices.resource_name, device): f"{pod.namespace}/{pod.name}"
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
        for device in devices.device_ids
    }
    pods = {f"{pod.namespace}/{pod.name}" for pod in answer.pod_resources}
    return Answer(named, frozenset(pods - set(named.values())))
