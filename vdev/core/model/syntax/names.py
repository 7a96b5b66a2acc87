"""Names that others check: resource names (the kubelet), environment variables, ids, CDI names and socket names.

Sources: the kubelet's IsExtendedResourceName (a label key of the form `requests.<name>`), the CDI specification's name
rules, and what containerd does with one-letter names (it panics).
"""

import hashlib
import re
from functools import lru_cache

MAX_ID = 63  # the kubelet's contract for a device id, replica suffix included
REPLICA_ROOM = 9  # of these, for the replica suffix
NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_RULE = "use letters, digits and '_', and do not begin with a digit"
_MAX_DOMAIN = 244  # 253 less the "requests." that the kubelet puts in front
_MAX_NAME = 63
_MAX_PREFIX = 253  # of an annotation's key
_NVIDIA_ID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ENTRY_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def resource_name_problem(name: str) -> str:
    """Why the kubelet refuses `name` as an extended resource, or the empty string when it takes it."""
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
    """Why `name` is not a valid environment variable, or the empty string."""
    return "" if _ENV.fullmatch(name) else f"{name!r} is not a valid environment variable: {_ENV_RULE}"


def annotation_key_problem(key: str) -> str:
    """Why Kubernetes refuses `key` for an annotation, or the empty string: a qualified name, compared in lower case."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not DNS_NAME.fullmatch(prefix.lower()) or len(prefix) > _MAX_PREFIX):
        wrong = f"{prefix!r} before '/' is not a DNS name of at most {_MAX_PREFIX} characters"
    elif len(name) > _MAX_NAME or not NAME_PART.fullmatch(name):
        what = f"at most {_MAX_NAME} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
        wrong = f"{name!r} must be {what}"
    else:
        return ""
    return f"{key!r} is not a valid annotation key: {wrong}"


@lru_cache(maxsize=256)
def visible_devices_env(resource: str) -> str:
    """The device-list variable of a resource: `acme.dev/npu` gives `ACME_DEV_NPU_VISIBLE_DEVICES`."""
    return re.sub(r"[^A-Za-z0-9]", "_", resource).upper() + "_VISIBLE_DEVICES"


def digest(text: str, length: int = 8) -> str:
    """A short, stable, lower-case hexadecimal fingerprint of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def device_id(entry: str, identity: str, *, room: int = REPLICA_ROOM, fingerprint: int = 8) -> str:
    """A stable id made of the entry's name and the device's own identity (a path, serial, port or index).

    `<entry>-<identity>`; `<entry>_<identity>` where the identity has a '-' of its own. An entry's name has no '_', so
    that no two pairs share an id: entry `a` with `b-c` and entry `a-b` with `c` are `a_b-c` and `a-b-c`. Only
    characters that are fine in ids, CDI names and file names remain; where that, or the length limit, would lose
    something, a fingerprint of the whole keeps ids apart. `room` is what the replica suffix may need; of tens of
    thousands of ids, two may share a fingerprint of 8 characters.
    """
    plain = f"{entry}{'_' if '-' in identity else '-'}{identity}"
    clean = _NOT_IN_ID.sub("-", plain).strip("-._") or "device"
    limit = MAX_ID - room
    if clean == plain and len(clean) <= limit:
        return clean
    return f"{clean[: limit - 1 - fingerprint].strip('-._')}-{digest(plain, fingerprint)}"


def is_nvidia_id(text: str) -> bool:
    """Whether the id looks as NVIDIA's driver gives them, for a device or a partition: no two nodes share one."""
    return _NVIDIA_ID.fullmatch(text) is not None


def socket_name(resource: str, instance: str, *, room: int = 60) -> str:
    """The base name of a resource's socket: of its own per process (`instance`) and per resource, in `room` characters.

    `vdev-<part of the name>-<hash of resource>-<instance>.sock`; the hash keeps apart what the shortened name does not.
    The kubelet's directory leaves about 75 of the 107 bytes that a socket path may have; in a longer directory the
    readable part shrinks, and then goes.
    """
    rest = f"-{digest(resource)}-{instance}.sock"
    part = _NOT_IN_ID.sub("-", resource.rpartition("/")[2])[: max(0, min(20, room - len(rest) - 5))].strip("-.")
    return f"vdev-{part}{rest}" if part else f"vdev{rest}"


def domain_and_name(resource: str) -> tuple[str, str]:
    """`acme.dev/npu` gives (`acme.dev`, `npu`)."""
    domain, _, name = resource.partition("/")
    return domain, name
