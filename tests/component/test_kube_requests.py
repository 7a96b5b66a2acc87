"""Requests to an API server: credentials, refusals, and failing servers."""

import asyncio
import base64
import contextlib
import gc
import json
import ssl
import subprocess

import pytest

from tests.kit.api_server import ApiServer
from vdev.aio.clock import LeapClock
from vdev.api_server import ApiServerAddress
from vdev.kube.errors import Conflict, Denied, Invalid, Missing, Unconfigured, Unreachable, error_of
from vdev.kube.objects import NODES, RESOURCE_SLICES

MINE = {"metadata": {"labels": {"vdev.dev/a": "1"}}}


@pytest.fixture
async def node(api_server):
    """A Node as a kubelet creates it."""
    labels = {"kubernetes.io/hostname": "worker-1"}
    return await api_server.add(
        "nodes",
        {"metadata": {"name": "worker-1", "labels": labels}},
        manager="kubelet",
        status={"capacity": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    )


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_the_token_of_the_service_account(api_server, api, node):
    found = await api.get(NODES, "worker-1")
    assert node["metadata"]["uid"] == found["metadata"]["uid"]
    (asked,) = api_server.asked
    assert "Bearer secret" == asked.headers["authorization"]


async def test_a_replaced_token(api_server, api, account, node):
    """A refused request is repeated with the new token."""
    await api.get(NODES, "worker-1")
    account.token.write_text("fresh")
    api_server.tokens = {"fresh"}
    assert "worker-1" == (await api.get(NODES, "worker-1"))["metadata"]["name"]


async def test_an_unknown_token(api_server, api):
    """The error for 401 names the service account."""
    api_server.tokens = {"another"}
    with pytest.raises(Denied, match="does not know the service account"):
        await api.get(NODES, "worker-1")


def kubeconfig(file, address, token, **cluster):
    """Write a kubeconfig with a context for each of two users."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": address, **cluster}}],
        "users": [{"name": "good", "user": {"token": token}}, {"name": "bad", "user": {"token": "wrong"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "good"}},
            {"name": "two", "context": {"cluster": "c", "user": "bad"}},
        ],
        "current-context": "one",
    }
    file.write_text(json.dumps(document))
    return file


async def test_a_kubeconfig(api_server, start_api, directory, node):
    """The client uses its current context, or a given one."""
    file = kubeconfig(directory / "config", api_server.address, "secret")
    api = await start_api(server=ApiServerAddress(kubeconfig=file))
    assert "worker-1" == (await api.get(NODES, "worker-1"))["metadata"]["name"]
    api = await start_api(server=ApiServerAddress(kubeconfig=file, context="two"))
    with pytest.raises(Denied, match=f"the user of {file}"):
        await api.get(NODES, "worker-1")


async def test_a_replaced_kubeconfig(api_server, start_api, directory, node):
    """The request after a refusal reads the file again, because another program may have renewed the credentials."""
    file = kubeconfig(directory / "config", api_server.address, "secret")
    api = await start_api(server=ApiServerAddress(kubeconfig=file))
    await api.get(NODES, "worker-1")
    api_server.tokens = {"a longer one"}
    kubeconfig(file, api_server.address, "a longer one")
    with pytest.raises(Denied):
        await api.get(NODES, "worker-1")
    assert "worker-1" == (await api.get(NODES, "worker-1"))["metadata"]["name"]


async def test_a_program_that_prints_credentials(api_server, start_api, directory, node):
    """Kubeconfigs of cloud providers have such programs. The error has the output of a failed one."""
    file = directory / "config"
    run = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "sh"}

    def write(script):
        kubeconfig(file, api_server.address, "")
        document = json.loads(file.read_text())
        document["users"][0]["user"] = {"exec": {**run, "args": ["-c", script]}}
        file.write_text(json.dumps(document))
        return ApiServerAddress(kubeconfig=file)

    api = await start_api(server=write("""echo '{"status": {"token": "secret"}}'"""))
    assert "worker-1" == (await api.get(NODES, "worker-1"))["metadata"]["name"]
    api = await start_api(server=write("echo no such profile >&2; exit 3"))
    with pytest.raises(Unconfigured, match="no such profile"):
        await api.get(NODES, "worker-1")


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for the loopback address."""
    directory = tmp_path_factory.mktemp("tls")
    key, file = directory / "key.pem", directory / "ca.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", file, "-days", "2", "-subj", "/CN=api", "-addext"]
    try:
        subprocess.run([*command, "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("openssl, which makes the certificate, is not here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return file, context


async def test_the_certificate_of_the_server_is_verified(certificate, start_api, directory):
    """With the CA of the service account or that of the kubeconfig."""
    file, context = certificate
    (directory / "token").write_text("secret")
    async with ApiServer(tls=context) as server:
        await server.add("nodes", {"metadata": {"name": "n"}})
        pod = {"address": server.address, "token": directory / "token"}
        in_pod = await start_api(server=ApiServerAddress(**pod, ca=file))
        assert "n" == (await in_pod.get(NODES, "n"))["metadata"]["name"]
        inside = {"certificate-authority-data": base64.b64encode(file.read_bytes()).decode()}
        config = kubeconfig(directory / "config", server.address, "secret", **inside)
        by_file = await start_api(server=ApiServerAddress(kubeconfig=config))
        assert "n" == (await by_file.get(NODES, "n"))["metadata"]["name"]
        stranger = await start_api(server=ApiServerAddress(**pod))
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            await stranger.get(NODES, "n")
        await in_pod.connection.aclose()
        await by_file.connection.aclose()


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_missing_permission(api_server, api, node):
    """The error names verb and resource as in a role."""
    api_server.permissions = {"get nodes"}
    with pytest.raises(Denied, match=r"may not patch nodes/status: .*the verb patch on nodes/status"):
        await api.apply(NODES, "worker-1", {"status": {"capacity": {"a/b": "1"}}}, subresource="status")
    with pytest.raises(Denied, match=r"may not list resourceslices in resource.k8s.io"):
        await api.list(RESOURCE_SLICES, keep=dict)


async def test_deleting(api_server, api, node):
    await api.delete(NODES, "worker-1")
    assert [] == api_server.all("nodes")
    with pytest.raises(Missing, match="there is no Node worker-1"):
        await api.delete(NODES, "worker-1")


# --- failing servers --------------------------------------------------------------------------------------------------


async def test_a_server_that_is_down(api_server, api):
    """The error is Unreachable."""
    await api_server.down()
    with pytest.raises(Unreachable, match="does not answer"):
        await api.get(NODES, "worker-1")


async def test_closing_while_a_request_begins(api_server, api, node):
    """The request fails, or is answered, and no connection stays open."""
    for turns in range(12):
        await api.connection.client()
        task = asyncio.create_task(api.get(NODES, "worker-1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await api.connection.aclose()
        with contextlib.suppress(Unreachable):
            await task
        await api.connection.aclose()
    gc.collect()  # an open connection is then an error of this test


async def test_a_server_that_hangs(api_server, start_api):
    """A request has a deadline by the client's clock."""
    clock = LeapClock()
    api = await start_api(clock=clock, api_answer=600.0)
    hanging = api_server.fail(hang=True)
    task = asyncio.create_task(api.get(NODES, "worker-1"))
    await api_server.until(lambda: hanging.hits)
    clock.advance(601)
    with pytest.raises(Unreachable, match=r"no (complete )?answer within 600 s"):
        await task


async def test_a_server_that_asks_to_wait(api_server, api, node):
    """The error has the time, for the backoff of the caller."""
    api_server.fail(status=429, after=20, times=1)
    with pytest.raises(Unreachable, match="asks to wait 20 s") as raised:
        await api.get(NODES, "worker-1")
    assert 20 == raised.value.wait
    assert "worker-1" == (await api.get(NODES, "worker-1"))["metadata"]["name"]


@pytest.mark.parametrize(
    ("status", "after", "error"),
    [
        (0, None, Unreachable),
        (500, None, Unreachable),
        (403, None, Denied),
        (404, None, Missing),
        (409, None, Conflict),
        (422, None, Invalid),
        (429, 3600, Unreachable),
    ],
)
async def test_injected_errors(api_server, start_api, node, status, after, error):
    """The error of a fault rule is raised like one of the server, and nothing is sent."""

    def fault(call):
        is_meant = (call.verb, call.kind) == ("patch", NODES)
        return error_of(call, status, {"details": {"name": call.name}}, after) if is_meant else None

    api = await start_api(fault=fault)
    with pytest.raises(error):
        await api.apply(NODES, "worker-1", MINE)
    assert 0 == api_server.writes
    assert "worker-1" == (await api.get(NODES, "worker-1"))["metadata"]["name"]
