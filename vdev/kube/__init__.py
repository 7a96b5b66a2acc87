"""Everything that speaks with the API server goes through `Api`: plain documents, and errors that say what to do.

    find_server(…) ─► ApiServerAddress ─► Api(server) ─┬─ get, list, create, patch, apply, delete
                                             └─ follow: what is there, then every change

Making an `Api` costs nothing. The client library is imported and a connection made with the first request.
"""

from ..api_server import NO_SERVER, ApiServerAddress, find_server
from .answers import (
    ApiCall,
    Conflict,
    Denied,
    FieldConflict,
    Invalid,
    Missing,
    Throttled,
    Unconfigured,
    Unreachable,
    is_known,
    is_since,
    metadata_of,
    version_of,
)
from .api import MANAGER, Api
from .calls import InjectedAnswer
from .follow import Back, Changed, Listed, Lost, Removed, for_ever
from .kinds import DEVICE_CLASSES, EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, ObjectKind

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
    "Back",
    "Changed",
    "Conflict",
    "Denied",
    "FieldConflict",
    "InjectedAnswer",
    "Invalid",
    "Listed",
    "Lost",
    "Missing",
    "ObjectKind",
    "Removed",
    "Throttled",
    "Unconfigured",
    "Unreachable",
    "find_server",
    "for_ever",
    "is_known",
    "is_since",
    "metadata_of",
    "version_of",
]
