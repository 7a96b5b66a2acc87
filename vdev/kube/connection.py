"""lightkube's client for one API server, made from a kubeconfig file or a service account, and its errors.

This is the only module that imports the library. It is imported by the first request.
"""

import functools
import ipaddress
import os
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import lightkube
from lightkube.config.models import Cluster, User
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from ..api_server import ApiServerAddress
from ..errors import ApiServerError, reason_of
from .errors import ApiCall, Unconfigured, Unreachable, error_of
from .objects import ObjectKind

_NO_TIMEOUT = httpx.Timeout(None)  # `Api` enforces the deadlines with the injected clock


@functools.cache
def _resource(kind: ObjectKind) -> Any:
    """Return the library's class for the objects of a kind, which are dicts. `Status` is that of their status."""
    create = create_namespaced_resource if kind.namespaced else create_global_resource
    return create(kind.group, kind.version, kind.name, kind.plural)


class Connection:
    """A client with the credentials that the files had when it was made. Raises Unconfigured.

    It is outdated once the server could not be reached or did not know the account: the files may have changed.
    """

    MERGE, STRATEGIC = PatchType.MERGE, PatchType.STRATEGIC
    resource = staticmethod(_resource)

    def __init__(self, server: ApiServerAddress) -> None:
        try:
            config = _config(server)
            self.address = config.cluster.server
            is_proxied = not _is_loopback(self.address)
            self.client: Any = lightkube.AsyncClient(config, timeout=_NO_TIMEOUT, trust_env=is_proxied)
        except Exception as wrong:  # the library raises many types for an invalid file
            is_plain = isinstance(wrong, lightkube.ConfigError | OSError)
            why = reason_of(wrong) if is_plain else f"it is not a kubeconfig file ({type(wrong).__name__}: {wrong})"
            raise Unconfigured(f"{server.kubeconfig or server.token} cannot be used: {why}") from wrong
        self.is_outdated = False

    def error(self, call: ApiCall, failed: Exception) -> ApiServerError:
        """Return the error for an exception of the library."""
        # The library raises another one on top of the refusal if the body is not JSON.
        refusal = failed if isinstance(failed, httpx.HTTPStatusError) else failed.__context__
        match failed:
            case _ if isinstance(refusal, httpx.HTTPStatusError):
                return self._refused(call, refusal)
            case httpx.HTTPError() | httpx.StreamError():
                self.is_outdated = self.is_outdated or isinstance(failed, httpx.ConnectError)
                return Unreachable(call, _reason(failed))
            case lightkube.ConfigError() | OSError():  # of a program that prints credentials, or the token's file
                return Unconfigured(f"{call.who} cannot be used: {_reason(failed)}")
        return Unreachable(call, f"the answer is not a Kubernetes object: {_reason(failed)}")

    def _refused(self, call: ApiCall, refusal: httpx.HTTPStatusError) -> ApiServerError:
        status = refusal.status.to_dict() if isinstance(refusal, lightkube.ApiError) else {}
        if refusal.response is None:  # an event of a watch
            return error_of(call, status.get("code", 0), status)
        code, after = refusal.response.status_code, refusal.response.headers.get("retry-after", "")
        self.is_outdated = self.is_outdated or code == HTTPStatus.UNAUTHORIZED
        reason = {"message": refusal.response.reason_phrase}
        return error_of(call, code, reason | status, float(after) if after.isdecimal() else None)


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
    user = config.user or User()
    if user.token_file:
        user.token_file = str(config.abs_file(user.token_file))
    return config._replace(user=user)


def _reason(failed: BaseException) -> str:
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
