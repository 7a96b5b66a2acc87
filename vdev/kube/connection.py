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
_SHOWN = 400  # characters in messages of a response that is not a Status, such as a proxy's error page


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
            match wrong:
                case LookupError():
                    why = f"no {wrong}"
                case AttributeError() | TypeError():  # not a mapping, or a number in place of a list
                    why = "it is not a kubeconfig file"
                case _:
                    why = reason_of(wrong)
            raise Unconfigured(f"{server.kubeconfig or server.token} cannot be used: {why}") from wrong
        self.is_outdated = False

    def error(self, call: ApiCall, failed: Exception) -> ApiServerError:
        """Return the error for an exception of the library."""
        match failed:
            case httpx.HTTPStatusError():
                return self._refusal(call, failed)
            case httpx.HTTPError() | httpx.StreamError():
                self.is_outdated = self.is_outdated or isinstance(failed, httpx.ConnectError)
                return Unreachable(call, _reason(failed))
            case _ if isinstance(failed.__context__, httpx.HTTPStatusError):  # the body is not JSON
                return self._refusal(call, failed.__context__)
            case lightkube.ConfigError() | OSError() | LookupError() | TypeError():  # of a credential plugin
                return Unconfigured(f"{call.who} cannot be used: {_reason(failed)}")
        return Unreachable(call, f"the answer is not a Kubernetes object: {_reason(failed)}")

    def _refusal(self, call: ApiCall, refused: httpx.HTTPStatusError) -> ApiServerError:
        response: httpx.Response | None = refused.response  # None: an event of a watch
        if isinstance(refused, lightkube.ApiError):
            status = refused.status.to_dict()
        else:
            status = {"message": _text(refused.response)}
        code = response.status_code if response is not None else int(status.get("code") or 0)
        after = "" if response is None else response.headers.get("retry-after", "")  # the API server sends no dates
        self.is_outdated = self.is_outdated or code == HTTPStatus.UNAUTHORIZED
        return error_of(call, code, status, float(after) if after.isdecimal() else None)


def _text(response: httpx.Response) -> str:
    """Return the text of a response that is not a Status, e.g. a proxy's error page."""
    try:
        return " ".join(response.text.split())[:_SHOWN]
    except httpx.StreamError:  # the library does not read the response to a watch
        return response.reason_phrase


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
