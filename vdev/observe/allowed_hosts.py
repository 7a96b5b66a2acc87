"""Which names a request may be addressed to.

A web page of somebody else can give its own name the address of this machine (DNS rebinding) and then read what is
served here, as if it were its own. The browser still sends the page's name in `Host`, so only names that no stranger
can own are answered: IP addresses, loopback names, the names that the cluster's own DNS gives to Services, the names of
this node and pod, and those that the operator lists.

Starlette's TrustedHostMiddleware has no pattern for "any IP address", which the kubelet's probes and Prometheus use.
"""

import fnmatch
import ipaddress
from collections.abc import Collection

import structlog
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .log import Seldom

log = structlog.get_logger(__name__)

_OWN = ("localhost", "*.localhost", "*.svc", "*.svc.cluster.local")
_MISDIRECTED = 421
_SHOWN = 80  # characters of a stranger's text


def answers_to(host: str, patterns: Collection[str]) -> bool:
    """Whether a `Host` header is an address or a name of ours; `patterns` are names that may contain `*`."""
    name = _without_port(host).removesuffix(".").lower()
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in (*_OWN, *patterns))
    return True


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) else host


class Guard:
    """ASGI middleware that refuses requests addressed to other hosts."""

    def __init__(self, application: ASGIApp, patterns: Collection[str]) -> None:
        self._application, self._patterns = application, tuple(patterns)
        self._refused = Seldom(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host")
        if host is None or answers_to(host, self._patterns):  # HTTP/1.0 has no Host, and no browser uses it
            await self._application(scope, receive, send)
            return
        name = _without_port(host)[:_SHOWN]
        self._refused.warning("HTTP request to a name that is not ours", host=name, hint="--http-hosts allows it")
        text = f"vdev does not know the name {name!r}; if it is this agent's, start it with --http-hosts\n"
        await PlainTextResponse(text, _MISDIRECTED, {"Connection": "close"})(scope, receive, send)
