"""What the servers of all resources share: handover actions, and which requests are in flight.

That keeps a removal safe: an id that an unfinished Allocate names is never dropped.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from ..model.device import Key
from ..observe.metrics import Metrics
from ..planning.resources import Resource

_LARGE = 256  # available devices above which a choice is made in a thread, so that other resources do not wait


HandoverAction = Callable[[Resource, Sequence[str]], Awaitable[None]]
"""What is done when these slots of a resource change hands."""


class Requests:
    """The requests of the kubelet that are being answered, for all resources.

    `handed_over` is called when a request was granted, before the answer, for a resource that acts on it; `pre_start`
    before a container starts, and raises ActionFailed. `on_granted` is called with the devices of each Allocate that is
    granted: from now on a pod may hold them. After `allocate_deadline` seconds an Allocate or a preference is given up;
    the kubelet itself has no deadline.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        handed_over: HandoverAction,
        pre_start: HandoverAction,
        allocate_deadline: float,
        on_granted: Callable[[Collection[Key]], None],
    ) -> None:
        self.handed_over = handed_over
        self.pre_start = pre_start
        self.on_granted = on_granted
        self.allocate_deadline = allocate_deadline
        self.metrics = metrics
        self._in_flight: dict[object, Sequence[Key]] = {}  # the devices that each unfinished RPC names

    @property
    def in_flight(self) -> frozenset[Key]:
        """Ids that an unfinished RPC names; while the kubelet asks for a preference, those that it can choose from."""
        return frozenset(itertools.chain(*self._in_flight.values()))

    async def prefer(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """The devices to prefer for a container, by the resource's policy."""
        if len(available) < _LARGE:
            return resource.allocator.prefer(available, required, size)
        return await asyncio.to_thread(lambda: resource.allocator.prefer(available, required, size))

    @contextmanager
    def in_request(self, keys: Sequence[Key]) -> Iterator[None]:
        """While the context lasts, a request that names these devices is in flight."""
        call = object()
        self._in_flight[call] = keys
        try:
            yield
        finally:
            del self._in_flight[call]
