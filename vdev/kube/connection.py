"""The HTTP client for an API server, made by lightkube from a kubeconfig file or the service account of a pod.

This is the only module that imports the client library. It is imported by the first request.
"""

import ipaddress
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import lightkube
from lightkube.config import client_adapter
from lightkube.config.models import Cluster, User

from ..api_server import ApiServerAddress
from ..errors import reason_of
from .errors import Unconfigured

_HEADERS = {"User-Agent": "vdev", "Accept": "application/json", "Accept-Encoding": "identity"}
_FOREVER = httpx.Timeout(None)  # `api` enforces the deadlines with the injected clock

ConnectError = httpx.ConnectError
NO_ANSWER = (httpx.HTTPError, httpx.StreamError, ssl.SSLError)
"""Connection errors. All other exceptions of a request are about credentials."""


def connect(server: ApiServerAddress) -> httpx.AsyncClient:
    """Return a client for the kubeconfig or service account, without connecting. Blocks. Raises Unconfigured."""
    try:
        config = _config(server)
        user = config.user or User()
        if user.token_file:  # read here, because the library would block the event loop
            user.token = Path(config.abs_file(user.token_file)).read_text(encoding="ascii").strip()
            user.token_file = None
        settings = client_adapter.ConnectionParams(timeout=_FOREVER, trust_env=not _is_loopback(config.cluster.server))
        http = client_adapter.AsyncClient(config._replace(user=user), settings)
    except Exception as wrong:  # the library raises many types for an invalid file
        match wrong:
            case LookupError():
                why = f"no {wrong}"
            case RecursionError():
                why = "it is nested too deeply"
            case AttributeError() | TypeError():  # not a mapping, or a number in place of a list
                why = "it is no kubeconfig file"
            case _:
                why = reason_of(wrong)
        raise Unconfigured(f"{server.kubeconfig or server.token} cannot be used: {why}") from wrong
    http.headers.update(_HEADERS)
    return http


def _config(server: ApiServerAddress) -> lightkube.SingleConfig:
    if server.kubeconfig is None:
        cluster = Cluster(server=server.address, certificate_auth=str(server.ca) if server.ca else None)
        kubeconfig = lightkube.KubeConfig.from_one(cluster=cluster, user=User(token_file=str(server.token)))
    elif os.pathsep in str(server.kubeconfig):
        raise lightkube.ConfigError("these are several files; kubectl config view --flatten makes one of them")
    else:
        kubeconfig = lightkube.KubeConfig.from_file(server.kubeconfig)
    config = kubeconfig.get(server.context or None)
    assert config is not None  # for the type checker: `get` raises ConfigError instead
    return config


def reason(failed: BaseException) -> str:
    """Why there is no answer: the text of the operating system if there is one, because it is the same each time."""
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
    """Whether the host is a loopback address, for which Go ignores the proxies in the environment."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
