"""What Kubernetes takes as a node's label and as the type of a condition, and which of them belong to others.

Sources: apimachinery's validation of qualified names and label values, the pattern of metav1's Condition, the labels
that a kubelet may set on itself (k8s.io/kubelet, well_known_labels.go), and the NodeRestriction admission plugin.
"""

import functools
import re

from .names import DNS_NAME, NAME_PART

MAX_VALUE = 63
_MAX_NAME = 63
_MAX_PREFIX = 253
_MAX_TYPE = 316
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_VALUE_RULE = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"

_OTHERS = ("kubelet.kubernetes.io", "node.kubernetes.io", "node-restriction.kubernetes.io", "node-role.kubernetes.io")
_OWNED = frozenset(
    {"kubernetes.io", "k8s.io", "beta.kubernetes.io", "topology.kubernetes.io", "failure-domain.beta.kubernetes.io"}
)
_FEATURES = "feature.node.kubernetes.io"  # Node Feature Discovery's, which is no part of Kubernetes itself

KUBELET_CONDITIONS = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""The conditions of a node that the kubelet, or a cloud's controller, writes."""


@functools.lru_cache(maxsize=1024)
def key_problem(key: str) -> str:
    """Why Kubernetes refuses `key` for a label, or why it belongs to somebody else; the empty string for a good one."""
    if wrong := _qualified_name_problem(key):
        return f"{key!r} is not a valid label key: {wrong}"
    prefix = key.rpartition("/")[0]
    if not _is_in(prefix, _FEATURES) and (prefix in _OWNED or any(_is_in(prefix, domain) for domain in _OTHERS)):
        return f"the label {key!r} belongs to Kubernetes: only the kubelet or an administrator sets those of {prefix}"
    return ""


def value_problem(value: str) -> str:
    """Why Kubernetes refuses `value` for a label, or the empty string; an empty value is fine."""
    if len(value) > MAX_VALUE:
        return f"{value!r} has {len(value)} characters; at most {MAX_VALUE} are allowed"
    if value and not NAME_PART.fullmatch(value):
        return f"{value!r} is not a valid label value: it may hold {_VALUE_RULE}"
    return ""


def literals_problem(literals: tuple[str, ...]) -> str:
    """Why no value with these literal parts, and something between them, can be a label's, or the empty string."""
    if len(literals) == 1:
        return value_problem(literals[0])
    text = "".join(literals)
    if len(text) > MAX_VALUE:
        return f"its literal part has {len(text)} characters; a label's value has at most {MAX_VALUE}"
    if (
        not re.fullmatch(r"[-A-Za-z0-9_.]*", text)
        or literals[0][:1] in tuple("-_.")
        or literals[-1][-1:] in tuple("-_.")
    ):
        return f"no label has such a value: it may hold {_VALUE_RULE}"
    return ""


def plain_key_problem(key: str) -> str:
    """Why Kubernetes refuses `key` for a label or an annotation, or the empty string; no matter whose it is."""
    wrong = _qualified_name_problem(key)
    return f"{key!r} is not a valid key: {wrong}" if wrong else ""


def node_name_problem(name: str) -> str:
    """Why Kubernetes refuses `name` for a Node, or the empty string."""
    if len(name) > _MAX_PREFIX:
        return f"{name[:20]!r}… has {len(name)} characters; a node's name has at most {_MAX_PREFIX}"
    if not DNS_NAME.fullmatch(name) or any(len(part) > _MAX_NAME for part in name.split(".")):
        rule = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
        return f"{name!r} is no name of a node: {rule}"
    return ""


def taint_key_problem(key: str) -> str:
    """Why Kubernetes refuses `key` for a device's taint, or the empty string."""
    wrong = _qualified_name_problem(key)
    return f"{key!r} is not a valid key of a taint: {wrong}" if wrong else ""


def condition_type_problem(name: str) -> str:
    """Why `name` cannot be the type of a condition of ours, or the empty string."""
    if name in KUBELET_CONDITIONS:
        return f"the condition {name} belongs to the kubelet, which would write over it"
    if len(name) > _MAX_TYPE:
        return f"{name[:20]!r}… has {len(name)} characters; at most {_MAX_TYPE} are allowed"
    if wrong := _qualified_name_problem(name):
        return f"{name!r} is not a valid type of a condition: {wrong}"
    return ""


def condition_reason_problem(reason: str) -> str:
    """Why Kubernetes refuses `reason` for a condition, or the empty string."""
    if not _REASON.fullmatch(reason):
        rule = "letters, digits, '_', ',' and ':', with a letter first and none of ',' and ':' last"
        return f"{reason!r} is not a valid reason: it is one word of {rule}, such as GpuLost"
    return ""


def _qualified_name_problem(text: str) -> str:
    """`[<DNS name>/]<name>`."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not DNS_NAME.fullmatch(prefix) or len(prefix) > _MAX_PREFIX):
        return f"{prefix!r} before '/' is not a DNS name in lower case of at most {_MAX_PREFIX} characters"
    if not NAME_PART.fullmatch(name) or len(name) > _MAX_NAME:
        return f"{name!r} must be 1 to {_MAX_NAME} {_VALUE_RULE}"
    return ""


def _is_in(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")
