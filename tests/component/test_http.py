"""The HTTP server of a running plugin, over real sockets."""

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit import well_agent
from vdev.observe import http

NPU = "acme.dev/npu"
CONFIG = f"""\
version: v1
devices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]
"""


class Answer:
    """Status, headers and text of an answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.text = status, headers, body.decode()


def _get(url, headers):
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


async def get(address, path, **headers):
    """Get a path."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await asyncio.to_thread(_get, f"http://{address}{path}", names)


async def test_a_failure_of_the_http_task_is_logged(start_agent, shows, monkeypatch):
    """The agent goes on without HTTP."""
    monkeypatch.setattr(http, "listen", lambda address: address + 1)  # raises TypeError
    agent = await start_agent(CONFIG, http_address=ANY_PORT)
    await shows(NPU, 2, 2)
    (line,) = [each for each in agent.logs if each["event"] == "step failed; trying again"]
    assert "serving HTTP" == line["step"]


ANY_PORT = "127.0.0.1:0"


def served(agent):
    """The address in the agent's log."""
    (address,) = [each["address"] for each in agent.logs if each["event"] == "serving HTTP"]
    return address


@pytest.fixture
async def address(start_agent):
    """The address of a plugin with two devices, registered."""
    return served(await start_agent(CONFIG, http_address=ANY_PORT))


async def test_the_served_paths(address):
    """Probes, the document of `vdev status`, and a page that loads nothing from other hosts. POST is refused."""
    for path in ("/readyz", "/healthz"):
        answer = await get(address, path)
        assert (200, "ok\n") == (answer.status, answer.text)
    answer = await get(address, "/status")
    document = json.loads(answer.text)
    assert (True, [], "node-1") == (document["ready"], document["notReady"], document["node"])
    assert ["npu-0", "npu-1"] == [device["id"] for device in document["resources"][0]["devices"]]
    page = await get(address, "/")
    assert 200 == page.status
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert [] == re.findall(r"""(?:src|href)="https?:""", page.text)
    for path in ("/nothing", "/../../etc/passwd"):
        assert 404 == (await get(address, path)).status

    def post():
        request = urllib.request.Request(f"http://{address}/status", data=b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        refused.value.close()
        return refused.value.code

    assert 405 == await asyncio.to_thread(post)


async def test_not_ready_without_a_kubelet(kubelet, start_agent):
    """While no kubelet answers, the agent is alive but not ready, with the reason for each resource."""
    await kubelet.stop()
    agent = await start_agent(CONFIG, wait=False, http_address=ANY_PORT)
    await kubelet.wait_until(lambda: any(each.trouble for each in agent.agent.lists.services.values()))
    ready = await get(served(agent), "/readyz")
    assert 503 == ready.status
    assert re.fullmatch(rf"{NPU}: no kubelet answers on .*\n", ready.text)
    assert 200 == (await get(served(agent), "/healthz")).status


async def samples_of(address):
    """The samples that Prometheus reads, by name and labels."""
    answer = await get(address, "/metrics")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_metrics(address):
    """Prometheus' parser reads the metrics, in both formats."""
    samples = await samples_of(address)
    assert 2 == samples["vdev_devices", "Healthy", NPU]
    assert 1 == samples["vdev_streams", NPU]
    assert 1 == samples["vdev_registrations_total", NPU]
    assert 1 == samples["vdev_config_last_reload_successful",]
    answer = await get(address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_devices_with_injected_faults_have_their_own_metric(start_agent, kubelet):
    """`vdev_drill_devices` counts the devices that a fault rule makes Unhealthy, and no real failures."""
    rules = "faults: {rules: [{name: x, devices: [npu/0], health: Unhealthy}]}\n"
    agent = await start_agent(CONFIG + rules, http_address=ANY_PORT)
    await kubelet.wait_until(lambda: kubelet.node().allocatable.get(NPU) == 1)
    samples = await samples_of(served(agent))
    assert (1, 1, 0) == tuple(
        samples[name]
        for name in (("vdev_devices", "Unhealthy", NPU), ("vdev_drill_devices", NPU), ("vdev_retired_devices", NPU))
    )
    agent.edit(CONFIG)
    await kubelet.wait_until(lambda: kubelet.node().allocatable.get(NPU) == 2)
    assert 0 == (await samples_of(served(agent)))["vdev_drill_devices", NPU]


async def test_a_port_in_use_is_reported_and_used_once_it_is_free(kubelet, start_agent, shows):
    """The plugin goes on without HTTP. Until then there is one line in the log, and a problem."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        agent = await start_agent(CONFIG, http_address=address)
        await shows(NPU, 2, 2)
        said = f"--http-address: the status cannot be served at {address}: Address already in use"
        (problem,) = agent.agent.reconciler.problems
        assert said in str(problem)
    await kubelet.wait_until(lambda: [each for each in agent.logs if each["event"] == "serving HTTP"])
    assert 200 == (await get(address, "/healthz")).status
    (line,) = [each for each in agent.logs if each["log_level"] == "error"]
    assert said in line["reason"]


async def test_the_server_ends_with_the_agent(start_agent):
    """The port is free after the agent's end, although a client keeps its connection open."""
    agent = await start_agent(CONFIG, http_address=ANY_PORT)
    host, _, port = served(agent).rpartition(":")
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"ok\n")
    assert 0 == await agent.stop()
    writer.close()
    await writer.wait_closed()
    with socket.create_server((host, int(port))):
        pass


def stuck():
    """The application of an agent whose reconciler is stuck."""
    return well_agent.application(
        stalled=lambda: "the reconciler has not finished a step for 200 s",
        not_ready=lambda: ["a: not there", "b: not there"],
    )


async def test_a_stuck_agent_is_not_alive():
    """The liveness probe answers 503, so that the kubelet restarts it. Each reason has its own line."""
    async with well_agent.served(stuck()) as address:
        alive = await get(address, "/healthz")
        assert (503, "the reconciler has not finished a step for 200 s\n") == (alive.status, alive.text)
        assert "a: not there\nb: not there\n" == (await get(address, "/readyz")).text
