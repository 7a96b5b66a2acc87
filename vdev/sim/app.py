"""`vdev sim`: runs the embedded kubelet for any device plugin until it receives a signal."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from ..aio.tasks import acting_on
from ..errors import HostError
from ..hostfs import write_atomic
from .api.server import ApiServer
from .api.store import ApiObjects
from .journal import Entry
from .kubelet.kubelet import Kubelet
from .node_objects import NodeObjects
from .pod_directory import PodDirectory

DEFAULT_DIRECTORY = Path("/tmp/vdev-sim")  # short and easy to type; its owner is checked


async def serve(
    kubelet_dir: Path,
    *,
    pods: Path | None = None,
    api_server: str = "",
    as_json: bool = False,
    out: TextIO = sys.stdout,
    **options: Any,
) -> int:
    """Run until SIGINT or SIGTERM; SIGHUP restarts the kubelet. Returns the exit code.

    Args:
        kubelet_dir: the kubelet's directory
        pods: the directory of manifests; None for no pods
        api_server: HOST:PORT; empty for no API server
        as_json: print a JSON object for each entry
        out: the output
        options: other options of `Kubelet`

    Raises SocketError if another kubelet uses the directory, HostError if a directory or an address cannot be used.
    """
    await asyncio.to_thread(_check_directories, kubelet_dir, pods)
    host, _, port = api_server.rpartition(":")
    api = ApiServer(host=host.strip("[]") or "127.0.0.1", port=int(port)) if port else None
    objects = None if api is None else ApiObjects(api.objects)
    kubelet = Kubelet(kubelet_dir, host_root="/", objects=objects, **options)
    nodes = NodeObjects(kubelet)
    nodes.register()  # before a client can connect
    again, end = asyncio.Event(), asyncio.Event()

    def show(entry: Entry) -> None:
        if line := json.dumps(entry.document) if as_json else entry.text:
            out.write(line + "\n")
            out.flush()
        if entry.event == "kubelet" and entry.fields["what"] == "panicked":
            again.set()  # restart it, as systemd does

    async with contextlib.AsyncExitStack() as stack:
        if api is not None:
            try:
                await stack.enter_async_context(api)
            except OSError as error:
                raise HostError(f"the API server cannot be served at {api_server}: {error.strerror}") from error
        stack.enter_context(acting_on({signal.SIGINT: end.set, signal.SIGTERM: end.set, signal.SIGHUP: again.set}))
        await stack.enter_async_context(kubelet)  # raises SocketError if another kubelet uses the directory
        if api is not None:
            await asyncio.to_thread(write_atomic, kubelet_dir / "kubeconfig", api.kubeconfig().encode())
            stack.callback((kubelet_dir / "kubeconfig").unlink, missing_ok=True)
        if not as_json:
            out.write(_banner(kubelet, pods, has_api=api is not None))
        for entry in kubelet.journal.entries:  # entries that the start recorded
            show(entry)
        kubelet.journal.listen(show)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(_restart_on(again, kubelet), name="restart the kubelet")]
        tasks.append(group.create_task(nodes.run(), name="follow the API server"))
        if pods is not None:
            tasks.append(group.create_task(PodDirectory(kubelet, pods).run(), name="watch the pods directory"))
        await end.wait()
        for task in tasks:
            task.cancel()
    return 0


async def _restart_on(again: asyncio.Event, kubelet: Kubelet) -> None:
    while True:
        await again.wait()
        again.clear()
        await kubelet.restart()


def _banner(kubelet: Kubelet, pods: Path | None, *, has_api: bool) -> str:
    kubeconfig = f" --kubeconfig {kubelet.root / 'kubeconfig'}" if has_api else ""
    node = f" --node-name {kubelet.node_name}" if has_api else ""
    cdi = f" --cdi-dir {kubelet.cdi_dir}" if kubelet.cdi_dir else ""
    flags = f"--kubelet-dir {kubelet.root}{kubeconfig}{cdi}{node}"
    run_pods = "kubectl apply" if has_api else "start it with --pods DIR"
    rows = [
        f"An embedded kubelet that behaves like Kubernetes {kubelet.compat.value}: {kubelet.root}",
        f"  start a plugin:     vdev run {flags} --config-file devices.yaml",
        f"  run pods:           {run_pods if pods is None else f'put manifests into {pods}'}",
        *([f"  see objects:        kubectl{kubeconfig} get nodes,pods"] if has_api else []),
        f"  restart it:         kill -HUP {os.getpid()}",
        "  stop it:            Ctrl-C",
    ]
    return "\n".join(rows) + "\n"


def _check_directories(kubelet_dir: Path, pods: Path | None) -> None:
    """Raise HostError if another user owns the kubelet directory or --pods is not a directory. Blocks."""
    owner = os.geteuid()
    with contextlib.suppress(OSError):  # the start of the kubelet reports it
        owner = kubelet_dir.stat().st_uid
    if owner != os.geteuid():
        raise HostError(f"{kubelet_dir}: belongs to user {owner}; choose another with --kubelet-dir")
    if pods is not None and not pods.is_dir():
        raise HostError(f"{pods}: not a directory; give --pods the directory of the manifests")
