"""The fixture `kubelet`: an embedded kubelet in a thread, for plain and async tests."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from ..sim import Kubelet, LeapClock
from .loop_thread import LoopThread, in_thread

__tracebackhide__ = True
_HISTORY = 30  # entries of the journal that are shown with a failed test
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _getter(method: Callable[Concatenate[Kubelet, _P], _T]) -> Callable[Concatenate["BlockingKubelet", _P], _T]:
    """A synchronous method of a Kubelet, called in its thread."""

    @functools.wraps(method)
    def get(self: "BlockingKubelet", /, *args: _P.args, **named: _P.kwargs) -> _T:
        return self._thread.ask(lambda: method(self._inner, *args, **named))

    return get


def _property(inner: Callable[[Kubelet], _T]) -> _T:
    """A property of a Kubelet, read in its thread."""
    read = cast("property", inner).__get__
    return cast("_T", property(lambda self: self._thread.ask(lambda: read(self._inner)), doc=inner.__doc__))


class BlockingKubelet:
    """A `vdev.sim.Kubelet` in a thread, with the same methods.

    In a plain test, methods that take time block. If an event loop runs, they are awaited, as those of a Kubelet.
    Others, such as `node`, `pods` and `findings`, return at once.
    """

    def __init__(self, thread: LoopThread, kubelet: Kubelet, clock: LeapClock) -> None:
        self._thread = thread
        self._inner = kubelet
        self._clock = clock
        self.node_name = kubelet.node_name
        self.root = kubelet.root
        self.device_plugin_dir = kubelet.device_plugin_dir
        self.socket = kubelet.socket
        self.pod_resources_socket = kubelet.pod_resources_socket
        self.journal = kubelet.journal
        self.metrics = kubelet.metrics

    @classmethod
    @contextlib.contextmanager
    def running(cls, thread: LoopThread, **options: Any) -> Iterator[Self]:
        """Run a kubelet in a context. `options` are those of `Kubelet`, except for `clock`."""
        clock = LeapClock()

        async def make() -> Kubelet:
            return await Kubelet(**options, clock=clock).__aenter__()

        kubelet = thread.wait(make())
        try:
            yield cls(thread, kubelet, clock)
        finally:
            thread.wait(kubelet.__aexit__(None, None, None))

    alive = _property(Kubelet.alive)
    ready = _property(Kubelet.ready)
    findings = _property(Kubelet.findings)
    errors = _property(Kubelet.errors)
    events = _property(Kubelet.events)

    node = _getter(Kubelet.node)
    devices = _getter(Kubelet.devices)
    drivers = _getter(Kubelet.drivers)
    listed = _getter(Kubelet.listed)
    pod = _getter(Kubelet.pod)
    pods = _getter(Kubelet.pods)

    wait_until = in_thread(Kubelet.wait_until)
    start = in_thread(Kubelet.start)
    stop = in_thread(Kubelet.stop)
    crash = in_thread(Kubelet.crash)
    restart = in_thread(Kubelet.restart)
    reboot = in_thread(Kubelet.reboot)
    power_off = in_thread(Kubelet.power_off)
    readmit = in_thread(Kubelet.readmit)
    run_pod = in_thread(Kubelet.run_pod)
    delete_pod = in_thread(Kubelet.delete_pod)
    finish_pod = in_thread(Kubelet.finish_pod)
    kill_container = in_thread(Kubelet.kill_container)
    restart_container = in_thread(Kubelet.restart_container)

    def advance(self, seconds: float) -> None:
        """Advance the kubelet's clock."""
        self._thread.ask(lambda: self._clock.advance(seconds))

    def create_object(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create a claim, class, template or slice."""
        return self._thread.do(self._inner.objects.create(document["kind"], document))

    def last_words(self) -> str:
        """The last entries of the journal, as text."""
        return self._thread.ask(lambda: "\n".join(self.journal.history(_HISTORY)))
