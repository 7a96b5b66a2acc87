"""The worst of it at once, to a process of its own: nothing ends it, nothing stays broken, nothing is left behind."""

import asyncio
import contextlib

import pytest

from tests.kit.litter import litter
from tests.kit.process import Process, ask, crowd, ready
from vdev.agent import command_socket
from vdev.sim import KubeletPanic, manifest

NPU, TPU, UART = "acme.dev/npu", "acme.dev/tpu", "example.com/uart"
CALM = f"""\
version: v1
flags: {{plugin: {{deviceListStrategy: [envvar, cdi-cri]}}}}
devices:
  - {{name: npu, resource: {NPU}, virtual: {{count: 4}}}}
  - {{name: tpu, resource: {TPU}, virtual: {{count: 2}}}}
  - {{name: uart, resource: {UART}, virtual: {{count: 1}}}}
"""
STORM = (
    CALM
    + """\
faults:
  seed: 7
  rules:
    - {name: loose, devices: [npu/0-1], flap: {up: 70ms, down: 50ms}}
    - {name: gone, devices: [npu/3], remove: true, at: 100ms, for: 300ms, every: 500ms}
    - {name: no-socket, socket: {delete: true}, resource: acme.dev/npu, every: 400ms}
    - {name: spoilt, socket: {replace: true}, resource: acme.dev/tpu, every: 300ms}
    - {name: cut, stream: {close: true}, resource: example.com/uart, every: 200ms}
    - {name: busy, rpc: Allocate, everyNth: 2, error: {code: UNAVAILABLE, message: busy}}
    - {name: no-spec, cdi: {broken: true}, resource: acme.dev/tpu, at: 100ms, for: 200ms, every: 400ms}
    - {name: nobody-knows, podResources: {unavailable: true}, for: 300ms, every: 600ms}
"""
)
HALF = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-More: "
NONSENSE = (b"\n", b"[]\n", b'{"do": []}\n', b"{" * 5000 + b"\n", b"[" * 100_000 + b"\n", b'{"do": 1e308}\n', b"\xff\n")
RESTARTS = 4


@pytest.fixture
def cdi(directory):
    """A CDI directory in which everything lies about."""
    path = directory / "cdi"
    path.mkdir()
    litter(path, "")
    return path


@contextlib.asynccontextmanager
async def nonsense(run_dir):
    """Clients of the control socket that say nonsense, and some that say nothing."""
    writers = []
    for text in (*NONSENSE, *[b""] * 20):
        _, writer = await asyncio.open_unix_connection(run_dir / command_socket.SOCKET)
        writer.write(text)
        writers.append(writer)
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("prepared_python")
async def test_everything_at_once(kubelet, shows, directory, cdi):
    """A storm of faults in a littered directory, HTTP and control sockets held open, while the kubelet restarts."""
    litter_before = {path.name for path in cdi.iterdir()}
    async with Process(directory, kubelet, STORM, ulimit="-n 256") as vdev:
        await kubelet.wait_until(lambda: kubelet.metrics.registrations[NPU], what="the start")
        async with crowd(vdev.address, 100, HALF), nonsense(vdev.run_dir):
            for number in range(RESTARTS):
                with contextlib.suppress(KubeletPanic):
                    await kubelet.run_pod(manifest(f"early-{number}", {NPU: 1}))
                before = kubelet.metrics.registrations.copy()
                await (kubelet.crash() if number % 2 else kubelet.stop())
                vdev.hang_up()
                await kubelet.start()
                for name in (NPU, TPU, UART):
                    await kubelet.wait_until(
                        lambda name=name, before=before: kubelet.metrics.registrations[name] > before[name],
                        what=f"{name} after restart {number}",
                    )
                assert vdev.process.returncode is None
            for number in range(RESTARTS):
                await kubelet.delete_pod(f"early-{number}")
            await asyncio.to_thread(vdev.edit, CALM)
            async with asyncio.timeout(60):
                while (await command_socket.ask(vdev.run_dir, {"do": "status"}))["faults"]["rules"]:
                    pass  # what is shown meanwhile may be a lull in the storm
            for name, count in ((NPU, 4), (TPU, 2), (UART, 1)):
                await shows(name, count, count)
            await ready(vdev.address)
            status = await command_socket.ask(vdev.run_dir, {"do": "status"})
            assert [NPU, TPU, UART] == sorted(each["name"] for each in status["resources"])
        pod = await kubelet.run_pod(manifest("late", {NPU: 4, TPU: 2, UART: 1}))
        assert "Running" == pod.phase.value, pod.message
        assert pod.container().edits.cdi_devices
        assert "200 OK" in await ask(vdev.address, "/metrics")
    assert [] == [each for each in kubelet.errors if each.code == "panic"]
    log = await asyncio.to_thread(vdev.log)
    assert [] == [each for each in log if "exception" in each or "Traceback" in str(each)]
    assert 2000 > len(log)
    assert [] == list(kubelet.device_plugin_dir.glob("vdev-*.sock"))
    assert litter_before <= {path.name for path in cdi.iterdir()}
