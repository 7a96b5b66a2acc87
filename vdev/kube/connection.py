"""A connection to an API server by lightkube's client, with the credentials of a kubeconfig file or a service account.

Only this module imports the library, at the first request, because the import takes 9 MiB and 0.25 s.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..api_server import NO_SERVER, ApiServerAddress
from ..errors import ApiServerError, reason_of
from .errors import ApiCall, Unconfigured, Unreachable, error_of
from .objects import ObjectKind

_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # hosts for which Go ignores the proxies in the environment
_READ = 60.0  # seconds without a byte of a response, after which it is given up; not for watches
_AT_ONCE = 8  # requests in flight, not counting watches

T = TypeVar("T")


class Connection:
    """A client that is made by the first request. It is made again if the server could not be reached or did not know
    the account, because the address, the CA or the credentials in the files may have changed.

    Without a server, each request raises Unconfigured.
    """

    def __init__(self, server: ApiServerAddress | None, timing: Timing = PRODUCTION_TIMING) -> None:
        self.writes = 0  # requests that write, since the start
        self.server, self.timing = server, timing
        self._where = ""  # the server's address
        self._client: Any = None
        self._is_outdated = False
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def client(self) -> Any:
        """Return lightkube's client, without sending a request. Raises Unconfigured."""
        if self.server is None:
            raise Unconfigured(NO_SERVER)
        async with self._connecting:
            if self._is_outdated:
                await self.aclose()
            if self._client is None:
                self._client = await asyncio.to_thread(_client, self.server, self.timing)
                self._where = self._client.config.cluster.server
            return self._client

    async def aclose(self) -> None:
        """Close the connection, which ends open requests and watches. The next request opens a new one."""
        client, self._client, self._is_outdated = self._client, None, False
        if client is not None:
            await client.close()

    async def ask(self, call: ApiCall, send: Callable[[Any, Any], Awaitable[T]]) -> T:
        """Send a request by the library's client, which is given to `send` with its class for the objects."""
        client = await self.client()
        self.writes += call.verb not in ("get", "list")
        within = None if call.verb == "list" else self.timing.intervals.api_answer  # a list may have many pages
        try:
            async with self._slots, self.timing.clock.timeout(within):
                answer = await send(client, resource(call.kind).Status if call.subresource else resource(call.kind))
        except TimeoutError as late:
            raise Unreachable(call, f"no complete answer within {within:g} s") from late
        except Exception as failed:
            raise self.error(call, failed) from failed
        if isinstance(answer, dict) and "kind" not in answer:
            raise Unreachable(call, "the answer is not a Kubernetes object")
        return answer

    def error(self, call: ApiCall, failed: Exception) -> ApiServerError:
        import httpx2 as httpx
        import lightkube

        call.who, call.where = self.server.who if self.server else call.who, self._where
        # If the body is not JSON, the library raises another exception while it handles the refusal.
        refusal = failed if isinstance(failed, httpx.HTTPStatusError) else failed.__context__
        match failed:
            case _ if isinstance(refusal, httpx.HTTPStatusError):
                status = refusal.status.to_dict() if isinstance(refusal, lightkube.ApiError) else {}
                if refusal.response is None:  # an event of a watch
                    return error_of(call, status.get("code", 0), status)
                code, after = refusal.response.status_code, refusal.response.headers.get("retry-after", "")
                self._is_outdated |= code == HTTPStatus.UNAUTHORIZED
                reason = {"message": refusal.response.reason_phrase}
                return error_of(call, code, reason | status, float(after) if after.isdecimal() else None)
            case httpx.HTTPError() | httpx.StreamError():
                self._is_outdated |= isinstance(failed, httpx.ConnectError)
                return Unreachable(call, _reason(failed))
            case lightkube.ConfigError() | OSError():  # of a program that prints credentials, or the token's file
                return Unconfigured(f"{call.who} cannot be used: {_reason(failed)}")
        return Unreachable(call, f"the answer is not a Kubernetes object: {_reason(failed)}")


@functools.cache
def resource(kind: ObjectKind) -> Any:
    """Return the library's class for the objects of a kind, which are dicts. `Status` is that of their status."""
    from lightkube.generic_resource import create_global_resource, create_namespaced_resource

    create = create_namespaced_resource if kind.namespaced else create_global_resource
    return create(kind.group, kind.version, kind.name, kind.plural)


def _client(server: ApiServerAddress, timing: Timing) -> Any:
    """Return a client with the credentials that the files have now, without connecting. Raises Unconfigured."""
    import httpx2 as httpx
    import lightkube
    from lightkube.config.client_adapter import verify_cluster
    from lightkube.config.models import Cluster, User

    from .transport import Transport

    try:
        if server.kubeconfig is None:
            cluster = Cluster(server=server.address, certificate_auth=str(server.ca) if server.ca else None)
            kubeconfig = lightkube.KubeConfig.from_one(cluster=cluster, user=User(token_file=str(server.token)))
        else:
            kubeconfig = lightkube.KubeConfig.from_file(server.kubeconfig)
        config: Any = kubeconfig.get(server.context or None)
        user = config.user or User()
        if user.token_file:
            user.token_file = str(config.abs_file(user.token_file))
        url = urlsplit(config.cluster.server)
        is_direct = url.hostname in _LOOPBACK or proxy_bypass(url.hostname or "")
        proxy = None if is_direct else getproxies().get(url.scheme)
        transport = Transport(verify_cluster(config.cluster, user, config.abs_file), proxy, timing)
        timeout = httpx.Timeout(None, read=_READ)
        return lightkube.AsyncClient(config._replace(user=user), timeout=timeout, transport=transport)
    except Exception as wrong:  # the library raises many types for an invalid file
        is_plain = isinstance(wrong, lightkube.ConfigError | OSError)
        why = reason_of(wrong) if is_plain else f"it is not a kubeconfig file ({type(wrong).__name__}: {wrong})"
        raise Unconfigured(f"{server.kubeconfig or server.token} cannot be used: {why}") from wrong


def _reason(failed: BaseException) -> str:
    """Why there is no answer: the operating system's text if there is one, because it does not vary."""
    seen: BaseException | None = failed
    found = ""
    while seen is not None:
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
        if isinstance(seen, OSError) and seen.strerror:
            found = seen.strerror
        seen = seen.__cause__ or seen.__context__
    return found or str(failed) or type(failed).__name__
