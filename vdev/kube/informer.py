"""`Informer`: a copy of the objects of one kind, kept up to date by a list and a watch from its version on.

    list ──► watch ──► added, changed, deleted … ─┬─ it ended, as the server was asked to ──► watch on
      ▲                                           ├─ broken, or nobody answers ──► trouble, pause ──► watch on
      ├────── 410: the version is forgotten ──────┤
      └────── refused: no permission, no such kind ──► trouble, pause

The answer to a write is put into the copy with `wrote`. Older news of the same object, which a watch or a list may
still bring after that, is left out.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from ..aio.tasks import Backoff
from ..api_server import NO_SERVER
from ..errors import ApiServerError
from .answers import Denied, Expired, Missing, Throttled, Unconfigured, Unreachable
from .api import Api, Object
from .kinds import ObjectKind

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """What is kept of an object, and of which version of it."""

    value: T
    uid: str
    version: str


class Informer(Generic[T]):
    """The objects of a kind that the selectors choose. `api` None: there is no API server.

    `keep` makes of an object what is kept of it, or None if it is of no interest.
    `on_change` is called for each new version, with what was kept before and what is kept now (None: nothing).
    `on_look` is called after each list, and when `trouble` is another one.
    `on_denied` is awaited when a permission is missing, and does what is done instead of following.
    """

    def __init__(
        self,
        api: Api | None,
        kind: ObjectKind,
        *,
        keep: Callable[[Object], T | None],
        on_change: Callable[[T | None, T | None], None],
        on_look: Callable[[], None] = lambda: None,
        on_denied: Callable[[Denied], Awaitable[None]] | None = None,
        fields: str = "",
        labels: str = "",
        namespace: str = "",
    ) -> None:
        self.kind = kind
        self.trouble: ApiServerError | None = None  # why the copy may be old
        self.is_listed = False
        self._api = api
        self._keep = keep
        self._on_change = on_change
        self._on_look = on_look
        self._on_denied = on_denied
        self._selectors = {"fields": fields, "labels": labels, "namespace": namespace}
        self._known: dict[str, _Known[T]] = {}
        self._unheard: set[str] = set()  # keys of what was written from here, and neither list nor watch told of yet
        self._version = ""  # to watch from; empty: list first
        self._looked = asyncio.Event()
        self._answered = asyncio.Event()

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def objects(self) -> dict[str, T]:
        """What is kept, by `namespace/name`, or by name where there are no namespaces."""
        return {key: each.value for key, each in tuple(self._known.items())}  # also for readers in threads

    def get(self, key: str) -> T | None:
        known = self._known.get(key)
        return None if known is None else known.value

    async def looked(self) -> None:
        """Wait for the first list, or for the first failure of one."""
        await self._looked.wait()

    async def answered(self) -> None:
        """Wait for the first list, or until the server refuses it."""
        await self._answered.wait()

    async def seen(self) -> dict[str, T]:
        """The same as `objects`; waits for the first look. Raises ApiServerError if nothing was ever listed."""
        await self.looked()
        if not self.is_listed:
            raise self.trouble or Unconfigured(NO_SERVER)
        return self.objects

    def wrote(self, document: Object) -> None:
        """This is what the server answered to a write."""
        if not self._is_old(document):
            key = key_of(document)
            self._unheard.add(key)
            self._replace(key, self._kept(document))

    def removed(self, key: str) -> None:
        """The server said to a request of ours that there is none of this name."""
        self._replace(key, None)

    async def read(self, name: str) -> None:
        """Ask for one object, once, without following it."""
        if self._api is None:
            self._look(Unconfigured(NO_SERVER))
            return
        trouble: ApiServerError | None = None
        try:
            document = await self._api.get(self.kind, name, at_hand=True)
        except Missing:
            self._replace(name, None)
            self.is_listed = True
        except ApiServerError as failed:
            trouble = failed
        else:
            self._see(document)
            self.is_listed = True
        self._look(trouble)

    # --- following ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the objects until cancelled, through everything that the server does."""
        api = self._api
        if api is None:
            self._look(Unconfigured(NO_SERVER))
            self._answered.set()
            return
        intervals, clock = api.timing
        backoff = Backoff(intervals.api_pause_first, intervals.api_pause_most)
        failures = 0
        while True:
            begun = clock.now()
            trouble: ApiServerError | None = None
            try:
                if not self._version:
                    # The first list may be a moment old. One after a version that is forgotten must be the newest.
                    self._version = await self._list(api, at_hand=not self.is_listed)
                await self._watch(api)
            except Expired:
                self._version = ""
            except (Unreachable, Throttled, Unconfigured) as failed:
                trouble = failed
            except ApiServerError as refused:
                trouble, self._version = refused, ""
            await self._tell(trouble)
            failures = failures + 1 if clock.now() - begun < intervals.steady else 0
            pause = backoff.pause(max(0, failures - 1)) if trouble or failures > 1 else 0.0
            await clock.sleep(max(pause, trouble.wait if trouble else 0.0))

    async def _tell(self, trouble: ApiServerError | None) -> None:
        """Say why nothing is heard, if nothing is."""
        if trouble is None:
            return
        if not isinstance(trouble, Unreachable | Throttled | Unconfigured):
            self._answered.set()
        if isinstance(trouble, Denied) and trouble.known and self._on_denied is not None:
            await self._on_denied(trouble)
        else:
            self._look(trouble)

    async def _list(self, api: Api, *, at_hand: bool) -> str:
        """Replace the copy by what is there now, but for what was written since; returns the version of the list."""
        found = await api.list(self.kind, **self._selectors, at_hand=at_hand, keep=self._entry)
        there = {key: entry for key, entry in found.objects if entry is not None}
        for key in self._unheard & self._known.keys():
            if _is_newer(self._known[key].version, found.version):
                there[key] = self._known[key]
        self._unheard = {key for key in self._unheard if key in there and there[key] is self._known.get(key)}
        for key in self._known.keys() | there.keys():
            new, old = there.get(key), self._known.get(key)
            if new is None or old is None or (new.uid, new.version) != (old.uid, old.version):
                self._replace(key, new)
        self.is_listed = True
        self._looked.set()
        self._answered.set()
        self._on_look()
        return found.version

    async def _watch(self, api: Api) -> None:
        """Take what the server tells, until it ends the watch."""
        seconds = api.timing.intervals.api_watch * random.uniform(1.0, 1.5)
        async with api.watch(self.kind, **self._selectors, version=self._version, seconds=seconds) as events:
            if self.trouble is not None:
                self._look(None)
            async for event, document, version in events:
                match event:
                    case "ADDED" | "MODIFIED":
                        self._see(document)
                    case "DELETED":
                        self._see_gone(document)
                self._version = version or self._version  # also of a BOOKMARK, and what there may be one day

    def _look(self, trouble: ApiServerError | None) -> None:
        """This is why nothing is heard now, or nothing is in the way."""
        is_other = str(trouble or "") != str(self.trouble or "")
        self.trouble = trouble
        if is_other or not self._looked.is_set():
            self._looked.set()
            self._on_look()

    def _see(self, document: Object) -> None:
        key = key_of(document)
        if not self._is_old(document):
            self._unheard.discard(key)
            self._replace(key, self._kept(document))
        elif self._known[key].version == _version_of(document):
            self._unheard.discard(key)

    def _see_gone(self, document: Object) -> None:
        """One that was made since, with the same name, stays."""
        key = key_of(document)
        known = self._known.get(key)
        if known is not None and known.uid == _uid_of(document):
            self._replace(key, None)

    def _replace(self, key: str, new: _Known[T] | None) -> None:
        old = self._known.pop(key, None)
        if new is None:
            self._unheard.discard(key)
        else:
            self._known[key] = new
        if old is not None or new is not None:
            self._on_change(old.value if old else None, new.value if new else None)

    def _entry(self, document: Object) -> tuple[str, _Known[T] | None]:
        return key_of(document), self._kept(document)

    def _kept(self, document: Object) -> _Known[T] | None:
        """What is kept of an object. One that cannot be read, such as a pod with an odd annotation, is left out."""
        try:
            value = self._keep(document)
        except Exception:
            log.exception("an object is left out", kind=str(self.kind), name=key_of(document))
            return None
        return None if value is None else _Known(value, _uid_of(document), _version_of(document))

    def _is_old(self, document: Object) -> bool:
        """Whether this or a later version of the same object is known."""
        known = self._known.get(key_of(document))
        if known is None or known.uid != _uid_of(document):
            return False
        version = _version_of(document)
        return version == known.version != "" or _is_newer(known.version, version)


def key_of(document: Object) -> str:
    """`namespace/name`, or the name of what is in no namespace."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _uid_of(document: Object) -> str:
    return str(document["metadata"].get("uid") or "")


def _version_of(document: Object) -> str:
    return str(document["metadata"].get("resourceVersion") or "")


def _is_newer(version: str, than: str) -> bool:
    """By the number that a version is in Kubernetes; nothing is newer than what has no number."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
