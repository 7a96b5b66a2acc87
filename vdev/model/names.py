"""Rules for names: resources, ids, labels, variables, attributes and sockets.

A function `..._problem` returns why a name is refused, or an empty string. Sources: the kubelet's
IsExtendedResourceName (a label key of the form `requests.<name>`), the CDI specification's rules for names, and
containerd, which panics for names of one letter.
"""

import functools
import hashlib
import re
from functools import lru_cache

MAX_ID = 63  # characters of a device id in the kubelet's list, with the replica's suffix
REPLICA_ROOM = 9  # characters for the replica's suffix
NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_RULE = "use letters, digits and '_', and do not begin with a digit"
_MAX_DOMAIN = 244  # 253 minus the prefix "requests." that the kubelet adds
_MAX_NAME = 63
_MAX_PREFIX = 253  # of an annotation's key
_NVIDIA_ID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ENTRY_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

MAX_MESSAGE = 1024
"""Maximum number of characters in an Event's message (source: k8s.io/api core/v1, `Event.message`)."""


def resource_name_problem(name: str) -> str:
    """Return why the kubelet refuses the name of an extended resource."""
    domain, slash, part = name.partition("/")
    if not slash:
        return f"{name!r} has no domain: a resource is named <domain>/<name>, such as example.com/{name or 'device'}"
    if "kubernetes.io/" in name:
        return f"{name!r} is in the domain kubernetes.io, which Kubernetes keeps for itself"
    if name.startswith("requests."):
        return f"{name!r} begins with 'requests.', which Kubernetes keeps for quotas"
    if "/" in part:
        return f"{name!r} has more than one '/'"
    if not DNS_NAME.fullmatch(domain):
        return f"the domain {domain!r} of {name!r} is not a DNS name in lower case"
    if len(domain) > _MAX_DOMAIN:
        return f"the domain of {name!r} has {len(domain)} characters; at most {_MAX_DOMAIN} are allowed"
    if not 1 <= len(part) <= _MAX_NAME:
        return f"the part of {name!r} after '/' has {len(part)} characters; 1 to {_MAX_NAME} are allowed"
    if not NAME_PART.fullmatch(part):
        return f"{part!r} of {name!r} may hold letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    return ""


def env_name_problem(name: str) -> str:
    return "" if _ENV.fullmatch(name) else f"{name!r} is not a valid environment variable: {_ENV_RULE}"


@lru_cache(maxsize=256)
def visible_devices_env(resource: str) -> str:
    """Return the name of a resource's variable, such as `ACME_DEV_NPU_VISIBLE_DEVICES` for `acme.dev/npu`."""
    return re.sub(r"[^A-Za-z0-9]", "_", resource).upper() + "_VISIBLE_DEVICES"


def digest(text: str, length: int = 8) -> str:
    """Return a short, stable hash of a text in lower-case hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def device_id(entry: str, identity: str, *, fingerprint: int = 8) -> str:
    """Return a stable id for the device of an entry with this identity (a path, serial, port or index).

    It is `<entry>-<identity>`, or `<entry>_<identity>` if the identity has a '-'. An entry's name has no '_', so two
    pairs never share an id: entry `a` with `b-c` is `a_b-c`, and entry `a-b` with `c` is `a-b-c`. Characters that ids,
    CDI names or file names do not allow become '-'. If characters are replaced or cut off, the id ends in a hash of the
    whole text; among tens of thousands of ids, two may share a hash of 8 characters.
    """
    plain = f"{entry}{'_' if '-' in identity else '-'}{identity}"
    clean = _NOT_IN_ID.sub("-", plain).strip("-._") or "device"
    limit = MAX_ID - REPLICA_ROOM
    if clean == plain and len(clean) <= limit:
        return clean
    return f"{clean[: limit - 1 - fingerprint].strip('-._')}-{digest(plain, fingerprint)}"


def is_nvidia_id(text: str) -> bool:
    """Whether the text has the form of an id of NVIDIA's driver. Such ids are globally unique."""
    return _NVIDIA_ID.fullmatch(text) is not None


def socket_name(resource: str, instance: str, *, room: int = 60) -> str:
    """Return the file name of a resource's socket with at most `room` characters. `instance` identifies the process.

    It is `vdev-<part of the name>-<hash of resource>-<instance>.sock`. A socket's path has at most 107 bytes, of which
    the kubelet's directory leaves about 75. In a longer directory, the readable part is shorter or omitted.
    """
    rest = f"-{digest(resource)}-{instance}.sock"
    part = _NOT_IN_ID.sub("-", resource.rpartition("/")[2])[: max(0, min(20, room - len(rest) - 5))].strip("-.")
    return f"vdev-{part}{rest}" if part else f"vdev{rest}"


def domain_and_name(resource: str) -> tuple[str, str]:
    """Split `acme.dev/npu` into `acme.dev` and `npu`."""
    domain, _, name = resource.partition("/")
    return domain, name


MAX_VALUE = 63
_MAX_TYPE = 316
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_VALUE_RULE = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"

_OTHERS = ("kubelet.kubernetes.io", "node.kubernetes.io", "node-restriction.kubernetes.io", "node-role.kubernetes.io")
_OWNED = frozenset(
    {"kubernetes.io", "k8s.io", "beta.kubernetes.io", "topology.kubernetes.io", "failure-domain.beta.kubernetes.io"}
)
_FEATURES = "feature.node.kubernetes.io"  # of Node Feature Discovery, which is not part of Kubernetes

KUBELET_CONDITIONS = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""Node conditions that the kubelet or a cloud controller writes."""


@functools.lru_cache(maxsize=1024)
def key_problem(key: str) -> str:
    """Return why Kubernetes refuses the key of a label, or that the key belongs to Kubernetes."""
    if wrong := qualified_name_problem(key, "label key"):
        return wrong
    prefix = key.rpartition("/")[0]
    if not _is_in(prefix, _FEATURES) and (prefix in _OWNED or any(_is_in(prefix, domain) for domain in _OTHERS)):
        return f"the label {key!r} belongs to Kubernetes: only the kubelet or an administrator sets those of {prefix}"
    return ""


def value_problem(value: str) -> str:
    """Return why Kubernetes refuses the value of a label. An empty value is allowed."""
    if len(value) > MAX_VALUE:
        return f"{value!r} has {len(value)} characters; at most {MAX_VALUE} are allowed"
    if value and not NAME_PART.fullmatch(value):
        return f"{value!r} is not a valid label value: it may hold {_VALUE_RULE}"
    return ""


def qualified_name_problem(text: str, what: str = "key", *, any_case: bool = False) -> str:
    """Return why Kubernetes refuses a name of the form `[<DNS name>/]<name>`. `what` is its kind for the message."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not DNS_NAME.fullmatch(prefix.lower() if any_case else prefix) or len(prefix) > _MAX_PREFIX):
        case = "" if any_case else " in lower case"
        wrong = f"{prefix!r} before '/' is not a DNS name{case} of at most {_MAX_PREFIX} characters"
    elif not NAME_PART.fullmatch(name) or len(name) > _MAX_NAME:
        wrong = f"{name!r} must be 1 to {_MAX_NAME} {_VALUE_RULE}"
    else:
        return ""
    return f"{text!r} is not a valid {what}: {wrong}"


def annotation_key_problem(key: str) -> str:
    return qualified_name_problem(key, "annotation key", any_case=True)


def node_name_problem(name: str) -> str:
    if len(name) > _MAX_PREFIX:
        return f"{name[:20]!r}… has {len(name)} characters; a node's name has at most {_MAX_PREFIX}"
    if not DNS_NAME.fullmatch(name) or any(len(part) > _MAX_NAME for part in name.split(".")):
        rule = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
        return f"{name!r} is not a valid name of a node: {rule}"
    return ""


def condition_type_problem(name: str) -> str:
    """Return why vdev cannot write a condition of this type."""
    if name in KUBELET_CONDITIONS:
        return f"the condition {name} belongs to the kubelet, which would overwrite it"
    if len(name) > _MAX_TYPE:
        return f"{name[:20]!r}… has {len(name)} characters; at most {_MAX_TYPE} are allowed"
    return qualified_name_problem(name, "type of a condition")


def condition_reason_problem(reason: str) -> str:
    if not _REASON.fullmatch(reason):
        rule = "one word of letters, digits, '_', ',' and ':' that begins with a letter and does not end in ',' or ':'"
        return f"{reason!r} is not a valid reason; expected {rule}, such as GpuLost"
    return ""


def _is_in(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")


MAX_DRIVER = 63
MAX_STRING = 64
MAX_IDENTIFIER = 32
MAX_ENTRIES = 32
"""Maximum number of attributes and capacities of a device together."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEVICE = 63
_NUMBER = r"(0|[1-9][0-9]*)"
_PRE_RELEASE = r"(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def driver_problem(name: str) -> str:
    if len(name) > MAX_DRIVER:
        return f"{name[:20]!r}… has {len(name)} characters; the name of a driver has at most {MAX_DRIVER}"
    if not DNS_NAME.fullmatch(name):
        return f"{name!r} is not the name of a driver, which is a DNS name in lower case, such as gpu.example.com"
    return ""


def attribute_problem(name: str) -> str:
    """Return why Kubernetes refuses the name of an attribute: an identifier with an optional domain."""
    domain, slash, rest = name.rpartition("/")
    if slash and (not DNS_NAME.fullmatch(domain) or len(domain) > MAX_DRIVER):
        wrong = f"{domain!r} before '/' is not a DNS name in lower case of at most {MAX_DRIVER} characters"
    elif not _IDENTIFIER.fullmatch(rest):
        wrong = f"{rest!r} may hold letters, digits and '_', and does not begin with a digit"
    elif len(rest) > MAX_IDENTIFIER:
        wrong = f"{rest!r} has {len(rest)} characters; at most {MAX_IDENTIFIER} are allowed"
    else:
        return ""
    return f"{name!r} is not the name of an attribute: {wrong}"


def string_problem(text: str) -> str:
    """Return why a text cannot be the value of an attribute."""
    size = len(text.encode())
    if size > MAX_STRING:
        return f"{text[:20]!r}… has {size} bytes; a string in a ResourceSlice has at most {MAX_STRING}"
    return ""


def version_problem(text: str) -> str:
    """Return why a text is not a version (Semantic Versioning 2.0.0)."""
    if len(text) > MAX_STRING:
        return f"{text[:20]!r}… has {len(text)} characters; a version has at most {MAX_STRING}"
    if not _VERSION.fullmatch(text):
        return f"{text!r} is not a version: it is three numbers without leading zeros, such as 580.95.5"
    return ""


def qualified(name: str, driver: str) -> str:
    """Return an attribute's name with its domain. The default domain is the driver's name."""
    return name if "/" in name else f"{driver}/{name}"


def identifier(text: str) -> str:
    """Convert any text to the name of an attribute; empty if no character remains."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:MAX_IDENTIFIER].strip("_")
    return f"_{name}"[:MAX_IDENTIFIER] if name[:1].isdigit() else name


def dns_label(text: str) -> str:
    """Convert any text to a DNS label; empty if no character remains. Different texts may have the same label."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_DEVICE].strip("-")
