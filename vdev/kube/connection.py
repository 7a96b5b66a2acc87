"""The HTTP client for an API server, made by lightkube from a kubeconfig file or the service account of a pod.

This is the one module that imports the client library, and it is imported by the first request.
"""

import contextlib
import ipaddress
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import lightkube
import msgspec
import yaml
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


@dataclass(frozen=True, slots=True)
class Connection:
    """A client of one server as one user. `token` is the file of the user's token, if there is one."""

    http: httpx.AsyncClient
    where: str
    token: Path | None

    def read_token(self) -> None:
        """Read the token, which the next requests send; blocks. Raises Unconfigured."""
        if self.token is None:
            return
        try:
            text = self.token.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as failed:
            reason = reason_of(failed) if isinstance(failed, OSError) else "it is not ASCII"
            raise Unconfigured(f"the token {self.token} cannot be read: {reason}") from failed
        self.http.headers["Authorization"] = f"Bearer {text}"


def connect(server: ApiServerAddress) -> Connection:
    """Read the kubeconfig or the service account; nothing is sent yet. Blocks. Raises Unconfigured."""
    source = server.kubeconfig or server.token
    try:
        config = _config(server)
        user = config.user or User()
        token = Path(config.abs_file(user.token_file)) if user.token_file else None
        if token:  # the library would read it in the event loop
            user = msgspec.structs.replace(user, token=None, token_file=None)
        cluster = config.cluster
        if urlsplit(cluster.server).scheme == "http":  # it needs no certificates, and to load the system's takes 2 MiB
            cluster = msgspec.structs.replace(cluster, insecure=True)
        settings = client_adapter.ConnectionParams(timeout=_FOREVER, trust_env=not _is_loopback(cluster.server))
        http = client_adapter.AsyncClient(config._replace(user=user, cluster=cluster), settings)
    except (lightkube.ConfigError, msgspec.ValidationError, yaml.YAMLError, httpx.InvalidURL, ImportError) as wrong:
        raise Unconfigured(f"{source} cannot be used: {wrong}") from wrong
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as wrong:
        why = f"no {wrong}" if isinstance(wrong, LookupError) else reason_of(wrong)
        raise Unconfigured(f"{source} cannot be used: {why}") from wrong
    http.headers["User-Agent"] = _AGENT
    connection = Connection(http, cluster.server, token)
    connection.read_token()
    return connection


def _config(server: ApiServerAddress) -> lightkube.SingleConfig:
    if server.kubeconfig is None:
        cluster = Cluster(server=server.address, certificate_auth=str(server.ca) if server.ca else None)
        account: Any = lightkube.KubeConfig.from_one(cluster=cluster, user=User(token_file=str(server.token))).get()
        assert isinstance(account, lightkube.SingleConfig)
        return account
    if os.pathsep in str(server.kubeconfig):
        raise lightkube.ConfigError("these are several files; kubectl config view --flatten makes one of them")
    try:
        kubeconfig = lightkube.KubeConfig.from_file(server.kubeconfig)
    except AttributeError as wrong:  # the document is not a mapping
        raise lightkube.ConfigError("it is no kubeconfig file") from wrong
    except RecursionError:
        raise lightkube.ConfigError("it is nested too deeply") from None
    config = kubeconfig.get(server.context or None)
    if config is None:
        raise lightkube.ConfigError("it has no current context; choose one with --context NAME")
    return config


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
