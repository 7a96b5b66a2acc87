"""Requests to the API server, and copies of its objects.

    find_server(…) ─► ApiServerAddress ─► Api(server) ─┬─ get, list, watch, create, update, patch, apply, delete
                                                       └─ Informer: a copy of objects, kept up to date

An `Api` imports the client library and connects with its first request.
"""

from ..api_server import NO_SERVER, ApiServerAddress, find_server
from .api import Api
from .errors import (
    ApiCall,
    Conflict,
    Denied,
    Invalid,
    Missing,
    Throttled,
    Unconfigured,
    Unreachable,
    injected_error,
)
from .informer import Informer
from .objects import (
    DEVICE_CLASSES,
    EVENTS,
    MANAGER,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ObjectKind,
    event,
    key_of,
    metadata_of,
    owned,
    owned_by_others,
    timestamp,
)

__all__ = [
    "DEVICE_CLASSES",
    "EVENTS",
    "MANAGER",
    "NODES",
    "NO_SERVER",
    "PODS",
    "RESOURCE_CLAIMS",
    "RESOURCE_SLICES",
    "Api",
    "ApiCall",
    "ApiServerAddress",
    "Conflict",
    "Denied",
    "Informer",
    "Invalid",
    "Missing",
    "ObjectKind",
    "Throttled",
    "Unconfigured",
    "Unreachable",
    "event",
    "find_server",
    "injected_error",
    "key_of",
    "metadata_of",
    "owned",
    "owned_by_others",
    "timestamp",
]
