"""The HTTP client for an API server, made by lightkube from a kubeconfig file or the service account of a pod.

This is the one module that imports the client library, and it is imported by the first request.
"""

import asyncio
import contextlib
import ipaddress
import os
import ssl
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import lightkube
from lightkube.config import client_adapter
from lightkube.config.models import Cluster, User

from ..api_server import ApiServerAddress
from ..errors import reason_of
from .answers import ApiCall, Unconfigured, Unreachable

_AGENT = "vdev"
_FOREVER = httpx.Timeout(None)  # `calls` sets the deadlines, by its own clock

ConnectError = httpx.ConnectError
_UNREACHABLE = (httpx.HTTPError, httpx.StreamError, ssl.SSLError)
# Raised by the library if a program that prints credentials fails.
_BAD_CREDENTIALS = (lightkube.ConfigError, OSError, LookupError, TypeError, ValueError)


class _TokenFile(httpx.Auth):
    """Sends the token that a file has now: a kubelet replaces a service account's token before it expires."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        request.headers["Authorization"] = f"Bearer {await asyncio.to_thread(self._token)}"
        yield request

    def _token(self) -> str:
        try:
            return self._file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as failed:
            reason = reason_of(failed) if isinstance(failed, OSError) else "it is not ASCII"
            raise Unconfigured(f"the token {self._file} cannot be read: {reason}") from failed


def connect(server: ApiServerAddress) -> httpx.AsyncClient:
    """Read the kubeconfig or the service account; nothing is sent yet. Blocks. Raises Unconfigured."""
    try:
        config = _config(server)
        settings = client_adapter.ConnectionParams(timeout=_FOREVER, trust_env=not _is_loopback(config.cluster.server))
        http = client_adapter.AsyncClient(config, settings)
        if config.user and config.user.token_file:
            http.auth = _TokenFile(Path(config.abs_file(config.user.token_file)))
    except Exception as wrong:  # the library reports a wrong file by errors of many types
        why = f"no {wrong}" if isinstance(wrong, LookupError) else reason_of(wrong)
        raise Unconfigured(f"{server.kubeconfig or server.token} cannot be used: {why}") from wrong
    http.headers["User-Agent"] = _AGENT
    return http


def _config(server: ApiServerAddress) -> lightkube.SingleConfig:
    if server.kubeconfig is None:
        cluster = Cluster(server=server.address, certificate_auth=str(server.ca) if server.ca else None)
        kubeconfig = lightkube.KubeConfig.from_one(cluster=cluster, user=User(token_file=str(server.token)))
    elif os.pathsep in str(server.kubeconfig):
        raise lightkube.ConfigError("these are several files; kubectl config view --flatten makes one of them")
    else:
        try:
            kubeconfig = lightkube.KubeConfig.from_file(server.kubeconfig)
        except AttributeError as wrong:  # the document is not a mapping
            raise lightkube.ConfigError("it is no kubeconfig file") from wrong
        except RecursionError:
            raise lightkube.ConfigError("it is nested too deeply") from None
    config = kubeconfig.get(server.context or None)
    assert config is not None  # it is only None with a default of None, and then `get` raises ConfigError
    return config if config.user else config._replace(user=User())


@contextlib.contextmanager
def speaking(call: ApiCall) -> Iterator[None]:
    """Errors of the library inside become Unreachable or Unconfigured."""
    try:
        yield
    except _UNREACHABLE as failed:
        raise Unreachable(call, _reason(failed)) from failed
    except _BAD_CREDENTIALS as failed:
        raise Unconfigured(f"{call.who} cannot be used: {_reason(failed)}") from failed


def _reason(failed: BaseException) -> str:
    """Why there is no answer: in the words of the system if there are any, because these are the same each time."""
    seen: BaseException | None = failed
    found = ""
    while seen is not None:
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
        if isinstance(seen, OSError) and seen.strerror:
            found = seen.strerror
        seen = seen.__cause__ or seen.__context__
    return found or str(failed) or type(failed).__name__


def _is_loopback(url: str) -> bool:
    """Whether proxies from the environment do not apply, as in Go."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
