"""Objects as they are and as they change: a list, then a watch from its version on, for as long as somebody follows.

    list ──► Listed ──► watch ──► Changed, Removed … ─┬─ it ended, as the server was asked to ──► watch on
      ▲                                               ├─ broken, nobody answers ──► Lost, pause ► watch on, Back
      └────────────── 410: the version is forgotten ──┘

What the server refuses for good (a permission, a kind that it has not) is raised: the follower knows what else to do,
and `for_ever` lets it try again.
"""

import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from ..aio.clock import Timing
from ..aio.tasks import Backoff
from ..errors import ApiServerError
from ..json_text import parse_json
from .answers import ApiCall, Expired, Throttled, Unconfigured, Unreachable, error_in_watch
from .calls import ApiCalls, ApiRequest, checked
from .kinds import ObjectKind

Object: TypeAlias = Mapping[str, Any]

_CHUNK = "500"  # objects in one answer to a list
_BATCH = 50  # of them, before others have a turn
_SILENCE = 2.0  # times the longest watch, after which the connection must be dead


@dataclass(frozen=True, slots=True)
class Listed:
    """All there are; what was there before and is not among them is gone."""

    objects: tuple[Object, ...]
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Changed:
    """An object is new or another one."""

    object: Object


@dataclass(frozen=True, slots=True)
class Removed:
    """An object is gone; this is what it was at last."""

    object: Object


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing is heard at the moment, and changes may pass unseen; it is tried again."""

    error: ApiServerError


@dataclass(frozen=True, slots=True)
class Back:
    """The server is heard again, and nothing was missed."""


Change: TypeAlias = Listed | Changed | Removed | Lost | Back


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects: of a kind, in a namespace or in all, by selectors as kubectl takes them.

    `keep` makes of each object of a list what the list has of it: thousands of whole ones are much at once.
    """

    kind: ObjectKind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    keep: Callable[[Object], Object] = field(default=lambda each: each, compare=False)

    def call(self, verb: str) -> ApiCall:
        return ApiCall(verb=verb, kind=self.kind, namespace=self.namespace)

    @property
    def params(self) -> dict[str, str]:
        """The selectors, as parameters of a request."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in given.items() if value}


async def listing(calls: ApiCalls, chosen: Selection, *, not_older: str = "") -> Listed:
    """All objects, in one consistent state: as new as can be, or no older than a version ("0": whatever is at hand).

    Raises an ApiServerError; Expired where it takes so long that the server forgets what it is listing.
    """
    call = chosen.call("list")
    at = {"resourceVersion": not_older, "resourceVersionMatch": "NotOlderThan"} if not_older else {}
    objects: list[Object] = []
    more, left = "", calls.limit
    while True:
        page = {"continue": more} if more else at
        params = chosen.params | {"limit": _CHUNK} | page
        found, size = await calls.ask_sized(ApiRequest(method="GET", call=call, params=params), left)
        left -= size
        items, metadata = found.get("items") or [], found.get("metadata") or {}
        if not isinstance(items, list) or not isinstance(metadata, dict):
            raise Unreachable(call, "what came is no list")
        for start in range(0, len(items), _BATCH):
            if start:
                await calls.clock.sleep(0)  # to make what is kept of five hundred slices takes a twentieth of a second
            objects += [chosen.keep(checked(call, each)) for each in items[start : start + _BATCH]]
        if not (more := str(metadata.get("continue") or "")):
            return Listed(tuple(objects), str(metadata.get("resourceVersion") or ""))


async def follow(calls: ApiCalls, chosen: Selection) -> AsyncGenerator[Change, None]:
    """What there is, then each change, forever; close it when done. Raises Denied, Missing, Invalid, Conflict."""
    clock = calls.clock
    backoff = Backoff(calls.intervals.api_pause_first, calls.intervals.api_pause_most)
    version, at_hand = "", "0"
    failures, lost = 0, ""
    while True:
        trouble: ApiServerError | None = None
        begun = clock.now()
        try:
            if not version:
                found = await listing(calls, chosen, not_older=at_hand)
                version = at_hand = found.version
                lost = ""
                yield found
            async with contextlib.aclosing(_watch(calls, chosen, version)) as events:
                async for version, change in events:
                    at_hand = version
                    if lost:
                        lost = ""
                        yield Back()
                    if change is not None:
                        yield change
        except Expired:
            version, at_hand = "", ""  # whatever is newest; a server that lags behind gets time to catch up
        except (Unreachable, Throttled, Unconfigured) as failed:
            trouble = failed
        if trouble is not None and str(trouble) != lost:
            lost = str(trouble)
            yield Lost(trouble)
        failures = failures + 1 if clock.now() - begun < calls.intervals.steady else 0
        pause = backoff.pause(max(0, failures - 1)) if trouble or failures > 1 else 0.0
        if isinstance(trouble, Throttled):
            pause = max(pause, trouble.wait)
        await clock.sleep(pause)


async def for_ever(
    watch: Callable[[], Awaitable[None]],
    refused: Callable[[ApiServerError], Awaitable[None]],
    *,
    timing: Timing,
) -> NoReturn:
    """Call `watch` again and again, `refused` with what it raises, and pause: the longer the sooner it ended."""
    backoff = Backoff(timing.intervals.api_pause_first, timing.intervals.api_pause_most)
    failures = 0
    while True:
        begun = timing.clock.now()
        try:
            await watch()
        except ApiServerError as error:
            await refused(error)
        failures = 0 if timing.clock.now() - begun > timing.intervals.steady else failures + 1
        await timing.clock.sleep(backoff.pause(failures))


async def _watch(calls: ApiCalls, chosen: Selection, version: str) -> AsyncGenerator[tuple[str, Change | None], None]:
    """One watch: at its begin and with each event, the version to go on from, and the change if it is one."""
    call = chosen.call("watch")
    seconds = calls.intervals.api_watch * random.uniform(1.0, 1.5)
    params = chosen.params | {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(max(1, round(seconds))),
    }
    async with calls.watch(ApiRequest(method="GET", call=call, params=params), silence=seconds * _SILENCE) as lines:
        yield version, None
        async for line in lines:
            kind, found = _event(call, line)
            if kind == "ERROR":
                raise error_in_watch(call, found)
            version = _version(found) or version
            match kind:
                case "ADDED" | "MODIFIED":
                    yield version, Changed(checked(call, found))
                case "DELETED":
                    yield version, Removed(checked(call, found))
                case _:  # BOOKMARK, and what there may be one day
                    yield version, None


def _version(document: Object) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""


def _event(call: ApiCall, line: bytes) -> tuple[str, Object]:
    try:
        event = parse_json(line)
        return event["type"], dict(event["object"])
    except (ValueError, LookupError, TypeError) as wrong:
        raise Unreachable(call, "what came in a watch is no event") from wrong
