"""Errors of the API server that callers can handle. Each message says what to do.

ApiServerError
├── Unconfigured   the kubeconfig or the service account cannot be used
├── Unreachable    no answer, or a server error: another attempt may succeed
├── Throttled      429, or 503 with Retry-After
├── Denied         401, 403: a permission is missing
├── Missing        404: the object, or the whole kind
├── Conflict       409: another client owns the fields, changed the object, or created it first
├── Expired        410: the server has forgotten the resource version of a list or watch
└── Invalid        anything else that is wrong with the request
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..errors import ApiServerError
from .objects import ObjectKind

_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}  # by verb; the others are GET
_LONGEST_WAIT = 600.0  # seconds, even if Retry-After is longer


@dataclass(slots=True, kw_only=True)
class ApiCall:
    """A request, for messages and fault rules: `who` sends it to `where`, the server's address, set when it is sent."""

    verb: str
    kind: ObjectKind
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    who: str = "the service account"
    where: str = ""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return _METHODS.get(self.verb, "GET")

    @property
    def resource(self) -> str:
        """The resource in RBAC rules: `nodes/status`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def object(self) -> str:
        """The object or objects: `Node worker-1`, `Events in default`."""
        named = f"{self.kind.name} {self.name}" if self.name else f"{self.kind.name}s"
        return f"{named} in {self.namespace}" if self.namespace else named


class Unconfigured(ApiServerError):
    """There is no usable address or account of an API server."""

    exit_code = 2


class Unreachable(ApiServerError):
    """No answer, or a server error. The request may have been carried out."""

    def __init__(self, call: ApiCall, reason: str) -> None:
        at = f" at {call.where}" if call.where else ""
        super().__init__(f"the API server{at} does not answer: {reason}")


class Throttled(ApiServerError):
    """The server has too many requests. `after` is the value of Retry-After in seconds, or None."""

    def __init__(self, call: ApiCall, message: str, *, after: float | None = None) -> None:
        wait = "" if after is None else f" and asks to wait {after:g} s"
        super().__init__(f"the API server has too much to do{wait}: {message}")
        self.after = after
        self.wait = min(after or 0.0, _LONGEST_WAIT)


class Denied(ApiServerError):
    """The server does not know the account (`known` is false) or does not allow the request."""

    def __init__(self, call: ApiCall, message: str, *, known: bool = True) -> None:
        if known:
            group = f" in {call.kind.group}" if call.kind.group else ""
            role = f"give it a role with the verb {call.verb} on {call.resource}"
            text = f"{call.who} may not {call.verb} {call.resource}{group}: {message}; {role}"
        else:
            text = f"the API server does not know {call.who}: {message}; its token or certificate may have expired"
        super().__init__(text)
        self.known = known


class Missing(ApiServerError):
    """The object does not exist, or the server does not serve its kind (`served` is false)."""

    def __init__(self, call: ApiCall, message: str, *, served: bool = True) -> None:
        kind = f"{call.kind.plural} of {call.kind.api_version}"
        super().__init__(f"there is no {call.object}" if served else f"the API server has no {kind}: {message}")
        self.served = served


class Conflict(ApiServerError):
    """Another client owns the fields of an apply, changed the object, or created it first (`exists` is true)."""

    def __init__(self, call: ApiCall, message: str, *, exists: bool = False) -> None:
        super().__init__(f"{call.object} {'exists already' if exists else 'was changed by somebody else'}: {message}")
        self.exists = exists


class Expired(ApiServerError):
    """The server has forgotten the version that a list or watch started from. The objects must be listed again."""

    def __init__(self, call: ApiCall, message: str) -> None:
        super().__init__(f"the API server has forgotten the version of {call.object}: {message}")


class Invalid(ApiServerError):
    """The server refuses the request."""


def error_of(call: ApiCall, code: int, status: Mapping[str, Any], after: float | None = None) -> ApiServerError:
    """Map an HTTP error status, and the Status object in the response, to an exception.

    `after` is the number of seconds that the server asks to wait.
    """
    message = str(status.get("message") or "no reason given")
    details = status.get("details") or {}
    match code:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return Denied(call, message, known=code == HTTPStatus.FORBIDDEN)
        case HTTPStatus.NOT_FOUND:
            return Missing(call, message, served=bool(details.get("name")))
        case HTTPStatus.CONFLICT:
            return Conflict(call, message, exists=status.get("reason") == "AlreadyExists")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Throttled(call, message, after=after)
        case HTTPStatus.SERVICE_UNAVAILABLE if after is not None:
            return Throttled(call, message, after=after)
        case HTTPStatus.GONE:
            return Expired(call, message)
        case HTTPStatus.GATEWAY_TIMEOUT if "ResourceVersionTooLarge" in str(details.get("causes")):
            return Expired(call, message)  # the server's store was restored or replaced
        case _ if HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Invalid(f"the API server refuses to {call.verb} {call.object}: {message}")
    return Unreachable(call, f"status {code}: {message}")


def injected_error(call: ApiCall, message: str, status: int = 0, after: float | None = None) -> ApiServerError:
    """Return the error for an HTTP status that a fault injects; 0: no answer."""
    if not status:
        return Unreachable(call, message)
    return error_of(call, status, {"message": message, "details": {"name": call.name}}, after)
