"""Who holds what, as the kubelet's PodResources API says it.

Only `List` is called: at changes and at a slow pace, because the kubelet allows 100 calls a second over all its
clients. Containers of finished pods are absent; so are regular init containers, whose devices an app container reuses
or frees.
"""

from pathlib import Path

import grpc

from ..core.retention.holders import Answer
from ..pb import podresources_v1_pb2 as pb
from ..pb import podresources_v1_pb2_grpc as rpc
from .kubelet_channel import kubelet_channel
from .kubelet_socket import MAX_SOCKET_PATH

TIMEOUT = 5.0  # seconds


class RateLimited(Exception):
    """The kubelet is asked too often at the moment; ask again soon."""


async def holders(socket: Path) -> Answer | None:
    """What all active pods hold; None when the API does not answer.

    Raises RateLimited when the kubelet's limit is hit.
    """
    if len(str(socket).encode()) > MAX_SOCKET_PATH:
        return None
    async with kubelet_channel(socket) as channel:
        try:
            answer = await rpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=TIMEOUT)
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
