"""Lists, and watches from a version on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from .http_requests import Request, selection
from .kinds import Document, Refused, Stored
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


def watch(
    objects: ObjectStore, request: Request, *, form: Callable[[Document], Document], bookmarks: float
) -> AsyncIterator[bytes]:
    """The events until the time is over or the store has forgotten the next change. Raises Refused.

    Without a version, a watch begins with the existing objects. With `sendInitialEvents` a bookmark follows the last of
    them. The first item has the existing objects, and is empty if none are sent. Between two bookmarks are `bookmarks`
    seconds.
    """
    kind, params = request.kind, request.params
    chosen = selection(kind, request.namespace, params)
    version = _requested_version(objects, request)  # the changes up to this one were sent
    wants_bookmarks = params.get("allowWatchBookmarks") == "true"
    marks_initial = params.get("sendInitialEvents") == "true"
    sends_existing = marks_initial or (version == 0 and "sendInitialEvents" not in params)
    seconds = float(params.get("timeoutSeconds", "0")) or _LONGEST_WATCH

    def bookmark(**more: Any) -> bytes:
        metadata = {"resourceVersion": str(objects.version), "creationTimestamp": None, **more}
        return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})

    def event(change: Change) -> bytes:
        """The event of a change, empty if the watch does not select the object."""
        old, new = (each if each is not None and chosen(each) else None for each in (change.old, change.new))
        if new is not None:
            return _line("ADDED" if old is None else "MODIFIED", form(new))
        return b"" if old is None else _line("DELETED", form(at_version(change.new or old, change.version)))

    async def events() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end, next_bookmark, sent = loop.time() + seconds, 0.0, version
        text = b""
        if sends_existing:
            existing = objects.all(kind, request.namespace)
            text = b"".join(_line("ADDED", form(each)) for each in existing if chosen(each))
            sent = objects.version
            if marks_initial and wants_bookmarks:
                text += bookmark(annotations={"k8s.io/initial-events-end": "true"})
        sent = sent or objects.version
        while True:
            try:
                text += b"".join(map(event, objects.since(kind, sent)))
            except Refused as refused:
                yield _line("ERROR", refused.document)
                return
            if wants_bookmarks and objects.version > sent and loop.time() >= next_bookmark:
                next_bookmark = loop.time() + bookmarks
                text += bookmark()
            sent = objects.version
            yield text
            text = b""
            try:
                async with asyncio.timeout_at(end):
                    await objects.newer(sent)
            except TimeoutError:
                return

    return events()


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
