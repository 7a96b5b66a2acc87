"""Lists, and watches from a version on."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any

from .http_requests import Request
from .kinds import ApiKind, Document, Refused, Stored
from .selectors import selection
from .store import Change, Objects, at_version
from .tables import Form

_LONGEST_WATCH = 1800.0  # seconds


def listed(objects: Objects, request: Request) -> Document:
    """All objects that are asked for. There are no pages: a server need not have them (ListOptions, `limit`)."""
    _version_of(objects, request)
    chosen = selection(request.kind, request.namespace, request.params)
    return {
        "kind": f"{request.kind.kind}List",
        "apiVersion": request.kind.api_version,
        "metadata": {"resourceVersion": str(objects.version)},
        "items": [_bare(each) for each in objects.all(request.kind, request.namespace) if chosen(each)],
    }


class Watch:
    """One watch; without a version it begins with what there is, and with `sendInitialEvents` it says where that ends.

    `bookmarks` is the shortest time between two of them, in seconds.
    """

    def __init__(self, objects: Objects, request: Request, *, form: Form, bookmarks: float) -> None:
        params = request.params
        self._objects = objects
        self._kind: ApiKind = request.kind
        self._namespace = request.namespace
        self._chosen = selection(request.kind, request.namespace, params)
        self._seen = _version_of(objects, request)
        self._initial = params.get("sendInitialEvents", "") == "true"
        self._begins = self._initial or (self._seen == 0 and "sendInitialEvents" not in params)
        self._bookmarks = bookmarks
        self._mark_at = 0.0 if params.get("allowWatchBookmarks") == "true" else math.inf
        self._form = form
        self._seconds = float(params.get("timeoutSeconds", "0")) or _LONGEST_WATCH

    async def run(self) -> AsyncIterator[bytes]:
        """What happens, until the time is over or what is asked for is forgotten; at first what was there, if only
        nothing.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        text = b""
        if self._begins:
            there = self._objects.all(self._kind, self._namespace)
            text = b"".join(_line("ADDED", self._form(each)) for each in there if self._chosen(each))
            self._seen = self._objects.version
            if self._initial and self._mark_at < math.inf:
                text += self._mark(annotations={"k8s.io/initial-events-end": "true"})
        self._seen = self._seen or self._objects.version
        while True:
            try:
                happened = self._objects.since(self._kind, self._seen)
            except Refused as refused:
                yield _line("ERROR", refused.document)
                return
            text += b"".join(map(self._told, happened))
            if self._objects.version > self._seen and loop.time() >= self._mark_at:
                self._mark_at = loop.time() + self._bookmarks
                text += self._mark()
            self._seen = self._objects.version
            yield text
            text = b""
            try:
                async with asyncio.timeout_at(end):
                    await self._objects.newer(self._seen)
            except TimeoutError:
                return

    def _mark(self, **more: Any) -> bytes:
        metadata = {"resourceVersion": str(self._objects.version), "creationTimestamp": None, **more}
        about = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        return _line("BOOKMARK", about)

    def _told(self, change: Change) -> bytes:
        old, new = change.old, change.new
        before, after = old is not None and self._chosen(old), new is not None and self._chosen(new)
        if after and new is not None:
            return _line("MODIFIED" if before else "ADDED", self._form(new))
        if before and old is not None:
            return _line("DELETED", self._form(at_version(new or old, change.version)))
        return b""


def _line(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}, ensure_ascii=False).encode() + b"\n"


def _version_of(objects: Objects, request: Request) -> int:
    """The version that a list or watch asks for; 0: any. Raises Refused."""
    given = request.params.get("resourceVersion", "")
    if given and not given.isdecimal():
        raise Refused(400, "BadRequest", f'resourceVersion: Invalid value: "{given}"')
    if given and int(given) > objects.version:
        text = f"Too large resource version: {given}, current: {objects.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise Refused(504, "Timeout", text, causes=[cause])
    return int(given or 0)


def _bare(document: Stored) -> Stored:
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
