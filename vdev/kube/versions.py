"""Which of two tellings of an object is the newer one. Versions can be compared (Kubernetes 1.35, KEP 5504)."""

from collections.abc import Mapping
from typing import Any


def metadata_of(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """That of an object; nothing where there is none."""
    return (document or {}).get("metadata") or {}


def version_of(metadata: Mapping[str, Any]) -> str:
    """The version that an object with this metadata has; empty where it does not say."""
    return str(metadata.get("resourceVersion") or "")


def is_since(metadata: Mapping[str, Any], version: str) -> bool:
    """Whether an object with this metadata was written after a version."""
    mine = version_of(metadata)
    return mine.isdecimal() and version.isdecimal() and int(mine) > int(version)


def is_known(document: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether it is this or an earlier version of the same object, whose metadata is known."""
    metadata = metadata_of(document)
    told = version_of(metadata)
    return metadata.get("uid") == known.get("uid") and (told == version_of(known) != "" or is_since(known, told))
