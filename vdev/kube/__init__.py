"""Everything that speaks with the API server goes through `Api`: plain documents, and errors that say what to do.

    find_server(…) ─► ApiServerAddress ─► Api(server) ─┬─ get, list, watch, create, patch, apply, delete
                                             └─ Informer: a copy of what is there, kept up to date

Making an `Api` costs nothing. The client library is imported and a connection made with the first request.
"""

from ..api_server import NO_SERVER, ApiServerAddress, find_server
from .answers import (
    ApiCall,
    Conflict,
    Denied,
    Invalid,
    Missing,
    Throttled,
    Unconfigured,
    Unreachable,
    metadata_of,
)
from .api import MANAGER, Api, whole
from .calls import InjectedAnswer
from .informer import Informer, key_of
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
    "Conflict",
    "Denied",
    "Informer",
    "InjectedAnswer",
    "Invalid",
    "Missing",
    "ObjectKind",
    "Throttled",
    "Unconfigured",
    "Unreachable",
    "find_server",
    "key_of",
    "metadata_of",
    "whole",
]
