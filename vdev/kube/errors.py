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
    """A request, for messages and fault rules: `who` sends it to `where`, the server's address, set if it fails."""

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
    """No answer, or a server error: another attempt may succeed. The request may have been carried out.

    `wait` is the number of seconds for which the server asked, if it has too many requests.
    """

    def __init__(self, call: ApiCall, reason: str, wait: float = 0.0) -> None:
        at = f" at {call.where}" if call.where else ""
        super().__init__(f"the API server{at} does not answer: {reason}")
        self.wait = min(wait, _LONGEST_WAIT)


class Denied(ApiServerError):
    """401, 403: the server does not know the account, or a permission is missing."""


class Missing(ApiServerError):
    """404: the object does not exist, or the server does not serve its kind (see `NotServed`)."""


class NotServed(Missing):
    """404: the server does not serve the kind."""


class Conflict(ApiServerError):
    """409: another client owns the fields of an apply, or has changed or created the object."""


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
        case HTTPStatus.CONFLICT:
            change = "created" if call.verb == "create" else "changed"
            return Conflict(f"{call.object} was {change} by another client: {message}")
        case HTTPStatus.GONE:
            return Expired(f"the API server has forgotten the version of {call.object}: {message}")
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.SERVICE_UNAVAILABLE if after is not None:
            return Unreachable(call, f"it has too many requests and asks to wait {after:g} s: {message}", after)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Unreachable(call, f"it has too many requests: {message}")
        case _ if HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Invalid(f"the API server refuses to {call.verb} {call.object}: {message}")
    return Unreachable(call, f"status {code}: {message}")
