"""What all servers share: preferences, what is done when a device changes hands, the record of requests in flight.

The record is what keeps a removal safe: an id that an unfinished Allocate names is never dropped.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ..aio.clock import Clock
from ..model.device import Key
from ..observe.metrics import Metrics
from ..planning import preferred
from ..planning.resources import Resource

_LARGE = 256  # available devices above which a choice is made in a thread, so that other resources do not wait


HandoverAction = Callable[[Resource, Sequence[str]], Awaitable[None]]
"""What is done when these slots of a resource change hands."""


class Requests:
    """Answers the servers of all resources.

    `handed_over` is called when a request was granted, before the answer, for a resource that acts on it; `pre_start`
    before a container starts, and raises ActionFailed. After `allocate_deadline` seconds an Allocate or a preference is
    given up; the kubelet itself has no deadline.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        handed_over: HandoverAction,
        pre_start: HandoverAction,
        allocate_deadline: float,
        on_allocated: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.handed_over = handed_over
        self.pre_start = pre_start
        self.allocate_deadline = allocate_deadline
        self.allocated_at: dict[Key, float] = {}
        self._metrics = metrics
        self._on_allocated = on_allocated
        self._clock = clock
        self._flying: dict[object, Sequence[Key]] = {}  # what each unfinished RPC names
        self._allocators: dict[str, tuple[Resource, preferred.Allocator]] = {}  # made once for each state of a resource

    @property
    def in_flight(self) -> frozenset[Key]:
        """Ids that an unfinished RPC names; while the kubelet asks for a preference, those that it can choose from."""
        return frozenset(itertools.chain(*self._flying.values()))

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

    @contextmanager
    def in_request(self, resource: str, ids: Iterable[str]) -> Iterator[None]:
        """While the context lasts, a request that names these ids is in flight."""
        call = object()
        self._flying[call] = [(resource, each) for each in ids]
        try:
            yield
        finally:
            del self._flying[call]

    def allocated(self, resource: Resource, ids: Sequence[str]) -> None:
        """Note a granted request: from now on a pod may hold these."""
        self.allocated_at |= dict.fromkeys([(resource.name, each) for each in ids], self._clock.now())
        self._on_allocated()

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget granted requests: it is known by now what became of them."""
        for key in keys:
            self.allocated_at.pop(key, None)

    def forget_resource(self, resource: str) -> None:
        """Forget what was prepared for a resource that is gone."""
        self._allocators.pop(resource, None)

    def observe_rpc(self, rpc: str, resource: str, code: str, seconds: float) -> None:
        self._metrics.rpc.labels(rpc, resource, code).observe(seconds)
