"""Lists, and watches from a version on."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

from .http_requests import Request
from .kinds import Document, Refused, Stored
from .selectors import selection
from .store import Change, ObjectStore, at_version

_LONGEST_WATCH = 1800.0  # seconds


def listed(objects: ObjectStore, request: Request) -> Document:
    """All objects that a request selects. There are no pages; a server need not have them (ListOptions, `limit`)."""
    _requested_version(objects, request)
    chosen = selection(request.kind, request.namespace, request.params)
    return {
        "kind": f"{request.kind.kind}List",
        "apiVersion": request.kind.api_version,
        "metadata": {"resourceVersion": str(objects.version)},
        "items": [_without_kind(each) for each in objects.all(request.kind, request.namespace) if chosen(each)],
    }


class Watch:
    """One watch.

    Without a version it begins with the existing objects. With `sendInitialEvents` a bookmark follows the last of them.
    """

    def __init__(
        self, objects: ObjectStore, request: Request, *, form: Callable[[Document], Document], bookmarks: float
    ) -> None:
        params = request.params
        self._objects = objects
        self._kind = request.kind
        self._namespace = request.namespace
        self._chosen = selection(request.kind, request.namespace, params)
        self._version = _requested_version(objects, request)  # the changes up to this one were sent
        self._marks_initial = params.get("sendInitialEvents", "") == "true"
        self._sends_existing = self._marks_initial or (self._version == 0 and "sendInitialEvents" not in params)
        self._bookmarks = bookmarks  # seconds between two of them
        self._next_bookmark = 0.0 if params.get("allowWatchBookmarks") == "true" else math.inf
        self._form = form
        self._seconds = float(params.get("timeoutSeconds", "0")) or _LONGEST_WATCH

    async def run(self) -> AsyncIterator[bytes]:
        """The events until the time is over or the store has forgotten the next change.

        The first item has the existing objects, and is empty if none are sent.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        text = b""
        if self._sends_existing:
            existing = self._objects.all(self._kind, self._namespace)
            text = b"".join(_line("ADDED", self._form(each)) for each in existing if self._chosen(each))
            self._version = self._objects.version
            if self._marks_initial and self._next_bookmark < math.inf:
                text += self._bookmark(annotations={"k8s.io/initial-events-end": "true"})
        self._version = self._version or self._objects.version
        while True:
            try:
                changes = self._objects.since(self._kind, self._version)
            except Refused as refused:
                yield _line("ERROR", refused.document)
                return
            text += b"".join(map(self._event, changes))
            if self._objects.version > self._version and loop.time() >= self._next_bookmark:
                self._next_bookmark = loop.time() + self._bookmarks
                text += self._bookmark()
            self._version = self._objects.version
            yield text
            text = b""
            try:
                async with asyncio.timeout_at(end):
                    await self._objects.newer(self._version)
            except TimeoutError:
                return

    def _bookmark(self, **more: Any) -> bytes:
        metadata = {"resourceVersion": str(self._objects.version), "creationTimestamp": None, **more}
        document = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        return _line("BOOKMARK", document)

    def _event(self, change: Change) -> bytes:
        """The event of a change, empty if the watch does not select the object."""
        old, new = change.old, change.new
        was_chosen, is_chosen = old is not None and self._chosen(old), new is not None and self._chosen(new)
        if is_chosen and new is not None:
            return _line("MODIFIED" if was_chosen else "ADDED", self._form(new))
        if was_chosen and old is not None:
            return _line("DELETED", self._form(at_version(new or old, change.version)))
        return b""


def _line(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}, ensure_ascii=False).encode() + b"\n"


def _requested_version(objects: ObjectStore, request: Request) -> int:
    """The version from which a list or watch starts; 0 means any. Raises Refused."""
    given = request.params.get("resourceVersion", "")
    if given and not given.isdecimal():
        raise Refused(400, "BadRequest", f'resourceVersion: Invalid value: "{given}"')
    if given and int(given) > objects.version:
        text = f"Too large resource version: {given}, current: {objects.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise Refused(504, "Timeout", text, causes=[cause])
    return int(given or 0)


def _without_kind(document: Stored) -> Stored:
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
