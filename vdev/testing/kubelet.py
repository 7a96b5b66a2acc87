"""The fixture `kubelet`: an embedded kubelet in a thread, for plain tests and for async ones."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from ..sim import Kubelet, LeapClock
from .loop_thread import LoopThread, done

__tracebackhide__ = True
_HISTORY = 30  # things that happened that are shown with a test that failed
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _asked(method: Callable[Concatenate[Kubelet, _P], _T]) -> Callable[Concatenate["BlockingKubelet", _P], _T]:
    """A method of a Kubelet that only looks, called in its thread."""

    @functools.wraps(method)
    def ask(self: "BlockingKubelet", /, *args: _P.args, **named: _P.kwargs) -> _T:
        return self._thread.ask(lambda: method(self._inner, *args, **named))

    return ask


def _shown(shown: Callable[[Kubelet], _T]) -> _T:
    """A property of a Kubelet, read in its thread."""
    read = cast("property", shown).__get__
    return cast("_T", property(lambda self: self._thread.ask(lambda: read(self._inner)), doc=shown.__doc__))


class BlockingKubelet:
    """A `vdev.sim.Kubelet`, whose documentation says what each method does.

    In a plain test methods block until they are done; where an event loop runs they return what is to be awaited, as
    those of a Kubelet do. What only looks (`node`, `pods`, `findings` …) answers at once in both.
    """

    def __init__(self, thread: LoopThread, kubelet: Kubelet, clock: LeapClock) -> None:
        self._thread = thread
        self._inner = kubelet
        self._clock = clock
        self.node_name = kubelet.node_name
        self.journal = kubelet.journal

    @classmethod
    @contextlib.contextmanager
    def running(cls, thread: LoopThread, **options: Any) -> Iterator[Self]:
        """One that runs while the context lasts. `options` are those of a Kubelet, but for `clock`."""
        clock = LeapClock()

        async def make() -> Kubelet:
            return await Kubelet(**options, clock=clock).__aenter__()

        kubelet = thread.wait(make())
        try:
            yield cls(thread, kubelet, clock)
        finally:
            thread.wait(kubelet.__aexit__(None, None, None))

    root = _shown(Kubelet.root)
    device_plugin_dir = _shown(Kubelet.device_plugin_dir)
    socket = _shown(Kubelet.socket)
    pod_resources_socket = _shown(Kubelet.pod_resources_socket)
    alive = _shown(Kubelet.alive)
    ready = _shown(Kubelet.ready)
    findings = _shown(Kubelet.findings)
    errors = _shown(Kubelet.errors)
    events = _shown(Kubelet.events)
    metrics = _shown(Kubelet.metrics)

    node = _asked(Kubelet.node)
    devices = _asked(Kubelet.devices)
    drivers = _asked(Kubelet.drivers)
    listed = _asked(Kubelet.listed)
    pod = _asked(Kubelet.pod)
    pods = _asked(Kubelet.pods)

    wait_until = done(Kubelet.wait_until)
    start = done(Kubelet.start)
    stop = done(Kubelet.stop)
    crash = done(Kubelet.crash)
    restart = done(Kubelet.restart)
    reboot = done(Kubelet.reboot)
    power_off = done(Kubelet.power_off)
    readmit = done(Kubelet.readmit)
    run_pod = done(Kubelet.run_pod)
    delete_pod = done(Kubelet.delete_pod)
    finish_pod = done(Kubelet.finish_pod)
    kill_container = done(Kubelet.kill_container)
    restart_container = done(Kubelet.restart_container)

    def advance(self, seconds: float) -> None:
        """Put the kubelet's clock forward."""
        self._thread.ask(lambda: self._clock.advance(seconds))

    def create_object(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create an object of DRA: a claim, a class, a template, a slice."""
        return self._thread.do(self._inner.objects.create(document["kind"], document))

    def last_words(self) -> str:
        """The last things that happened, as text."""
        return self._thread.ask(lambda: "\n".join(self.journal.history(_HISTORY)))
