"""What the servers ask the agent: preferences, actions before a start, and the record of requests in flight.

The record is what keeps a removal safe: an id that an unfinished Allocate names is never dropped.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from ..aio.clock import Clock
from ..core.allocation import preferred
from ..core.inventory.resources import Resource
from ..core.model.device import Key
from ..observe.metrics import Metrics

_Named = TypeVar("_Named")
_LARGE = 256  # available devices above which a choice is made in a thread, so that other resources do not wait


class Handovers(Protocol):
    """What is done when devices change hands."""

    async def allocated(self, resource: Resource, ids: Sequence[str]) -> None:
        """A request was granted, for a resource with something to do then."""

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done before a container with these slots starts."""


class _InFlight(Generic[_Named]):
    """What a request names is noted while it lasts. A class, since a generator takes three times as long."""

    __slots__ = ("_named", "_noted")

    def __init__(self, noted: "dict[_InFlight[_Named], Sequence[_Named]]", named: Sequence[_Named]) -> None:
        self._noted = noted
        self._named = named

    def __enter__(self) -> None:
        self._noted[self] = self._named

    def __exit__(self, *_error: object) -> None:
        del self._noted[self]


class Requests:
    """Answers the servers of all resources; `plugin.servicer.RequestHandler` says what it must know."""

    def __init__(
        self,
        metrics: Metrics,
        handovers: Handovers,
        *,
        allocate_deadline: float,
        on_allocated: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.allocate_deadline = allocate_deadline
        self.allocated_at: dict[Key, float] = {}
        self._metrics = metrics
        self._handovers = handovers
        self._on_allocated = on_allocated
        self._clock = clock
        self._flying: dict[_InFlight[Key], Sequence[Key]] = {}  # what each unfinished RPC names
        self._choosing: dict[_InFlight[str], Sequence[str]] = {}  # the same by resource, where it may be about any id
        self._allocators: dict[str, tuple[Resource, preferred.Allocator]] = {}

    def in_flight(self, resources: Sequence[Resource]) -> frozenset[Key]:
        """Ids that an unfinished RPC names; while the kubelet asks for a preference, all of that resource."""
        if not self._flying and not self._choosing:
            return frozenset()
        choosing = set(itertools.chain.from_iterable(self._choosing.values()))
        chosen_from = (resource for resource in resources if resource.name in choosing)
        chosen = ((resource.name, slot.id) for resource in chosen_from for slot in resource.slots)
        return frozenset(itertools.chain(chosen, *self._flying.values()))

    async def prefer(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """The devices to prefer for a container, by the resource's policy."""
        known = self._allocators.get(resource.name)
        if known is None or known[0] is not resource:
            known = (resource, preferred.allocator_for(resource))
            self._allocators[resource.name] = known
        choose = known[1].prefer
        if len(available) < _LARGE:
            return choose(available, required, size)
        return await asyncio.to_thread(choose, available, required, size)

    def in_request(self, resource: str, ids: Sequence[str] | None) -> AbstractContextManager[None]:
        """While the context lasts, a request that names these ids (None: any of the resource) is in flight."""
        if ids is None:
            return _InFlight(self._choosing, [resource])
        return _InFlight(self._flying, list(zip(itertools.repeat(resource), ids)))

    def allocated(self, resource: Resource, ids: Sequence[str]) -> None:
        """Note a granted request: from now on a pod may hold these."""
        keys = zip(itertools.repeat(resource.name), ids)
        self.allocated_at.update(dict.fromkeys(keys, self._clock.now()))
        self._on_allocated()

    async def handed_over(self, resource: Resource, ids: Sequence[str]) -> None:
        """Who held these before has ended; for a resource that acts on handovers."""
        await self._handovers.allocated(resource, ids)

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget granted requests: it is known by now what became of them."""
        for key in keys:
            self.allocated_at.pop(key, None)

    def forget_resource(self, resource: str) -> None:
        """Forget what was prepared for a resource that is gone."""
        self._allocators.pop(resource, None)

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what the entries say must be done before a container starts. Raises ActionFailed."""
        await self._handovers.pre_start(resource, ids)

    def observe_rpc(self, rpc: str, resource: str, code: str, seconds: float) -> None:
        self._metrics.rpc.labels(rpc, resource, code).observe(seconds)
