"""Lists, in pages that all show the same moment, and watches, from a version on."""

import asyncio
import base64
import binascii
import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from ...json_text import parse_json
from .kinds import ApiKind, Document, Refused, Stored, invalid_options
from .selectors import Chosen, selection
from .store import Happened, Objects, of_version
from .tables import Form

_KEPT_LISTS = 100  # whose next page may still be asked for
_NOT_OLDER = "NotOlderThan"
_NO = ("false", "0")
_LONGEST_WATCH = 1800.0  # seconds


class Lists:
    """Lists of objects. One of which not all pages are fetched is kept: the next is of the same moment."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._begun: OrderedDict[str, tuple[int, list[Stored]]] = OrderedDict()
        self._serial = 0

    def answer(self, kind: ApiKind, namespace: str, params: Mapping[str, str]) -> Document:
        """The list, or its next page. Raises Refused."""
        limit = _number(params, "limit")
        if token := params.get("continue"):
            if "resourceVersion" in params or "resourceVersionMatch" in params:
                raise Refused(400, "BadRequest", "resourceVersion is forbidden with continue")
            key, start = _decoded(token)
            version, found = self._begun.get(key, (-1, []))
            if version < self._objects.forgotten:
                text = "The provided continue parameter is too old to display a consistent list result."
                raise Refused(410, "Expired", text)
        else:
            version_of(self._objects, params, watch=False)
            chosen = selection(kind, namespace, params)
            version, start = self._objects.version, 0
            found = [each for each in self._objects.all(kind, namespace) if chosen(each)]
            key = ""
        end = start + limit if limit else len(found)
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if end < len(found):
            key = key or self._keep(version, found)
            metadata |= {"continue": _encoded(key, end), "remainingItemCount": len(found) - end}
        items = [_bare(each) for each in found[start:end]]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}

    def _keep(self, version: int, found: list[Stored]) -> str:
        self._serial += 1
        self._begun[str(self._serial)] = version, found
        if len(self._begun) > _KEPT_LISTS:
            self._begun.popitem(last=False)
        return str(self._serial)


class Watch:
    """One watch, written line by line in chunks; without a version it begins with what there is, and with
    `sendInitialEvents` it says where that ends.

    `bookmarks` is the shortest time between two of them, in seconds.
    """

    def __init__(
        self,
        objects: Objects,
        kind: ApiKind,
        namespace: str,
        params: Mapping[str, str],
        writer: asyncio.StreamWriter,
        *,
        form: Form,
        bookmarks: float,
    ) -> None:
        self._objects = objects
        self._kind = kind
        self._namespace = namespace
        self._chosen = selection(kind, namespace, params)
        self._seen = version_of(objects, params, watch=True)
        self._initial = params.get("sendInitialEvents", "")
        self._bookmarks = bookmarks
        self._mark_at = 0.0 if params.get("allowWatchBookmarks") == "true" else math.inf
        self._writer = writer
        self._form = form
        self.seconds = float(_number(params, "timeoutSeconds") or _LONGEST_WATCH)
        self.current = asyncio.Event()  # once all that was there is told, so that it is known from where it goes on

    async def run(self) -> None:
        """Tell what happens, until cancelled, or until what it asks for is forgotten."""
        if self._initial not in _NO and (self._initial or self._seen == 0):
            for each in self._objects.all(self._kind, self._namespace):
                if self._chosen(each):
                    self._write("ADDED", self._form(each))
            self._seen = self._objects.version
            if self._initial and self._mark_at < math.inf:
                self._mark(annotations={"k8s.io/initial-events-end": "true"})
        elif self._seen == 0:
            self._seen = self._objects.version
        while True:
            try:
                happened = self._objects.since(self._kind, self._seen)
            except Refused as refused:
                self._write("ERROR", refused.document)
                await self._writer.drain()
                return
            for change in happened:
                self._tell(change, self._chosen)
            now = asyncio.get_running_loop().time()
            if self._objects.version > self._seen and now >= self._mark_at:
                self._mark_at = now + self._bookmarks
                self._mark()
            self._seen = self._objects.version
            await self._writer.drain()
            self.current.set()
            await self._objects.newer(self._seen)

    def _mark(self, **more: Any) -> None:
        metadata = {"resourceVersion": str(self._objects.version), "creationTimestamp": None, **more}
        self._write("BOOKMARK", {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata})

    def _tell(self, happened: Happened, chosen: Chosen) -> None:
        old, new = happened.old, happened.new
        before, after = old is not None and chosen(old), new is not None and chosen(new)
        if after and new is not None:
            self._write("MODIFIED" if before else "ADDED", self._form(new))
        elif before and old is not None:
            self._write("DELETED", self._form(of_version(new or old, happened.version)))

    def _write(self, kind: str, document: Document) -> None:
        line = json.dumps({"type": kind, "object": document}, ensure_ascii=False).encode() + b"\n"
        self._writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def version_of(objects: Objects, params: Mapping[str, str], *, watch: bool) -> int:
    """The version that a list or watch asks for; 0: any. Raises Refused."""
    given, match = params.get("resourceVersion", ""), params.get("resourceVersionMatch", "")
    if given and not given.isdecimal():
        raise Refused(400, "BadRequest", f'resourceVersion: Invalid value: "{given}"')
    if wrong := [*(_wrong_watch if watch else _wrong_list)(given, match, params.get("sendInitialEvents", ""))]:
        raise invalid_options("ListOptions", wrong)
    if given and int(given) > objects.version:
        text = f"Too large resource version: {given}, current: {objects.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise Refused(504, "Timeout", text, causes=[cause])
    if match == "Exact" and int(given) != objects.version:
        raise Refused(410, "Expired", "The resourceVersion for the provided list is too old.")
    return int(given or 0)


def _wrong_list(given: str, match: str, initial: str) -> Iterator[tuple[str, str]]:
    if initial:
        yield "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"
    if match and not given:
        yield "resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match not in ("", "Exact", _NOT_OLDER):
        supported = f'supported values: "Exact", "{_NOT_OLDER}", ""'
        yield "resourceVersionMatch", f"Unsupported value: {json.dumps(match)}: {supported}"
    elif match == "Exact" and given == "0":
        yield (
            "resourceVersionMatch",
            'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        )


def _wrong_watch(_given: str, match: str, initial: str) -> Iterator[tuple[str, str]]:
    if match and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield "resourceVersionMatch", f"Forbidden: {why}"
    if initial and match != _NOT_OLDER:
        why = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        yield "resourceVersionMatch", f"Forbidden: {why}"


def _number(params: Mapping[str, str], name: str) -> int:
    text = params.get(name, "0")
    if not text.isdecimal():
        raise Refused(400, "BadRequest", f'{name}: Invalid value: "{text}"')
    return int(text)


def _encoded(key: str, start: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([key, start]).encode()).decode()


def _decoded(token: str) -> tuple[str, int]:
    try:
        key, start = parse_json(base64.urlsafe_b64decode(token))
        return str(key), int(start)
    except (ValueError, TypeError, binascii.Error):
        raise Refused(400, "BadRequest", "continue key is not valid") from None


def _bare(document: Document) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
