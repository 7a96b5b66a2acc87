"""The node's label against an HTTP server that answers as the API server does, with TLS and a token."""

import http.server
import json
import ssl
import subprocess
import threading
from dataclasses import replace

import pytest
import structlog

from vdev.agent.inputs.node_label import Account, NodeLabel


class Api:
    """A server on a free port; `answer` is a status and a document, `asked` what was asked."""

    def __init__(self, directory):
        self.answer = (200, {})
        self.asked = []
        key, certificate = directory / "key.pem", directory / "ca.crt"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=api", "-addext"]
        subprocess.run([*command, "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True, timeout=60)
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                api.asked.append((self.path, self.headers["Authorization"], self.headers["Accept"]))
                status, document = api.answer
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        token = directory / "token"
        token.write_text("secret\n")
        self.account = Account("127.0.0.1", self.server.server_address[1], token, certificate)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """One server for all tests here: its certificate takes a moment."""
    try:
        api = Api(tmp_path_factory.mktemp("api"))
    except FileNotFoundError:
        pytest.skip("openssl, which makes the certificate, is not here")
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield api
    api.server.shutdown()
    api.server.server_close()
    thread.join()


@pytest.fixture
def api(running):
    """The server, with an empty memory."""
    running.asked.clear()
    return running


def node(**labels):
    """A node's metadata as the API server sends it."""
    return {"kind": "PartialObjectMetadata", "metadata": {"name": "worker-1", "labels": labels}}


async def test_the_label_is_read(api):
    """One GET of the node's metadata with the service account's token gives the label."""
    label = NodeLabel("worker-1", "vdev.dev/config", api.account)
    api.answer = (200, node(**{"vdev.dev/config": "a100"}))
    assert await label.read()
    assert ("a100", "", False) == (label.value, label.trouble, label.unanswered)
    assert not await label.read()
    path, authorization, accept = api.asked[0]
    assert ("/api/v1/nodes/worker-1?resourceVersion=0", "Bearer secret") == (path, authorization)
    assert "PartialObjectMetadata" in accept


async def test_no_label(api):
    """A node without labels has none."""
    label = NodeLabel("worker-1", "vdev.dev/config", api.account)
    api.answer = (200, {"metadata": {"name": "worker-1"}})
    assert not await label.read()
    assert ("", "") == (label.value, label.trouble)


@pytest.mark.parametrize(
    ("status", "text"),
    [(403, "may not get nodes"), (404, "set --node-name"), (401, "does not know the service account")],
)
async def test_refusals_are_said_once(api, status, text):
    """A refusal counts as no label; one line says why, and what to do."""
    label = NodeLabel("worker-1", "vdev.dev/config", api.account)
    api.answer = (status, {})
    with structlog.testing.capture_logs() as logs:
        await label.read()
        await label.read()
    assert [("warning", True)] == [(each["log_level"], text in each["reason"]) for each in logs]
    assert ("", False) == (label.value, label.unanswered)


async def test_an_api_server_in_trouble_leaves_the_label(api):
    """What may pass does not change the label."""
    label = NodeLabel("worker-1", "vdev.dev/config", api.account)
    api.answer = (200, node(**{"vdev.dev/config": "a100"}))
    await label.read()
    api.answer = (500, {})
    assert not await label.read()
    assert ("a100", True) == (label.value, label.unanswered)


async def test_nobody_answers(tmp_path):
    """A closed port is said, and is not an answer."""
    (tmp_path / "token").write_text("x")
    label = NodeLabel("worker-1", "vdev.dev/config", Account("127.0.0.1", 1, tmp_path / "token", None))
    await label.read()
    assert label.unanswered
    assert "does not answer" in label.trouble


async def test_a_certificate_of_nobody(api):
    """The API server must prove who it is."""
    stranger = replace(api.account, ca=None)
    label = NodeLabel("worker-1", "vdev.dev/config", stranger)
    await label.read()
    assert "certificate" in label.trouble.lower()


def test_the_account_of_a_pod(tmp_path):
    """In a cluster the environment and the mounted token say where and who; outside there is no account."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert None is Account.in_cluster(environ, tmp_path)
    (tmp_path / "token").write_text("x")
    assert Account("10.0.0.1", 6443, tmp_path / "token", None) == Account.in_cluster(environ, tmp_path)
    assert None is Account.in_cluster({}, tmp_path)


def test_an_account_that_cannot_be_looked_at_is_none(tmp_path):
    """A token behind a name that no file can have is no token, and a port that is no number no account."""
    (tmp_path / "token").symlink_to("n" * 300)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert Account.in_cluster(environ, tmp_path) is None
    (tmp_path / "token").unlink()
    (tmp_path / "token").touch()
    assert Account.in_cluster({**environ, "KUBERNETES_SERVICE_PORT": "https"}, tmp_path) is None
    assert Account.in_cluster(environ, tmp_path) is not None
