"""The connection to the API server: the one module that imports the client library, itself imported on demand.

lightkube knows kubeconfig files, certificates and programs that print credentials, httpx speaks HTTP. A service
account's token is read here: reading a file takes a thread.
"""

import contextlib
import ipaddress
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
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
from .answers import ApiCall, TooLong, Unconfigured, Unreachable

_AGENT = "vdev"
_URLS = 50  # that are kept: most requests of an agent are repeated, and to make sense of a path takes long
_FOREVER = httpx.Timeout(None)  # the deadlines are those of the clock that was handed in

# What means that the server does not answer, and what a program may raise that is to print credentials.
_UNREACHABLE = (httpx.HTTPError, httpx.StreamError, ssl.SSLError)
_BAD_CREDENTIALS = (lightkube.ConfigError, OSError, LookupError, TypeError, ValueError)

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader exists where libyaml does

_SOCKS = (
    "the environment names a SOCKS proxy (ALL_PROXY, HTTPS_PROXY or HTTP_PROXY), which vdev cannot speak to; give an "
    "HTTP proxy, or unset it for vdev"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The head of an answer, and its body."""

    status: int
    headers: Mapping[str, str]
    response: httpx.Response

    async def body(self, limit: int) -> bytes:
        """All of it, as it was sent. Raises TooLong for more than `limit` bytes."""
        chunks, left = [], limit
        async for chunk in self.response.aiter_raw():
            chunks.append(chunk)
            if (left := left - len(chunk)) < 0:
                raise TooLong
        return b"".join(chunks)

    async def lines(self, limit: int) -> AsyncGenerator[bytes, None]:
        """Its lines as they come, the last one only when it is whole. Raises TooLong for one of more than `limit`."""
        rest = b""
        async for chunk in self.response.aiter_raw():
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > limit:
                raise TooLong
            for line in lines:
                yield line
        if rest:
            raise httpx.ReadError("the answer ends in the middle of a line")


class Connection:
    """Connections to one server as one user; made by `open`."""

    def __init__(
        self, client: httpx.AsyncClient, where: str, server: ApiServerAddress, token: Path | None, seen: object
    ) -> None:
        self.where = where
        self._server = server
        self._seen = seen
        self._client = client
        self._token = token
        self._urls: dict[tuple[object, ...], httpx.URL] = {}  # of paths and parameters that were asked for
        self._users = 0
        self._retired = False

    @classmethod
    def open(cls, server: ApiServerAddress) -> "Connection":
        """Read what it takes; blocks. Raises Unconfigured."""
        seen = _stamp(server)
        source = server.kubeconfig or server.token
        try:
            config = _config(server)
            user = config.user or User()
            token = user.token_file and Path(config.abs_file(user.token_file))
            if token:  # read by `token`
                user = msgspec.structs.replace(user, token=None, token_file=None)
            cluster = config.cluster
            if urlsplit(cluster.server).scheme == "http":  # no certificates, and the system's authorities are 2 MiB
                cluster = msgspec.structs.replace(cluster, insecure=True)
            config = config._replace(user=user, cluster=cluster)
            settings = client_adapter.ConnectionParams(
                timeout=_FOREVER, trust_env=not _is_loopback(config.cluster.server)
            )
            client = client_adapter.AsyncClient(config, settings)
        except (lightkube.ConfigError, msgspec.ValidationError, yaml.YAMLError, httpx.InvalidURL) as wrong:
            raise Unconfigured(f"{source} cannot be used: {wrong}") from wrong
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as wrong:
            why = f"no {wrong}" if isinstance(wrong, LookupError) else reason_of(wrong)
            raise Unconfigured(f"{source} cannot be used: {why}") from wrong
        except ImportError as missing:  # of what httpx speaks SOCKS with
            raise Unconfigured(f"{source} cannot be used: {_SOCKS}") from missing
        client.headers["User-Agent"] = _AGENT
        return cls(client, config.cluster.server, server, token or None, seen)

    def is_stale(self) -> bool:
        """Whether the kubeconfig or the certificate authority was written again since; blocks."""
        return _stamp(self._server) != self._seen

    def token(self) -> str:
        """What goes into the header for authorization, if that is a matter of a file; blocks. Raises Unconfigured."""
        if self._token is None:
            return ""
        try:
            return f"Bearer {self._token.read_text(encoding='ascii').strip()}"
        except (OSError, ValueError) as failed:
            reason = reason_of(failed) if isinstance(failed, OSError) else "it is no text of ASCII"
            raise Unconfigured(f"the token {self._token} cannot be read: {reason}") from failed

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[HttpAnswer]:
        """The answer to a request; to be used inside of `speaking`."""
        self._users += 1
        try:
            place = path, *params.items()
            known = self._urls.get(place)
            asked = (
                self._client.stream(method, path, params=params, headers=headers, content=body)
                if known is None
                else self._client.stream(method, known, headers=headers, content=body)
            )
            async with asked as response:
                if known is None:
                    if len(self._urls) >= _URLS:
                        self._urls.clear()
                    self._urls[place] = response.request.url
                yield HttpAnswer(status=response.status_code, headers=response.headers, response=response)
        finally:
            self._users -= 1
            if self._retired and not self._users:
                await self._client.aclose()

    @contextlib.contextmanager
    def speaking(self, call: ApiCall) -> Iterator[None]:
        """What the client library raises inside becomes Unreachable or Unconfigured."""
        try:
            yield
        except _UNREACHABLE as failed:
            raise Unreachable(call, _reason(failed)) from failed
        except _BAD_CREDENTIALS as failed:
            raise Unconfigured(f"{call.who} cannot be used: {_reason(failed)}") from failed

    async def retire(self) -> None:
        """Take no more requests, and close once those under way are over."""
        self._retired = True
        if not self._users:
            await self._client.aclose()


def _stamp(server: ApiServerAddress) -> object:
    """A value that is another one when the kubeconfig or the certificate authority was written again; blocks."""
    path = server.kubeconfig or server.ca
    if path is None:
        return None
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _reason(failed: BaseException) -> str:
    """Why there is no answer: the words of the system where it gave some, which are the same each time."""
    seen: BaseException | None = failed
    found = ""
    while seen is not None:
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
        if isinstance(seen, OSError) and seen.strerror:
            found = seen.strerror
        seen = seen.__cause__ or seen.__context__
    return found or str(failed) or type(failed).__name__


def _config(server: ApiServerAddress) -> lightkube.SingleConfig:
    if server.kubeconfig is not None:
        if os.pathsep in str(server.kubeconfig):
            raise lightkube.ConfigError("these are several files; kubectl config view --flatten makes one of them")
        config = _read(server.kubeconfig).get(server.context or None)
        if config is None:
            raise lightkube.ConfigError("it has no current context; choose one with --context NAME")
        return config
    cluster = Cluster(server=server.address, certificate_auth=str(server.ca) if server.ca else None)
    account: Any = lightkube.KubeConfig.from_one(cluster=cluster, user=User(token_file=str(server.token))).get()
    assert isinstance(account, lightkube.SingleConfig)
    return account


def _read(kubeconfig: Path) -> lightkube.KubeConfig:
    """As lightkube reads it, which would import what reads YAML in Python: libyaml has done that all along."""
    path = kubeconfig.expanduser()
    if not path.is_file():
        raise lightkube.ConfigError(f"Configuration file {kubeconfig} not found")
    document = yaml.load(path.read_text("utf-8"), _Loader)  # noqa: S506 - a safe one
    if not isinstance(document, dict):
        raise lightkube.ConfigError("it is no kubeconfig file")
    return lightkube.KubeConfig.from_dict(document, fname=path)


def _is_loopback(url: str) -> bool:
    """Whether no proxy of the environment is meant for it, as in Go."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
