"""Errors of the API server that callers can handle. Each message says what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..errors import ApiServerError
from .objects import ObjectKind

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
    def resource(self) -> str:
        """The resource in RBAC rules: `nodes/status`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def object(self) -> str:
        """The object or objects: `Node worker-1`, `Events in default`."""
        named = f"{self.kind.name} {self.name}" if self.name else f"{self.kind.name}s"
        return f"{named} in {self.namespace}" if self.namespace else named


class Unconfigured(ApiServerError):
    """The kubeconfig or the service account cannot be used."""

    exit_code = 2


class Unreachable(ApiServerError):
    """No answer, or a server error: another attempt may succeed. The request may have been carried out."""

    def __init__(self, call: ApiCall, reason: str) -> None:
        at = f" at {call.where}" if call.where else ""
        super().__init__(f"the API server{at} does not answer: {reason}")


class Throttled(ApiServerError):
    """429, or 503 with Retry-After: the server has too many requests. `wait` is the value of Retry-After in seconds."""


class Denied(ApiServerError):
    """401, 403: the server does not know the account, or a permission is missing."""


class Missing(ApiServerError):
    """404: the object does not exist, or the server does not serve its kind (see `NotServed`)."""


class NotServed(Missing):
    """404: the server does not serve the kind."""


class Conflict(ApiServerError):
    """409: another client owns the fields of an apply, or changed the object."""


class AlreadyExists(Conflict):
    """409: another client created the object first."""


class Expired(ApiServerError):
    """410: the server has forgotten the resource version of a list or watch. The objects must be listed again."""


class Invalid(ApiServerError):
    """The server refuses the request for another reason."""


def error_of(call: ApiCall, code: int, status: Mapping[str, Any], after: float | None = None) -> ApiServerError:
    """Return the error for an HTTP status (0: no answer), a Status object, and the seconds of Retry-After."""
    message = str(status.get("message") or "no reason given")
    details = status.get("details") or {}
    match code:
        case 0:
            return Unreachable(call, message)
        case HTTPStatus.UNAUTHORIZED:
            cause = "its token or certificate may have expired"
            return Denied(f"the API server does not know {call.who}: {message}; {cause}")
        case HTTPStatus.FORBIDDEN:
            group = f" in {call.kind.group}" if call.kind.group else ""
            role = f"give it a role with the verb {call.verb} on {call.resource}"
            return Denied(f"{call.who} may not {call.verb} {call.resource}{group}: {message}; {role}")
        case HTTPStatus.NOT_FOUND if details.get("name"):
            return Missing(f"there is no {call.object}")
        case HTTPStatus.NOT_FOUND:
            return NotServed(f"the API server has no {call.kind.plural} of {call.kind.api_version}: {message}")
        case HTTPStatus.CONFLICT if status.get("reason") == "AlreadyExists":
            return AlreadyExists(f"{call.object} exists already: {message}")
        case HTTPStatus.CONFLICT:
            return Conflict(f"{call.object} was changed by another client: {message}")
        case HTTPStatus.GONE:
            return Expired(f"the API server has forgotten the version of {call.object}: {message}")
    if code == HTTPStatus.TOO_MANY_REQUESTS or (code == HTTPStatus.SERVICE_UNAVAILABLE and after is not None):
        asks = "" if after is None else f" and asks to wait {after:g} s"
        busy = Throttled(f"the API server has too many requests{asks}: {message}")
        busy.wait = min(after or 0.0, _LONGEST_WAIT)
        return busy
    if HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Invalid(f"the API server refuses to {call.verb} {call.object}: {message}")
    return Unreachable(call, f"status {code}: {message}")
