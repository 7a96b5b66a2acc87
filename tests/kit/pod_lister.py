"""A PodResources server whose answers a test chooses."""

import gc
from contextlib import asynccontextmanager

import grpc

from vdev.pb import podresources_v1_pb2 as pb
from vdev.pb import podresources_v1_pb2_grpc as rpc


class Lister(rpc.PodResourcesListerServicer):
    """Answers with an error status, or with the devices of pods."""

    def __init__(self):
        self.refusal = None
        self.held = {}
        self.asked = 0

    async def List(self, request, context):
        """List the pods."""
        self.asked += 1
        if self.refusal is not None:
            await context.abort(self.refusal, "rejected by rate limit")
        devices = [pb.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in self.held.items()]
        container = pb.ContainerResources(name="c", devices=devices)
        return pb.ListPodResourcesResponse(
            pod_resources=[pb.PodResources(name="p", namespace="n", containers=[container])]
        )


@asynccontextmanager
async def pod_lister(socket):
    """Serve PodResources on this socket."""
    servicer = Lister()
    servicer.socket = socket
    server = grpc.aio.server()
    rpc.add_PodResourcesListerServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(None)
        del server
        gc.collect()  # a server stops its threads when it is garbage collected, which must not happen inside the plugin
