"""The exceptions that callers can react to, with the exit code and gRPC status that each one means.

This module imports no other module of vdev, so that every layer may raise these errors.
"""

from typing import Any, ClassVar


class VdevError(Exception):
    """The base class of vdev's errors. The text is for users: the place, the fact, allowed values, a hint."""

    exit_code: ClassVar[int] = 1
    grpc_status: ClassVar[str] = "INTERNAL"  # the name of a grpc.StatusCode member


class ConfigError(VdevError):
    """The configuration is wrong. `problems` (`model.problem.Problem`) are all that were found, each with a line.

    `named` are the presets and layouts that the configuration names; some problems may be in these files.
    """

    exit_code = 2

    def __init__(self, problems: tuple[Any, ...], *, named: tuple[str, ...] = ()) -> None:
        self.problems, self.named = problems, named
        super().__init__("\n".join(str(problem) for problem in problems))


class UsageError(VdevError):
    """A flag, an environment variable or an argument is wrong."""

    exit_code = 2


class AllocationError(VdevError):
    """A container's request or a claim cannot be granted. The kubelet copies the text into the pod's event."""

    grpc_status = "FAILED_PRECONDITION"


class UnknownDevice(AllocationError):
    """The request names a device id that the resource does not have."""

    grpc_status = "NOT_FOUND"


class InvalidRequest(AllocationError):
    """The request is malformed or breaks a rule of the resource (size, sharing limit)."""

    grpc_status = "INVALID_ARGUMENT"


class ActionFailed(VdevError):
    """An action before a container's start failed. The kubelet copies the text into the pod's event."""

    grpc_status = "FAILED_PRECONDITION"


class SocketError(VdevError):
    """A socket cannot be bound or reached."""


class ApiServerError(VdevError):
    """The API server refuses a request or does not answer."""

    wait: float = 0.0  # seconds that the server asks to wait before another request


class HostError(VdevError):
    """A file, directory or device node of the host cannot be read, written or created."""


class InjectedError(VdevError):
    """A fault rule ends a call of the kubelet with this error; `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def reason_of(cause: Exception) -> str:
    """Return why a call to the system failed: `No such file or directory`, without number and path."""
    return (cause.strerror if isinstance(cause, OSError) else "") or str(cause)
