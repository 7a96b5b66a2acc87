"""Checks the messages of plugins for mistakes that the real kubelet accepts silently.

There is one pure function for each API message. It yields findings. An ERROR breaks a container, a pod or the
kubelet; a WARNING may still work.
"""

import difflib
import itertools
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from ..model.names import annotation_key_problem, env_name_problem
from ..pb import deviceplugin_v1beta1_pb2 as api
from .device_manager.device_table import HEALTHY, UNHEALTHY, numa_nodes

LIST_LIMIT_BYTES = 4 * 1024 * 1024  # grpc-go's default receive limit, which the kubelet does not change
LIST_NEAR_BYTES = LIST_LIMIT_BYTES * 3 // 4
ID_LIMIT = 63  # characters, from the API's comment on Device.ID
SUN_PATH_LIMIT = 107  # bytes of a unix socket's path on Linux
_CDI_PART = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CDI_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_PERMISSIONS = {"".join(chosen) for size in (1, 2, 3) for chosen in itertools.permutations("rwm", size)}
_OPTIONS = ("pre_start_required", "get_preferred_allocation_available")
_T = TypeVar("_T", str, tuple[str, str])
Overlaps = Callable[[str, str], bool]  # whether two device ids are the same hardware
_CODES = """
allocated-not-prepared annotation-key api-version cdi-name cdi-name-shared cdi-overwritten cdi-spec cdi-unresolved
checkpoint-unreadable checkpoint-write claim-skipped claim-unknown conflict counter-too-small counter-undefined
device-given-twice device-missing device-on-two-pods device-permissions driver-name duplicate-cdi-device
duplicate-container-path duplicate-counter-set duplicate-device duplicate-id duplicate-id-health empty-id empty-response
endpoint-not-a-file endpoint-relative endpoint-removed endpoint-with-slash env-name extra-container-responses
health-nameless health-text health-twice health-unserved held-device-dropped hung-rpc id-in-two-resources id-too-long
list-near-limit list-over-limit not-registered-anew numa-negative options-differ panic pool-count pool-incomplete
pool-outdated preferred-bogus-id preferred-duplicate preferred-empty preferred-must-include preferred-size
prepare-not-idempotent prepared-not-allocated registered-before-serving registered-while-streaming relative-path
request-name resource-name service-order slow-rpc socket-path-too-long unprepare-unknown
"""
CODES = frozenset(_CODES.split())
"""The codes of all findings, including those of DRA."""
_QUOTED = 3  # names that a message quotes before it only counts the rest


class Severity(Enum):
    """ERROR breaks a container, a pod or the kubelet; WARNING may still work."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake that the real kubelet does not report."""

    code: str
    severity: Severity
    resource: str  # empty if the finding concerns no single resource
    message: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.code}: {self.resource + ': ' if self.resource else ''}{self.message}"


def error(code: str, resource: str, message: str) -> Finding:
    return Finding(code, Severity.ERROR, resource, message)


def warning(code: str, resource: str, message: str) -> Finding:
    return Finding(code, Severity.WARNING, resource, message)


def twice(names: Iterable[_T]) -> list[_T]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def unknown_code(code: str) -> str:
    """Return an error message with a suggestion if the code does not exist, else an empty string."""
    if code in CODES:
        return ""
    near = difflib.get_close_matches(code, sorted(CODES), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the codes are {', '.join(sorted(CODES))}"
    return f"there is no finding {code!r}; {hint}"


def registration(request: api.RegisterRequest, directory: str, *, streams_open: int) -> Iterator[Finding]:
    """Check a RegisterRequest. `streams_open` is the number of open ListAndWatch streams of the resource."""
    resource = request.resource_name
    if "/" in request.endpoint:
        yield error("endpoint-with-slash", resource, f"endpoint {request.endpoint!r}: expected a bare file name")
    elif request.endpoint in ("", ".", ".."):
        yield error("endpoint-not-a-file", resource, f"endpoint {request.endpoint!r}: expected a socket's file name")
    yield from _connection(resource, posixpath.join(directory, request.endpoint), streams_open=streams_open)


def watched_registration(resource: str, endpoint: str, directory: str, *, streams_open: int) -> Iterator[Finding]:
    """Check a device plugin's GetInfo response. `directory` contains kubelet.sock."""
    if not endpoint.startswith("/"):
        text = f"endpoint {endpoint!r}: expected an absolute path; a relative one starts at the kubelet's directory"
        yield error("endpoint-relative", resource, text)
    elif posixpath.dirname(posixpath.normpath(endpoint)) == posixpath.normpath(directory):
        text = f"endpoint {endpoint!r}: each start of the kubelet removes the sockets in that directory"
        yield warning("endpoint-removed", resource, f"{text}; serve on a socket elsewhere")
    yield from _connection(resource, endpoint, streams_open=streams_open)


def _connection(resource: str, path: str, *, streams_open: int) -> Iterator[Finding]:
    if len(path.encode()) > SUN_PATH_LIMIT:
        text = f"the socket's path {path} has {len(path.encode())} bytes; at most {SUN_PATH_LIMIT} are allowed"
        yield error("socket-path-too-long", resource, text)
    if streams_open:
        text = "registered while a ListAndWatch stream is open; when that stream ends, 1.36 closes the new connection"
        yield warning("registered-while-streaming", resource, text)


def options(request: api.RegisterRequest, answered: api.DevicePluginOptions) -> Iterator[Finding]:
    """Compare the options of a RegisterRequest, which the kubelet ignores, with those of GetDevicePluginOptions."""
    names = [name for name in _OPTIONS if getattr(request.options, name) != getattr(answered, name)]
    if request.HasField("options") and names:
        text = f"Register and GetDevicePluginOptions differ in {' and '.join(names)}; the kubelet uses only the latter"
        yield warning("options-differ", request.resource_name, text)


def device_list(
    resource: str,
    devices: Collection[api.Device],
    *,
    size: int,
    held: Collection[str] = (),
    elsewhere: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Check a ListAndWatch message.

    Args:
        resource: the name of the resource
        devices: the devices of the message
        size: the size of the message in bytes
        held: ids of the resource that pods hold or that a pending Allocate call requests
        elsewhere: the device ids of other resources, mapped to their resource
    """
    by_id: dict[str, list[str]] = {}
    for device in devices:
        by_id.setdefault(device.ID, []).append(device.health)
    if size > LIST_NEAR_BYTES:
        text = f"the list has {size} bytes; beyond {LIST_LIMIT_BYTES} the kubelet drops the plugin"
        yield warning("list-near-limit", resource, text)
    if dropped := sorted(set(held) - by_id.keys()):
        text = f"held device {_quote(dropped)} dropped from the list; keep it as Unhealthy"
        yield error("held-device-dropped", resource, text)
    if "" in by_id:
        yield error("empty-id", resource, "a device has an empty id")
    if long := [id_ for id_ in by_id if len(id_) > ID_LIMIT]:
        yield warning("id-too-long", resource, f"{_quote(long)}: the API allows at most {ID_LIMIT} characters")
    repeated = {id_: healths for id_, healths in by_id.items() if len(healths) > 1}
    if differ := [id_ for id_, healths in repeated.items() if len({h == HEALTHY for h in healths}) > 1]:
        text = f"{_quote(differ)} listed twice with differing health: counted twice in capacity, once in allocatable"
        yield error("duplicate-id-health", resource, text)
    if same := [id_ for id_ in repeated if id_ not in differ]:
        yield error("duplicate-id", resource, f"{_quote(same)} listed more than once")
    if odd := sorted({h for healths in by_id.values() for h in healths} - {HEALTHY, UNHEALTHY}):
        text = f"health {_quote(odd)}: expected exactly {HEALTHY!r} or {UNHEALTHY!r}; any other text means unhealthy"
        yield error("health-text", resource, text)
    if negative := [device.ID for device in devices if any(node < 0 for node in numa_nodes(device))]:
        yield error("numa-negative", resource, f"{_quote(negative)}: a NUMA node is never negative")
    if shared := sorted(by_id.keys() & (elsewhere or {}).keys()):
        text = f"{_quote(shared)} is also a device of {(elsewhere or {})[shared[0]]}; health is looked up by id alone"
        yield error("id-in-two-resources", resource, text)


def preferred(
    resource: str, request: api.ContainerPreferredAllocationRequest, response: api.PreferredAllocationResponse
) -> Iterator[Finding]:
    """Check a GetPreferredAllocation response. The kubelet only intersects it with the available devices."""
    answers = response.container_responses
    if len(answers) > 1:
        text = f"{len(answers)} container responses to one request; only the first is read"
        yield error("extra-container-responses", resource, f"GetPreferredAllocation: {text}")
    if not answers:
        text = "GetPreferredAllocation: no container response; the kubelet picks at random"
        yield error("preferred-empty", resource, text)
        return
    ids = list(answers[0].deviceIDs)
    if len(set(ids)) != len(ids):
        yield error("preferred-duplicate", resource, f"GetPreferredAllocation names a device twice: {_quote(ids)}")
    if bogus := sorted(set(ids) - set(request.available_deviceIDs)):
        yield error("preferred-bogus-id", resource, f"GetPreferredAllocation names {_quote(bogus)}, unavailable")
    if missing := sorted(set(request.must_include_deviceIDs) - set(ids)):
        yield error("preferred-must-include", resource, f"GetPreferredAllocation omits {_quote(missing)}, required")
    if len(ids) != request.allocation_size:
        text = f"GetPreferredAllocation names {len(ids)} devices, but {request.allocation_size} were requested"
        yield error("preferred-size", resource, text)


def allocation(resource: str, response: api.AllocateResponse) -> Iterator[Finding]:
    """Check an Allocate response. The kubelet reads only the first container response."""
    answers = response.container_responses
    if len(answers) > 1:
        text = f"Allocate: {len(answers)} container responses to one request; only the first is read"
        yield error("extra-container-responses", resource, text)
    if answers:
        if not answers[0].ByteSize():
            text = "the Allocate response is empty, so the container cannot know its devices"
            yield warning("empty-response", resource, text)
        yield from _edits(resource, answers[0])


def shared_hardware(pod: str, held: Sequence[tuple[str, str, str]], overlaps: Overlaps) -> Iterator[Finding]:
    """Compare the devices of a pod with those of other pods. `held` has pods, resources and device ids.

    If two pods get the same id of the same resource, this is a bug of the kubelet. It frees the devices of ended pods
    even during an Allocate call, and then loses the devices of that call (UpdateAllocatedDevices in manager.go).
    """
    for _, resource, id_ in (each for each in held if each[0] == pod):
        for other, its_resource, its_id in (each for each in held if each[0] != pod):
            if (resource, id_) == (its_resource, its_id):
                text = f"the kubelet gave {id_!r} to pod {pod}, and pod {other} holds it"
                yield warning("device-given-twice", resource, f"{text}; this is not the plugin's fault")
            elif id_ == its_id or overlaps(id_, its_id):
                text = f"pod {pod} got {id_!r}, and pod {other} holds {its_id!r}: the same hardware"
                yield error("device-on-two-pods", resource, text)


def cdi_name(name: str) -> str | None:
    """Return what is wrong with a qualified CDI device name (`vendor/class=device`), or None."""
    kind, equals, device = name.partition("=")
    vendor, slash, class_ = kind.partition("/")
    if not (equals and slash):
        return "expected vendor/class=device"
    if not _CDI_PART.fullmatch(vendor) or not _CDI_PART.fullmatch(class_):
        return "vendor and class start with a letter and contain letters, digits, '_', '-' and '.'"
    if len(vendor) == 1 or len(class_) == 1:
        return "a vendor or class of one letter makes containerd panic as soon as it reads the spec"
    if "::" in device:
        return "'::' in the device name cannot be resolved; a replica's suffix must be stripped"
    if not _CDI_DEVICE.fullmatch(device):
        return "the device name starts and ends with a letter or digit and may also contain '_', '-', '.' and ':'"
    return None


def _edits(resource: str, response: api.ContainerAllocateResponse) -> Iterator[Finding]:
    for name, value in sorted(response.envs.items()):
        if problem := env_name_problem(name):
            yield error("env-name", resource, problem)
        if "\0" in value:
            text = f"environment variable {name!r}: its value contains a NUL byte, with which no container starts"
            yield error("env-name", resource, text)
    for spec in response.devices:
        if spec.permissions not in _PERMISSIONS:
            text = f"device {spec.host_path}: permissions {spec.permissions!r}, expected a combination of r, w and m"
            yield error("device-permissions", resource, text)
        yield from _paths(resource, "device", spec.host_path, spec.container_path)
    for mount in response.mounts:
        yield from _paths(resource, "mount", mount.host_path, mount.container_path)
    nodes = [(each.container_path, each.host_path, each.permissions) for each in response.devices]
    mounts = [(each.container_path, each.host_path, each.read_only) for each in response.mounts]
    for kind, entries in (("device", nodes), ("mount", mounts)):
        if differ := twice(path for path, *_ in set(entries)):
            text = f"{kind} {_quote(differ)} given more than once with different values; the kubelet keeps the first"
            yield error("duplicate-container-path", resource, text)
        elif same := twice(path for path, *_ in entries):
            text = f"{kind} {_quote(same)} given more than once; the kubelet drops the duplicates"
            yield warning("duplicate-container-path", resource, text)
    for key in sorted(response.annotations):
        if problem := annotation_key_problem(key):
            yield error("annotation-key", resource, problem)
    names = [device.name for device in response.cdi_devices]
    for name in names:
        if wrong := cdi_name(name):
            yield error("cdi-name", resource, f"CDI device {name!r}: {wrong}")
    if repeated := twice(names):
        yield warning("duplicate-cdi-device", resource, f"CDI device {_quote(repeated)} given more than once")


def _paths(resource: str, kind: str, host: str, container: str) -> Iterator[Finding]:
    for side, path in (("host", host), ("container", container)):
        if not path.startswith("/"):
            yield error("relative-path", resource, f"{kind}: {side} path {path!r} is not absolute")


def _quote(names: Iterable[str]) -> str:
    found = [repr(name) for name in names]
    return ", ".join(found[:_QUOTED]) + (f" and {len(found) - _QUOTED} more" if len(found) > _QUOTED else "")
