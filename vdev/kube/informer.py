"""`Informer`: a copy of the objects of one kind, kept up to date by a list and a watch from its version.

    list ──► watch ──► added, changed, deleted … ─┬─ after four to six minutes ──► watch from the last version
      ▲                                           │
      ├────────── pause ◄── 410: it is forgotten ─┤
      └─ trouble, pause ◄── broken, or refused ───┘

So a connection that is silently dead is replaced within six minutes.

`wrote` puts the response to a write into the copy. The watch or a list may still deliver older versions of that object
later; they are ignored.
"""

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from ..aio.tasks import Backoff
from ..errors import ApiServerError
from .api import Api
from .errors import Expired, Unconfigured, Unreachable
from .objects import Object, ObjectKind, key_of

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """The part of an object that is kept, with the key and version of the object."""

    key: str
    value: T
    version: str


class Informer(Generic[T]):
    """The objects of a kind that match the field selector.

    `keep` returns the part of an object to keep, or None to leave the object out. `index` returns the words under which
    `indexed` finds a kept value.
    `on_change` is called for each new version with the old and the new kept value (None: not in the copy).
    `on_look` is called after each list, and when `trouble` changes.
    """

    def __init__(
        self,
        api: Api,
        kind: ObjectKind,
        *,
        keep: Callable[[Object], T | None],
        index: Callable[[T], Collection[str]] = lambda value: (),
        on_change: Callable[[T | None, T | None], None],
        on_look: Callable[[], None] = lambda: None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.trouble: ApiServerError | None = None  # why the copy may be out of date
        self.is_listed = False
        self._api = api
        self._keep = keep
        self._index = index
        self._on_change = on_change
        self._on_look = on_look
        self._fields = fields
        self._known: dict[str, _Known[T]] = {}
        self._indexed: defaultdict[str, dict[str, T]] = defaultdict(dict)  # by word and key
        self._version = ""  # the newest one that the list or the watch has delivered
        self.looked = asyncio.Event()  # the first attempt to list the objects has succeeded or failed
        self.answered = asyncio.Event()  # they were listed, or the server refused it

    # --- the copy -----------------------------------------------------------------------------------------------------

    @property
    def objects(self) -> dict[str, T]:
        """The kept values by `namespace/name`, or by name for kinds without namespaces."""
        return {key: each.value for key, each in tuple(self._known.items())}  # copied first: threads read this, too

    def get(self, key: str) -> T | None:
        known = self._known.get(key)
        return None if known is None else known.value

    def indexed(self, word: str) -> tuple[T, ...]:
        """The kept values for which `index` returned this word."""
        return tuple(self._indexed.get(word, {}).values())

    def wrote(self, document: Object) -> None:
        """Put the object that the server returned for a write into the copy."""
        is_new = not self._version or _is_newer(_version_of(document), self._version)
        if is_new or key_of(document) in self._known:  # otherwise it has been deleted since
            self._see(document)

    def removed(self, key: str) -> None:
        """Remove an object from the copy, because the server answered that it does not exist."""
        self._replace(key, None)

    # --- list and watch -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch the objects until cancelled."""
        intervals, clock = self._api.connection.timing
        backoff = Backoff(intervals.api_pause_first, intervals.api_pause_most)
        failures, must_list = 0, True
        while True:
            begun, trouble = clock.now(), None
            try:
                if must_list:
                    await self._list()
                must_list = False
                await self._watch()
            except ApiServerError as failed:
                trouble, must_list = failed, True
            failures = failures + 1 if trouble and clock.now() - begun < intervals.steady else 0
            if trouble is not None and not isinstance(trouble, Expired):
                self._look(trouble)
            if trouble is not None:
                await clock.sleep(max(backoff.pause(max(0, failures - 1)), trouble.wait))

    async def _list(self) -> None:
        """Replace the copy by a new list of the objects."""
        found, version = await self._api.list(self.kind, fields=self._fields, keep=self._kept)
        listed = {each.key: each for each in found if each is not None}
        is_restored = _is_newer(self._version, version)  # etcd was restored or replaced, so versions start again
        self._version = version
        for key in self._known.keys() | listed.keys():
            new, old = listed.get(key), self._known.get(key)
            # A listed version that is older than the known one predates the answer to a write.
            if is_restored or old is None or _is_newer(new.version if new else version, old.version):
                self._replace(key, new)
        self.is_listed = True
        self._look(None)

    async def _watch(self) -> None:
        """Apply changes to the copy for some minutes."""
        # Jitter, so that the agents of all nodes do not list at the same time.
        seconds = self._api.connection.timing.intervals.api_watch * random.uniform(1.0, 1.5)
        watch = self._api.watch(self.kind, fields=self._fields, version=self._version)
        with contextlib.suppress(TimeoutError):
            async with self._api.connection.timing.clock.timeout(seconds), contextlib.aclosing(watch) as events:
                async for event, document in events:
                    self._see(document, is_deleted=event == "DELETED")
                    self._version = _version_of(document)

    def _look(self, trouble: ApiServerError | None) -> None:
        """Record and log why the copy may be out of date; None: it is up to date."""
        is_other = str(trouble or "") != str(self.trouble or "")
        if is_other and trouble is not None:
            level = logging.INFO if isinstance(trouble, Unconfigured) else logging.WARNING  # many have no account
            log.log(level, "objects cannot be watched", kind=self.kind.plural, reason=str(trouble))
        elif is_other:
            log.info("objects can be watched again", kind=self.kind.plural)
        self.trouble = trouble
        if not isinstance(trouble, Unreachable | Unconfigured):
            self.answered.set()
        if is_other or not self.looked.is_set():
            self.looked.set()
            self._on_look()

    def _see(self, document: Object, *, is_deleted: bool = False) -> None:
        """Put an object into the copy or remove it, unless the copy has this version or a newer one."""
        known = self._known.get(key_of(document))
        if known is None or _is_newer(_version_of(document), known.version):
            self._replace(key_of(document), None if is_deleted else self._kept(document))

    def _replace(self, key: str, new: _Known[T] | None) -> None:
        old = self._known.pop(key, None)
        for word in self._index(old.value) if old else ():
            del self._indexed[word][key]
        if new is not None:
            self._known[key] = new
            for word in self._index(new.value):
                self._indexed[word][key] = new.value
        if old is not None or new is not None:
            self._on_change(old.value if old else None, new.value if new else None)

    def _kept(self, document: Object) -> _Known[T] | None:
        """Call `keep`. An object for which it raises, such as a pod with an invalid annotation, is left out."""
        try:
            value = self._keep(document)
        except Exception:
            log.exception("an object is left out", kind=self.kind.plural, name=key_of(document))
            return None
        return None if value is None else _Known(key_of(document), value, _version_of(document))


def _version_of(document: Object) -> str:
    return str(document["metadata"].get("resourceVersion") or "")


def _is_newer(version: str, than: str) -> bool:
    """Compare resource versions, which are numbers in Kubernetes. Versions of another form are never newer."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
