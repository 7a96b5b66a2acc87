"""Parts of objects that several writers and readers need: names, times, and Events."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from .kinds import ObjectKind

Object: TypeAlias = Mapping[str, Any]


def metadata_of(document: Object | None) -> Mapping[str, Any]:
    """The metadata of an object; empty if there is none."""
    return (document or {}).get("metadata") or {}


def key_of(document: Object) -> str:
    """`namespace/name`, or the name of an object without a namespace."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def timestamp(wall: float) -> str:
    """A Unix time as Kubernetes writes it."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(
    kind: ObjectKind,
    about: Mapping[str, str],
    *,
    name: str,
    reason: str,
    message: str,
    is_warning: bool,
    component: str,
    node: str,
    at: str,
    count: int = 1,
) -> dict[str, Any]:
    """An Event about an object of this kind, of which `about` has name, uid and namespace."""
    return {
        "metadata": {"name": name, "namespace": about.get("namespace", "default")},
        "involvedObject": {"apiVersion": kind.api_version, "kind": kind.name, **about},
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": component, "host": node},
        "reportingComponent": component,
        "reportingInstance": node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": count,
    }
