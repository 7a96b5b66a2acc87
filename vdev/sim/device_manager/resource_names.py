"""The resource names that the kubelet accepts at registration: `IsExtendedResourceName` of Kubernetes 1.36."""

import re

_DOMAIN_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_DOMAIN_LABEL}(\.{_DOMAIN_LABEL})*")
_NAME = re.compile("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_QUOTA_PREFIX = "requests."
_DOMAIN_LIMIT = 253
_NAME_LIMIT = 63


def is_extended_resource_name(name: str) -> bool:
    """True if the kubelet accepts `name` as a device plugin's resource, such as `acme.dev/npu`.

    The name is checked as quota would write it, with `requests.` in front, which leaves 244 characters to the domain.
    """
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    domain, _, base = (_QUOTA_PREFIX + name).partition("/")
    return (
        len(domain) <= _DOMAIN_LIMIT
        and _DOMAIN.fullmatch(domain) is not None
        and len(base) <= _NAME_LIMIT
        and _NAME.fullmatch(base) is not None
    )
