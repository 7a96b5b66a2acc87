"""Pods and objects of DRA from a directory, and the embedded kubelet on its own."""

import asyncio
import io
import json
import os
import signal
import urllib.request

import pytest
import yaml

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, pod, template
from vdev.errors import HostError, SocketError
from vdev.sim import Phase, manifest
from vdev.sim.app import serve
from vdev.sim.node_objects import NodeObjects
from vdev.sim.pod_directory import PodDirectory

NPU = "acme.dev/npu"


@pytest.fixture
async def pods(kubelet, short_dir):
    watch = PodDirectory(kubelet, short_dir, interval=0.02)
    tasks = [asyncio.create_task(each.run()) for each in (watch, NodeObjects(kubelet))]
    yield short_dir
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def write(path, *documents):
    """Write manifests, or a text, atomically."""
    temporary = path.with_suffix(".tmp")
    text = documents[0] if isinstance(documents[0], str) else yaml.safe_dump_all(documents)
    temporary.write_text(text)
    temporary.rename(path)


async def test_add_change_remove(kubelet, plugins, pods):
    """A file has a pod, a changed file has a new pod, and with the file the pod is removed."""
    await plugins(NPU, ["d1", "d2"])
    path = pods / "p.yaml"
    write(path, manifest("p", {NPU: 1}))
    await kubelet.wait_until(lambda: [pod.phase for pod in kubelet.pods()] == [Phase.RUNNING])
    before = kubelet.pod("p")
    write(path, manifest("p", {NPU: 2}))
    await kubelet.wait_until(lambda: [len(pod.container().devices.get(NPU, ())) for pod in kubelet.pods()] == [2])
    assert before.uid != kubelet.pod("p").uid
    path.unlink()
    await kubelet.wait_until(lambda: kubelet.pods() == [])


async def test_several_pods_in_a_file(kubelet, pods):
    """All pods and objects of a file are created and deleted with it."""
    write(pods / "all.yaml", yaml.safe_dump_all([manifest("a"), None, manifest("b")]))
    await kubelet.wait_until(lambda: [pod.name for pod in kubelet.pods()] == ["a", "b"])
    assert kubelet.pod("a").uid != kubelet.pod("b").uid
    (pods / "all.yaml").unlink()
    await kubelet.wait_until(lambda: kubelet.pods() == [])


ONE = yaml.safe_dump(manifest("one"), explicit_start=True)


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("a: 1\nb: [}\n", 2, "while parsing a flow node: expected the node content, but found '}'"),
        (f"{ONE}---\nkind: Deployment\n", ONE.count("\n") + 2, "expected a v1 Pod, found None 'Deployment'"),
        (f"{ONE}---\n- 1\n", ONE.count("\n") + 2, "the manifest: expected a mapping, found list"),
        ("# nothing\n", 1, "the file is empty: expected Pods or objects of DRA"),
        ("a: !!int x", 0, "a value cannot be read: invalid literal for int() with base 10: 'x'"),
    ],
    ids=["YAML", "another kind", "a list", "empty", "a value"],
)
async def test_errors_have_their_line(kubelet, pods, text, line, error):
    """The report has the line of the mistake or of its document; no pod of the file runs, and other files are read."""
    path = pods / "a.yaml"
    write(path, text)
    write(pods / "b.yaml", manifest("b"))
    await kubelet.wait_until(lambda: ["b"] == [pod.name for pod in kubelet.pods()])
    (refused,) = kubelet.journal.of("manifestRefused")
    assert {"path": str(path), "error": error, "line": line} == refused.fields
    assert refused.text.endswith(f"{path}:{line} refused: {error}" if line else f"{path} refused: {error}")


def phases(kubelet):
    return {each.name: each.phase for each in kubelet.pods()}


async def has(kubelet, kind, *names):
    """Wait until exactly these objects of a kind exist."""
    async with asyncio.timeout(30):
        while [each["metadata"]["name"] for each in await kubelet.objects.list(kind)] != list(names):
            await kubelet.journal.next_change(at_most=0.01)


async def test_a_pod_and_its_claim_in_one_file(kubelet, dra, pods):
    """They are created and deleted together."""
    await dra(slice_of("acme.dev", [device("gpu-0")]))
    write(pods / "class.yaml", device_class("acme.dev"))
    write(pods / "one.yaml", claim("gpu"), pod("one", claims=["gpu"]))
    await kubelet.wait_until(lambda: phases(kubelet) == {"one": Phase.RUNNING})
    (pods / "one.yaml").unlink()
    await kubelet.wait_until(lambda: not kubelet.pods())
    shown = "\n".join(kubelet.journal.history(100))
    for text in (
        "driver   acme.dev registered (v1.DRAPlugin, ",
        "claim    default/gpu prepared: acme.dev/sim-node/gpu-0",
        "claim       gpu: acme.dev/sim-node/gpu-0",
        "env         DRA_MAIN=gpu-0",
        "claim    default/gpu unprepared",
    ):
        assert text in shown
    kinds = {each.event for each in kubelet.journal.entries}
    assert {"driverRegistered", "claim", "pod", "podDeleted"} <= kinds
    await has(kubelet, "ResourceClaim")
    await has(kubelet, "DeviceClass", "acme.dev")


async def test_slices_and_templates(kubelet, pods):
    """Slices stand for a missing driver. The pod is bound to its node."""
    await kubelet.wait_until(lambda: kubelet.ready)
    write(pods / "all.yaml", slice_of("acme.dev", [device("gpu-0")]), device_class("acme.dev"), template("gpu"))
    write(pods / "one.yaml", pod("one", templates=["gpu"]))
    await kubelet.wait_until(lambda: kubelet.pods() and kubelet.pods()[0].container().waiting == "ContainerCreating")
    assert "DRA driver acme.dev is not registered" in kubelet.events[-1].message


@pytest.mark.parametrize(
    ("documents", "text"),
    [
        ([{**claim("gpu"), "apiVersion": "resource.k8s.io/v1beta1"}], "expected a ResourceClaim of resource.k8s.io/v1"),
        ([{**claim("gpu"), "metadata": {}}], "metadata.name: Required value"),
        ([{**claim("gpu"), "spec": None}], "spec: Required value"),
    ],
)
async def test_files_that_are_refused(kubelet, pods, documents, text):
    """The message has the file and the mistake."""
    write(pods / "bad.yaml", *documents)
    await kubelet.wait_until(lambda: kubelet.journal.of("manifestRefused"))
    (refused,) = kubelet.journal.of("manifestRefused")
    assert text in refused.fields["error"]


class Watched(io.StringIO):
    """An output that can be waited for."""

    def __init__(self):
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text):
        self.written.set()
        return super().write(text)

    async def has(self, text, count=1):
        async with asyncio.timeout(30):
            while self.getvalue().count(text) < count:
                self.written.clear()
                await self.written.wait()


@pytest.fixture
async def sim(short_dir):
    """A running `vdev sim`: its output and its task."""
    running = []

    async def start(**options):
        out = Watched()
        task = asyncio.create_task(serve(short_dir / "k", pods=short_dir / "pods", out=out, **options))
        running.append(task)
        return out, task

    (short_dir / "pods").mkdir()
    yield start
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def test_sim_prints_what_happens(sim, short_dir, plugins):
    """The text output has the node, the plugin, pods with their edits, findings and a restart."""

    class Home:
        device_plugin_dir = short_dir / "k" / "device-plugins"
        socket = device_plugin_dir / "kubelet.sock"
        journal = type("J", (), {"changed": staticmethod(lambda: None)})

    out, task = await sim()
    await out.has("kill -HUP")
    plugin = await plugins(NPU, ["d1", "d1"], on=Home, register=False)
    await plugin.register()
    await out.has(f"{NPU}  ")
    write(short_dir / "pods" / "p.yaml", manifest("p", {NPU: 1}))
    await out.has("env         STUB_DEVICES=d1")
    await plugin.stop()
    await out.has(f"plugin   {NPU} disconnected")
    os.kill(os.getpid(), signal.SIGHUP)
    await out.has("kubelet  started", 2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert 0 == await task
    printed = out.getvalue()
    for text in (
        f"plugin   {NPU} registered ({plugin.endpoint})",
        f"node     {NPU}  capacity 1, allocatable 1\n",
        f"node     {NPU}  capacity 1, allocatable 0 (was 1 and 1)\n",
        "finding  error: duplicate-id",
        "pod      default/p Running",
        f"main  {NPU}: d1",
    ):
        assert text in printed


async def test_sim_prints_json(sim, short_dir):
    """With JSON, each line is an object."""
    out, task = await sim(as_json=True)
    write(short_dir / "pods" / "p.yaml", manifest("p"))
    await out.has('"phase": "Running"')
    os.kill(os.getpid(), signal.SIGINT)
    assert 0 == await task
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert ["kubelet", "pod", "kubelet"] == [line["event"] for line in lines]


async def test_the_node_exists_when_the_kubeconfig_does(sim, short_dir):
    """When the kubeconfig exists, the Node exists too."""
    await sim(api_server="127.0.0.1:0", node_name="n1")
    file = short_dir / "k" / "kubeconfig"
    async with asyncio.timeout(30):
        while not file.exists():
            await asyncio.sleep(0)
    address = json.loads(file.read_text())["clusters"][0]["cluster"]["server"]
    with await asyncio.to_thread(urllib.request.urlopen, f"{address}/api/v1/nodes/n1", timeout=30) as answer:
        assert "n1" == json.load(answer)["metadata"]["name"]


async def test_the_kubeconfig_is_that_of_the_running_kubelet(sim, short_dir):
    """A second kubelet that is refused leaves the kubeconfig of the first alone; it is removed at the end."""
    _, first = await sim(api_server="127.0.0.1:0")
    file = short_dir / "k" / "kubeconfig"
    async with asyncio.timeout(30):
        while not file.exists():
            await asyncio.sleep(0)
    before = file.read_text()
    _, second = await sim(api_server="127.0.0.1:0")
    with pytest.raises(SocketError, match="another kubelet is running here"):
        await second
    assert before == file.read_text()
    first.cancel()
    await asyncio.wait([first])
    assert not file.exists()


async def test_sim_refuses_a_missing_directory_of_pods(sim, short_dir):
    (short_dir / "pods").rmdir()
    _, task = await sim()
    with pytest.raises(HostError, match="pods: not a directory; give --pods the directory of the manifests"):
        await task


async def test_sim_leaves_the_directories_of_others_alone(sim, short_dir):
    """A directory of another user is refused."""
    (short_dir / "k").mkdir()
    if os.geteuid():
        pytest.skip("needs root to give a directory away")
    os.chown(short_dir / "k", 65534, 65534)
    _, task = await sim()
    with pytest.raises(HostError, match="belongs to user 65534"):
        await task
