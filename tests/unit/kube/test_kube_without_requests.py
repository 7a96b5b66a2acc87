"""What is not asked of the API server costs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from vdev import cli, kube
from vdev.cli import options
from vdev.errors import UsageError

LIBRARY = ("lightkube", "httpx2", "httpcore2", "h2", "anyio", "msgspec")
WITHOUT = """
import sys
{work}
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & set({library!r})))
"""


def test_nothing_is_imported_before_a_request():
    """Neither with the package, nor by making a client."""
    work = "from vdev import kube; kube.Api(kube.ApiServerAddress(address='https://127.0.0.1:1'))"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(work=work, library=LIBRARY)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [] == done.stdout.split()


def test_the_server_of_a_pod(tmp_path):
    """In a cluster the environment and the mounted token say where and who; outside there is nobody to ask."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert kube.find_server(environ=environ, account=tmp_path) is None
    (tmp_path / "token").write_text("x")
    assert kube.find_server(environ={}, account=tmp_path) is None
    found = kube.find_server(environ=environ, account=tmp_path)
    assert kube.ApiServerAddress(address="https://10.0.0.1:6443", token=tmp_path / "token") == found
    (tmp_path / "ca.crt").touch()
    assert tmp_path / "ca.crt" == kube.find_server(environ=environ, account=tmp_path).ca


def test_an_address_of_ipv6(tmp_path):
    """It stands in brackets."""
    (tmp_path / "token").touch()
    found = kube.find_server(environ={"KUBERNETES_SERVICE_HOST": "fd00::1"}, account=tmp_path)
    assert "https://[fd00::1]:443" == found.address


def test_an_account_that_cannot_be_looked_at_is_none(tmp_path):
    """A token behind a name that no file can have is no token, and a port that is no number no account."""
    (tmp_path / "token").symlink_to("n" * 300)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert kube.find_server(environ=environ, account=tmp_path) is None
    (tmp_path / "token").unlink()
    (tmp_path / "token").touch()
    assert kube.find_server(environ={**environ, "KUBERNETES_SERVICE_PORT": "https"}, account=tmp_path) is None
    assert kube.find_server(environ=environ, account=tmp_path) is not None


def test_a_kubeconfig_goes_before_the_pods_account(tmp_path):
    """With the context that was chosen; the file is read only when there is a request."""
    (tmp_path / "token").touch()
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    found = kube.find_server(kubeconfig=tmp_path / "none", context="kind", environ=environ, account=tmp_path)
    assert kube.ApiServerAddress(kubeconfig=tmp_path / "none", context="kind") == found


def test_the_options():
    """`KUBECONFIG` is the variable that kubectl has; a context is one of a file."""
    chosen = options.read(cli.parsed(["run", "--context", "kind-vdev"]), {"KUBECONFIG": "/etc/kubeconfig"})
    assert (Path("/etc/kubeconfig"), "kind-vdev") == (chosen.kubeconfig, chosen.context)
    with pytest.raises(UsageError, match="--context needs"):
        options.read(cli.parsed(["run", "--context", "kind-vdev"]), {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "not found"),
        ("{", "cannot be used"),
        ("[]", "cannot be used: it is no kubeconfig file"),
        ("garbage", "cannot be used: it is no kubeconfig file"),
        ("clusters: []\ncontexts: []", "No current context"),
        ("clusters: []\ncontexts: [{name: a, context: {cluster: b}}]\ncurrent-context: a", "no 'b'"),
        ("clusters: []\ncontexts: []\ncurrent-context: a", "'a' not found"),
    ],
)
async def test_a_kubeconfig_that_is_none(tmp_path, text, said):
    """The error names the file, and is raised by the request."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    async with kube.Api(kube.ApiServerAddress(kubeconfig=file)) as api:
        with pytest.raises(kube.Unconfigured, match=said) as raised:
            await api.get(kube.NODES, "n")
    assert str(file) in str(raised.value)


async def test_several_kubeconfigs(tmp_path):
    """As kubectl takes them, and merges them."""
    async with kube.Api(kube.ApiServerAddress(kubeconfig=tmp_path / "a:b")) as api:
        with pytest.raises(kube.Unconfigured, match="several files"):
            await api.get(kube.NODES, "n")


async def test_a_proxy_that_cannot_be_spoken_to(tmp_path, monkeypatch):
    """The error says which kind of proxy it is."""
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    (tmp_path / "token").write_text("t")
    async with kube.Api(kube.ApiServerAddress(address="http://10.0.0.1:1", token=tmp_path / "token")) as api:
        with pytest.raises(kube.Unconfigured, match="SOCKS proxy"):
            await api.get(kube.NODES, "n")
