"""`vdev sim`: runs the embedded kubelet for any device plugin until it receives a signal."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..aio.tasks import acting_on
from ..errors import HostError
from ..hostfs import write_atomic
from .api.server import ApiServer
from .api.store import ApiObjects
from .journal import Entry
from .kubelet.kubelet import Kubelet
from .kubelet_life import Compat
from .node_objects import NodeObjects
from .pod_directory import PodDirectory

DEFAULT_DIRECTORY = Path("/tmp/vdev-sim")  # short and easy to type; its owner is checked


@dataclass(frozen=True, slots=True)
class SimOptions:
    """Options of `vdev sim`."""

    kubelet_dir: Path = DEFAULT_DIRECTORY
    pods: Path | None = None  # the directory of manifests; None for no pods
    compat: Compat = Compat.V1_36
    as_json: bool = False  # print a JSON object for each entry
    node_name: str = "sim-node"
    seed: int = 0
    cdi_dir: Path | None = None  # None: CDI names are not resolved
    api_server: str = ""  # HOST:PORT; empty for no API server

    @property
    def kubeconfig(self) -> Path:
        return self.kubelet_dir / "kubeconfig"


async def serve(options: SimOptions, out: TextIO = sys.stdout) -> int:
    """Run until SIGINT or SIGTERM; SIGHUP restarts the kubelet. Returns the exit code.

    Raises SocketError if another kubelet uses the directory, HostError if a directory or an address cannot be used.
    """
    await asyncio.to_thread(_check_directories, options)
    host, _, port = options.api_server.rpartition(":")
    api = ApiServer(host=host.strip("[]") or "127.0.0.1", port=int(port)) if port else None
    objects = ApiObjects(None if api is None else api.objects)
    kubelet = Kubelet(
        options.kubelet_dir,
        node_name=options.node_name,
        compat=options.compat,
        seed=options.seed,
        host_root="/",
        cdi_dir=options.cdi_dir,
        objects=objects,
    )
    nodes = NodeObjects(kubelet, objects.store)
    nodes.register()  # before a client can connect
    again, end = asyncio.Event(), asyncio.Event()

    def show(entry: Entry) -> None:
        if line := json.dumps(entry.document) if options.as_json else entry.text:
            out.write(line + "\n")
            out.flush()
        if entry.event == "kubelet" and entry.fields["what"] == "panicked":
            again.set()  # restart it, as systemd does

    async with contextlib.AsyncExitStack() as stack:
        if api is not None:
            try:
                await stack.enter_async_context(api)
            except OSError as error:
                raise HostError(f"the API server cannot be served at {options.api_server}: {error.strerror}") from error
        stack.enter_context(acting_on({signal.SIGINT: end.set, signal.SIGTERM: end.set, signal.SIGHUP: again.set}))
        await stack.enter_async_context(kubelet)  # raises SocketError if another kubelet uses the directory
        if api is not None:
            await asyncio.to_thread(write_atomic, options.kubeconfig, api.kubeconfig().encode())
            stack.callback(options.kubeconfig.unlink, missing_ok=True)
        if not options.as_json:
            out.write(_banner(options))
        for entry in kubelet.journal.entries:  # entries that the start recorded
            show(entry)
        kubelet.journal.listen(show)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(_restart_on(again, kubelet), name="restart the kubelet")]
        tasks.append(group.create_task(nodes.run(), name="follow the API server"))
        if options.pods is not None:
            watch = PodDirectory(objects.store, kubelet.journal, options.pods).run()
            tasks.append(group.create_task(watch, name="watch the pods directory"))
        await end.wait()
        for task in tasks:
            task.cancel()
    return 0


async def _restart_on(again: asyncio.Event, kubelet: Kubelet) -> None:
    while True:
        await again.wait()
        again.clear()
        await kubelet.restart()


def _banner(options: SimOptions) -> str:
    pods = "start it with --pods DIR" if not options.api_server else "kubectl apply"
    if options.pods is not None:
        pods = f"put manifests into {options.pods}"
    kubeconfig = f" --kubeconfig {options.kubeconfig}" if options.api_server else ""
    cdi = f" --cdi-dir {options.cdi_dir}" if options.cdi_dir else ""
    node = f" --node-name {options.node_name}" if options.api_server else ""
    flags = f"--kubelet-dir {options.kubelet_dir}{kubeconfig}{cdi}{node}"
    rows = [
        f"An embedded kubelet that behaves like Kubernetes {options.compat.value}: {options.kubelet_dir}",
        f"  start a plugin:     vdev run {flags} --config-file devices.yaml",
        f"  run pods:           {pods}",
        *([f"  see objects:        kubectl{kubeconfig} get nodes,pods"] if options.api_server else []),
        f"  restart it:         kill -HUP {os.getpid()}",
        "  stop it:            Ctrl-C",
    ]
    return "\n".join(rows) + "\n"


def _check_directories(options: SimOptions) -> None:
    """Raise HostError if another user owns the kubelet directory or --pods is not a directory. Blocks."""
    owner = os.geteuid()
    with contextlib.suppress(OSError):  # the start of the kubelet reports it
        owner = options.kubelet_dir.stat().st_uid
    if owner != os.geteuid():
        raise HostError(f"{options.kubelet_dir}: belongs to user {owner}; choose another with --kubelet-dir")
    if options.pods is not None and not options.pods.is_dir():
        raise HostError(f"{options.pods}: not a directory; give --pods the directory of the manifests")
