"""The address of the API server, and errors of a kubeconfig."""

import contextlib

import pytest

from vdev.api_server import ApiServerAddress, find_server
from vdev.kube.api import Api
from vdev.kube.connection import Connection
from vdev.kube.errors import Unconfigured
from vdev.kube.objects import NODES


def test_the_server_of_a_pod(tmp_path):
    """In a cluster, it comes from the environment and the mounted token."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert find_server(environ=environ, account=tmp_path) is None
    (tmp_path / "token").write_text("x")
    assert find_server(environ={}, account=tmp_path) is None
    found = find_server(environ=environ, account=tmp_path)
    assert ApiServerAddress(address="https://10.0.0.1:6443", token=tmp_path / "token") == found
    (tmp_path / "ca.crt").touch()
    assert tmp_path / "ca.crt" == find_server(environ=environ, account=tmp_path).ca


def test_an_unusable_account_is_ignored(tmp_path):
    """The token cannot be read, or the port is not a number."""
    (tmp_path / "token").symlink_to("n" * 300)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert find_server(environ=environ, account=tmp_path) is None
    (tmp_path / "token").unlink()
    (tmp_path / "token").touch()
    assert find_server(environ={**environ, "KUBERNETES_SERVICE_PORT": "https"}, account=tmp_path) is None
    assert find_server(environ=environ, account=tmp_path) is not None


def test_a_kubeconfig_takes_precedence_over_the_account(tmp_path):
    """The file is read with the first request, so it need not exist here."""
    (tmp_path / "token").touch()
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    found = find_server(kubeconfig=tmp_path / "none", context="kind", environ=environ, account=tmp_path)
    assert ApiServerAddress(kubeconfig=tmp_path / "none", context="kind") == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "not found"),
        ("{", "cannot be used"),
        ("[]", "cannot be used: it is not a kubeconfig file"),
        ("garbage", "cannot be used: it is not a kubeconfig file"),
        ("clusters: 5\ncontexts: []\ncurrent-context: a", "cannot be used: it is not a kubeconfig file"),
        ("clusters: []\ncontexts: []", "No current context"),
        (
            "clusters: []\ncontexts: [{name: a, context: {cluster: b}}]\ncurrent-context: a",
            "it is not a kubeconfig file .*'b'",
        ),
        ("clusters: []\ncontexts: []\ncurrent-context: a", "'a' not found"),
    ],
)
async def test_an_invalid_kubeconfig(tmp_path, text, said):
    """A request raises an error that names the file."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    async with contextlib.aclosing(Connection(ApiServerAddress(kubeconfig=file))) as connection:
        with pytest.raises(Unconfigured, match=said) as raised:
            await Api(connection).get(NODES, "n")
    assert str(file) in str(raised.value)
