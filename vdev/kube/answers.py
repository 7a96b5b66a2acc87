"""What the API server's answers mean: the errors that callers can react to, each a sentence that says what to do.

ApiServerError
├── Unconfigured   the kubeconfig or the service account cannot be used
├── Unreachable    no answer, or one of a server in trouble: another attempt may do better
├── Throttled      it asks to wait, which was done and did not help
├── Denied         401, 403: a permission is missing
├── Missing        404: the object, or the whole kind
├── Conflict       409: somebody else owns the fields, changed the object, or made it first
├── Expired        410: of a list or watch from a version that is forgotten
└── Invalid        anything else that is wrong with the request
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..errors import ApiServerError
from ..json_text import parse_json
from .kinds import ObjectKind

_LONGEST_WAIT = 600.0  # seconds that a server is left alone, whatever it says
_SHOWN = 400  # characters of a message that is not a Status: a proxy's page


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """What was asked for, for sentences; `who` asks the server at `where`."""

    verb: str
    kind: ObjectKind
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    who: str = "the service account"
    where: str = ""

    @property
    def resource(self) -> str:
        """As RBAC names it: `nodes/status`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def permission(self) -> str:
        """What a role needs: `patch nodes/status`, `list resourceslices in resource.k8s.io`."""
        group = f" in {self.kind.group}" if self.kind.group else ""
        return f"{self.verb} {self.resource}{group}"

    @property
    def object(self) -> str:
        """The object or objects: `Node worker-1`, `Events in default`."""
        named = f"{self.kind.name} {self.name}" if self.name else f"{self.kind.name}s"
        return f"{named} in {self.namespace}" if self.namespace else named


class Unconfigured(ApiServerError):
    """It is not known which API server to ask, or as whom."""

    exit_code = 2


class Unreachable(ApiServerError):
    """Nobody answers, or somebody who cannot now; the request may have been carried out all the same."""

    def __init__(self, call: ApiCall, reason: str) -> None:
        at = f" at {call.where}" if call.where else ""
        super().__init__(f"the API server{at} does not answer: {reason}")
        self.call = call
        self.reason = reason


class Throttled(ApiServerError):
    """Too many requests; `after` is how many seconds the server asks to wait, if it says so."""

    def __init__(self, call: ApiCall, message: str, *, after: float | None = None) -> None:
        wait = "" if after is None else f" and asks to wait {after:g} s"
        super().__init__(f"the API server has too much to do{wait}: {message}")
        self.call = call
        self.after = after
        self.wait = min(after or 0.0, _LONGEST_WAIT)


class Denied(ApiServerError):
    """The server does not know who asks (then `known` is false), or does not allow it."""

    def __init__(self, call: ApiCall, message: str, *, known: bool = True) -> None:
        if known:
            role = f"give it a role with the verb {call.verb} on {call.resource}"
            text = f"{call.who} may not {call.permission}: {message}; {role}"
        else:
            text = f"the API server does not know {call.who}: {message}; its token or certificate may have expired"
        super().__init__(text)
        self.call = call
        self.known = known


class Missing(ApiServerError):
    """There is no such object, or (`served` is false) the server does not have the kind at all."""

    def __init__(self, call: ApiCall, message: str, *, served: bool = True) -> None:
        kind = f"{call.kind.plural} of {call.kind.api_version}"
        super().__init__(f"there is no {call.object}" if served else f"the API server has no {kind}: {message}")
        self.call = call
        self.served = served


class Conflict(ApiServerError):
    """Somebody else was there first: the fields of an apply are theirs, the object was changed, or (`exists`) made."""

    def __init__(self, call: ApiCall, message: str, *, exists: bool = False) -> None:
        super().__init__(f"{call.object} {'exists already' if exists else 'was changed by somebody else'}: {message}")
        self.call = call
        self.exists = exists


class Expired(ApiServerError):
    """The version that a list or watch was to start from is forgotten; what is there must be listed again."""

    def __init__(self, call: ApiCall, message: str) -> None:
        super().__init__(f"the API server has forgotten the version of {call.object}: {message}")
        self.call = call


class Invalid(ApiServerError):
    """The server refuses what was sent; `status` is that of HTTP."""

    def __init__(self, call: ApiCall, message: str, *, status: int) -> None:
        super().__init__(f"the API server refuses to {call.verb} {call.object}: {message}")
        self.call = call
        self.status = status


def error_of(call: ApiCall, status: int, headers: Mapping[str, str], body: bytes) -> ApiServerError:
    """The error that an answer stands for, which is none of success."""
    return _error(call, status, after(headers), _status(body, status))


def error_in_watch(call: ApiCall, status: Mapping[str, Any]) -> ApiServerError:
    """The error that an event of type ERROR brings."""
    code = status.get("code")
    return _error(call, code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR, None, status)


def after(headers: Mapping[str, str]) -> float | None:
    """The seconds of `Retry-After`; the API server sends no dates."""
    given = headers.get("retry-after", "").strip()
    return float(given) if given.isascii() and given.isdecimal() else None


def _error(call: ApiCall, code: int, wait: float | None, status: Mapping[str, Any]) -> ApiServerError:
    message = str(status.get("message") or (HTTPStatus(code).phrase if code in _PHRASES else "no reason given"))
    details = _mapping(status.get("details"))
    listed = details.get("causes")
    causes = [_mapping(each) for each in listed] if isinstance(listed, list) else []
    error: ApiServerError
    match code:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            error = Denied(call, message, known=code == HTTPStatus.FORBIDDEN)
        case HTTPStatus.NOT_FOUND:
            error = Missing(call, message, served=bool(details.get("name")))
        case HTTPStatus.CONFLICT:
            error = Conflict(call, message, exists=status.get("reason") == "AlreadyExists")
        case HTTPStatus.GONE:
            error = Expired(call, message)
        case HTTPStatus.TOO_MANY_REQUESTS:
            error = Throttled(call, message, after=wait)
        case HTTPStatus.SERVICE_UNAVAILABLE if wait is not None:
            error = Throttled(call, message, after=wait)
        case HTTPStatus.GATEWAY_TIMEOUT if any(each.get("reason") == "ResourceVersionTooLarge" for each in causes):
            error = Expired(call, message)  # by a server that is behind the one which named the version
        case _ if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code < HTTPStatus.BAD_REQUEST:
            error = Unreachable(call, f"status {code}: {message}")
        case _:
            error = Invalid(call, message, status=code)
    return error


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


_PHRASES = frozenset(map(int, HTTPStatus))


def _status(body: bytes, code: int) -> Mapping[str, Any]:
    """The Status in an answer; what a proxy on the way says is only shown."""
    try:
        document = parse_json(body)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    text = " ".join(body.decode(errors="replace").split())[:_SHOWN]
    return {"message": text, "code": code}


def metadata_of(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """That of an object; nothing where there is none."""
    return (document or {}).get("metadata") or {}
