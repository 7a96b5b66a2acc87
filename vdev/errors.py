"""The exceptions that callers can react to, with the exit code and gRPC status that each one means.

    VdevError
    ├── ConfigError          the files alone prove it wrong; carries every problem found     exit 2
    ├── UsageError           the command line or the environment is wrong                    exit 2
    ├── AllocationError      a request that cannot be granted, in a sentence a pod can show
    │   ├── UnknownDevice        NOT_FOUND
    │   ├── UnhealthyDevice      FAILED_PRECONDITION
    │   ├── InvalidRequest       INVALID_ARGUMENT
    │   └── ClaimRefused         FAILED_PRECONDITION
    ├── ActionFailed         what must be done before a container starts was not done        FAILED_PRECONDITION
    ├── RegistrationRefused  the kubelet said a permanent no to a resource
    ├── SocketError          a socket that cannot be bound or reached
    ├── ApiServerError       the API server gave no answer, or a no; `vdev.kube.answers` has one for each of them
    ├── HostError            a file, directory or device of the host that cannot be used
    ├── InjectedError        a fault rule ends a call of the kubelet
    └── InvariantBroken      what must never be so is so; the one error that ends a running agent

This module imports nothing of ours; every layer may raise what stands here.
"""

from typing import ClassVar


class VdevError(Exception):
    """Anything vdev says no to. The text is a sentence for a person: what, where, expected, hint."""

    exit_code: ClassVar[int] = 1
    grpc_status: ClassVar[str] = "INTERNAL"  # the name of a grpc.StatusCode member


class ConfigError(VdevError):
    """The configuration is wrong; `problems` holds all of them, one line each in the text."""

    exit_code = 2

    def __init__(self, problems: tuple[object, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class UsageError(VdevError):
    """A flag, an environment variable or an argument is wrong."""

    exit_code = 2


class AllocationError(VdevError):
    """A container's request cannot be granted. The text reaches the pod's event word for word."""

    grpc_status = "FAILED_PRECONDITION"


class UnknownDevice(AllocationError):
    """The request names a device id that the resource does not have."""

    grpc_status = "NOT_FOUND"


class UnhealthyDevice(AllocationError):
    """The request names a device that is Unhealthy now."""


class InvalidRequest(AllocationError):
    """The request is malformed or breaks a rule of the resource (size, sharing limit)."""

    grpc_status = "INVALID_ARGUMENT"


class ClaimRefused(AllocationError):
    """A resource claim cannot be prepared on this node."""


class ActionFailed(VdevError):
    """What must be done before a container starts was not done. The text reaches the pod's event word for word."""

    grpc_status = "FAILED_PRECONDITION"


class RegistrationRefused(VdevError):
    """The kubelet refused a registration for good (version or resource name); retrying cannot help."""


class SocketError(VdevError):
    """A socket cannot be bound, or nobody answers on it."""


class ApiServerError(VdevError):
    """The API server gave no answer, or one that is a no; `wait` is how many seconds it asks to be left alone."""

    wait: float = 0.0


class HostError(VdevError):
    """A file, directory or device node of the host cannot be read, written or made."""


class InjectedError(VdevError):
    """A fault rule ends a call of the kubelet with this error; `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class InvariantBroken(VdevError):
    """What must never be so is so, and to go on would do harm: the agent ends, and a new one starts from what is true.

    Everything else that goes wrong while the agent runs is a problem that it reports and outlives.
    """


def reason_of(cause: Exception) -> str:
    """Why a call to the system failed, in a few words: `No such file or directory` without number and path."""
    return (cause.strerror if isinstance(cause, OSError) else "") or str(cause)
