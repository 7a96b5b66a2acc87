"""HTTP requests to an API server, by the client that lightkube makes from a kubeconfig file or a service account.

This is the only module that imports the client library. It is imported by the first request.
"""

import contextlib
import ipaddress
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2 as httpx
import lightkube
from lightkube.config import client_adapter
from lightkube.config.models import Cluster, User

from ..aio.clock import Timing
from ..api_server import ApiServerAddress
from ..errors import ApiServerError, reason_of
from .errors import ApiCall, Denied, Unconfigured, Unreachable, error_of
from .objects import Object

_HEADERS = {"User-Agent": "vdev", "Accept": "application/json", "Accept-Encoding": "identity"}
_FOREVER = httpx.Timeout(None)  # `Connection` enforces the deadlines with the injected clock

_NO_ANSWER = (httpx.HTTPError, httpx.StreamError, ssl.SSLError)
"""Connection errors. All other exceptions of a request are about credentials."""
_SHOWN = 400  # characters in messages of a response that is not a Status, such as a proxy's error page


_RENEWAL = 600.0  # seconds; a kubelet replaces a token that is valid for one hour after 48 minutes


class Connection:
    """An HTTP client with the credentials that the files had when it was made.

    It is outdated if these may have changed, or the address or CA. It then closes after its last request.
    """

    def __init__(self, server: ApiServerAddress, timing: Timing) -> None:
        self._who = server.who
        self._http = _client(server)
        self._intervals, self._clock = timing
        self._outdated_at = self._clock.now() + _RENEWAL
        self._requests = 0  # that are open

    @property
    def is_outdated(self) -> bool:
        return self._clock.now() >= self._outdated_at

    async def aclose(self) -> None:
        await self._http.aclose()

    async def close_unused(self) -> None:
        """Close it unless a request is open, which this would break."""
        if not self._requests:
            await self.aclose()

    async def document(
        self, call: ApiCall, params: Mapping[str, str], body: object, content_type: str
    ) -> dict[str, Any]:
        """Send a request and return the object in the response."""
        async with self._answer(call, params, body, content_type, within=self._intervals.api_answer) as response:
            return _object(call, await response.aread())

    @contextlib.asynccontextmanager
    async def events(
        self, call: ApiCall, params: Mapping[str, str], *, within: float
    ) -> AsyncIterator[AsyncIterator[tuple[str, Object, str]]]:
        """Yield the type, object and resource version of each event of a watch."""
        async with (
            self._answer(call, params, within=within) as response,
            contextlib.aclosing(_events(call, response)) as events,
        ):
            yield events

    @contextlib.asynccontextmanager
    async def _answer(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = "", *, within: float
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and yield the response if it is a success, all within so many seconds.

        The response, even that of a watch, must begin within the timeout for one answer.
        """
        call.who, call.where = self._who, str(self._http.base_url).rstrip("/")
        path = call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource)
        request = self._http.build_request(
            call.method,
            f"{call.where}{path}?{urlencode(params)}",  # absolute: the library would parse a relative URL twice
            headers=None if body is None else {"Content-Type": content_type},
            content=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
        )
        self._requests += 1
        try:
            async with self._clock.timeout(within):
                response = await self._send(call, request)
                async with contextlib.aclosing(response):
                    if not response.is_success:
                        raise await _refusal(call, response)
                    yield response
        except TimeoutError as late:
            raise Unreachable(call, f"no complete answer within {within:g} s") from late
        except _NO_ANSWER as failed:
            if isinstance(failed, httpx.ConnectError):
                self._outdated_at = self._clock.now()
            raise Unreachable(call, _reason(failed)) from failed
        except Denied as denied:
            if not denied.known:
                self._outdated_at = self._clock.now()
            raise
        finally:
            self._requests -= 1
            if self.is_outdated:
                await self.close_unused()

    async def _send(self, call: ApiCall, request: httpx.Request) -> httpx.Response:
        """Return the response as soon as it begins, which that of a watch does at once, too."""
        try:
            async with self._clock.timeout(self._intervals.api_answer):
                return await self._http.send(request, stream=True)
        except _NO_ANSWER:
            raise
        except TimeoutError as late:
            raise Unreachable(call, f"no answer within {self._intervals.api_answer:g} s") from late
        except Exception as failed:  # e.g. a credential plugin of the kubeconfig failed
            raise Unconfigured(f"{call.who} cannot be used: {_reason(failed)}") from failed


async def _refusal(call: ApiCall, response: httpx.Response) -> ApiServerError:
    """Return the error for a response. If its body is not a Status, e.g. from a proxy, its text becomes the message."""
    after = response.headers.get("retry-after", "").strip()  # the API server sends no dates
    body = await response.aread()
    try:
        status = _object(call, body)
    except Unreachable:
        status = {"message": " ".join(body.decode(errors="replace").split())[:_SHOWN]}
    return error_of(call, response.status_code, status, float(after) if after.isdecimal() else None)


def _object(call: ApiCall, text: bytes) -> dict[str, Any]:
    """Decode a Kubernetes object, which always has a kind. Raises Unreachable if the text is anything else."""
    found: object = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
    if isinstance(found, dict) and "kind" in found:
        return found
    raise Unreachable(call, "the answer is not a Kubernetes object")


async def _events(call: ApiCall, response: httpx.Response) -> AsyncGenerator[tuple[str, Object, str], None]:
    # Not `aiter_lines`: it also splits at U+2028 and similar characters, which JSON allows inside strings.
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _event(call, line)


def _event(call: ApiCall, line: bytes) -> tuple[str, Object, str]:
    try:
        event = json.loads(line)
        kind, found = str(event["type"]), dict(event["object"])
        if kind == "ERROR":
            raise error_of(call, int(found.get("code") or HTTPStatus.INTERNAL_SERVER_ERROR), found)
        version = str(found["metadata"].get("resourceVersion") or "")
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as odd:
        raise Unreachable(call, "a line of the watch is not an event") from odd
    return kind, found, version


def _client(server: ApiServerAddress) -> httpx.AsyncClient:
    """Return a client for the kubeconfig or service account, without connecting. Raises Unconfigured."""
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
            case AttributeError() | TypeError():  # not a mapping, or a number in place of a list
                why = "it is not a kubeconfig file"
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
