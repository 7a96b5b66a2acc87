"""A device plugin that is not vdev: plain grpcio with threads, as other authors may write it, with optional defects.

    python -m tests.kit.foreign_plugin --socket-dir DIR --state DIR [--defect NAME]

Device N is broken while the file `N.broken` is in the state directory.
"""

import argparse
import os
import signal
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as api_grpc

DEFECTS = {
    "early": "registers before it serves",
    "never-serves": "registers and does not serve",
    "deaf": "never registers again after a restart of the kubelet",
    "stale": "registers again with a socket that the kubelet has deleted",
    "leftover": "does not start if its old socket exists",
    "drops": "removes a broken device from its list",
    "drops-allocated": "removes a device from its list half a second after its Allocate",
    "duplicate": "lists an id twice",
    "hangs": "hangs in Allocate",
    "dies": "exits at an Allocate",
    "forgets": "has other ids after a restart",
    "child": "leaves a child process running when it exits",
    "deaf-to-sigterm": "ignores SIGTERM",
}
_LATE_SECONDS = 2.0  # longer than a kubelet needs to notice, also on a busy machine
_LOOK_SECONDS = 0.05


def say(text):
    """Log a line."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Plugin(api_grpc.DevicePluginServicer):
    """Serves two devices of one resource."""

    def __init__(self, directory, state, defect):
        self._directory = directory
        self._state = state
        self._defect = defect
        self._ids = ["widget-0", "widget-1"]
        if defect == "forgets":
            self._ids = [f"widget-{os.getpid()}-{number}" for number in range(2)]
        self._allocated_at = {}  # by id, monotonic seconds
        self._server = None
        self.over = threading.Event()

    @property
    def socket(self):
        """The path of its socket."""
        return self._directory / "widget.sock"

    def serve(self):
        """Listen on a new socket."""
        if self._defect == "leftover" and self.socket.exists():
            sys.exit(f"listen unix {self.socket}: bind: address already in use")
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        api_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def _serve_again(self):
        self._server.stop(None).wait()
        self.serve()

    def register(self):
        """Register when a kubelet answers."""
        kubelet = f"unix:{self._directory / 'kubelet.sock'}"
        request = api.RegisterRequest(version="v1beta1", endpoint="widget.sock", resource_name="acme.dev/widget")
        while True:
            try:
                with grpc.insecure_channel(kubelet, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                    api_grpc.RegistrationStub(channel).Register(request, timeout=60)
            except grpc.RpcError as error:
                say(f"cannot register: {error.details()}")
                time.sleep(0.1)
                if self._server and self._defect != "stale" and not self.socket.exists():
                    self._serve_again()  # the kubelet clears its directory at its start
            else:
                say("registered acme.dev/widget")
                return

    def run(self):
        """Serve and register, again for each new kubelet."""
        if self._defect == "early":
            threading.Timer(_LATE_SECONDS, self.serve).start()
        elif self._defect != "never-serves":
            self.serve()
        self.register()
        known = self._kubelet()
        while True:
            time.sleep(_LOOK_SECONDS)
            seen = self._kubelet()
            if seen is None or seen == known or self._defect == "deaf":
                continue
            known = seen
            if self._defect != "stale":
                self._serve_again()
            self.register()

    def _kubelet(self):
        """The identity of the kubelet's socket."""
        try:
            found = (self._directory / "kubelet.sock").stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _devices(self):
        broken = {id_ for number, id_ in enumerate(self._ids) if (self._state / f"{number}.broken").exists()}
        ids = self._ids * 2 if self._defect == "duplicate" else self._ids
        if self._defect == "drops":
            ids = [id_ for id_ in ids if id_ not in broken]
        if self._defect == "drops-allocated":
            ids = [id_ for id_ in ids if time.monotonic() - self._allocated_at.get(id_, float("inf")) < 0.5]
        return [api.Device(ID=id_, health="Unhealthy" if id_ in broken else "Healthy") for id_ in ids]

    def GetDevicePluginOptions(self, request, context):
        return api.DevicePluginOptions()

    def ListAndWatch(self, request, context):
        """Send the list, and each later one."""
        sent = None
        while context.is_active():
            if (devices := self._devices()) != sent:
                sent = devices
                yield api.ListAndWatchResponse(devices=devices)
            time.sleep(_LOOK_SECONDS)

    def Allocate(self, request, context):
        """Answer with a variable with the ids, for each container."""
        if self._defect == "hangs":
            threading.Event().wait()
        if self._defect == "dies":
            say("panic: index out of range")
            os._exit(2)
        for each in request.container_requests:
            self._allocated_at |= dict.fromkeys(each.devices_ids, time.monotonic())
        responses = [
            api.ContainerAllocateResponse(envs={"WIDGETS": ",".join(each.devices_ids)})
            for each in request.container_requests
        ]
        return api.AllocateResponse(container_responses=responses)


def main():
    """Run until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-dir", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--defect", choices=DEFECTS, default=None)
    args = parser.parse_args()
    if args.defect == "child":
        if not (child := os.fork()):
            time.sleep(600)
        (args.state / "child").write_text(str(child))
    if args.defect == "deaf-to-sigterm":
        signal.signal(signal.SIGTERM, lambda *_: say("not now"))
    Plugin(args.socket_dir, args.state, args.defect).run()


if __name__ == "__main__":
    main()
