"""The types of the fixtures of `vdev.pytest_plugin`, for annotations and for your own fixtures.

A kubelet runs in a thread, and `vdev run` in a process. In a plain test, their methods block. In an async test, methods
that take time are awaited, so annotate a `BlockingKubelet` as `vdev.sim.Kubelet` there, and a `BlockingAgent` as
`Agent`.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import yaml

from .agent import command_socket
from .errors import SocketError, VdevError
from .hostfs import write_atomic
from .sim import Kubelet, LeapClock
from .sim.scenarios.plugin_process import PluginPlaces, VdevRun
from .sim.scenarios.scenario import ScenarioError

__all__ = ["Agent", "BlockingAgent", "BlockingKubelet", "LoopThread"]

__tracebackhide__ = True  # pytest shows the line of the test, not the lines of this module

Configuration = str | Path | Mapping[str, Any]
"""A configuration as text, as a file, or as a mapping."""

_READY_SECONDS = 30.0
_POLL_SECONDS = 0.02
_TAIL = 4_000  # characters of the agent's log that are shown with a failed test
_HISTORY = 30  # entries of the journal that are shown with a failed test
_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """An event loop in a separate thread, which runs while a test blocks or runs its own loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="vdev's event loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread, and block until it is done. If an event loop runs, return an awaitable."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a condition of wait_until cannot call methods that take time")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _result(future)
        return cast("_T", asyncio.wrap_future(future))

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread, and block until it is done, even if an event loop runs here."""
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def ask(self, look: Callable[[], _T]) -> _T:
        """Call a function that does not block in the thread, or here if the thread has ended."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            return look()

        async def ask() -> _T:
            return look()

        return self.wait(ask())

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


def in_thread(method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]) -> Callable[Concatenate[Any, _P], _T]:
    """An async method of `self._inner`, run by `LoopThread.do`."""

    @functools.wraps(method)
    def do(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return cast("_T", self._thread.do(method(self._inner, *args, **named)))

    return do


def _result(future: concurrent.futures.Future[_T]) -> _T:
    try:
        error = future.exception()
    except BaseException:  # such as Ctrl-C
        future.cancel()
        raise
    if isinstance(error, (VdevError, TimeoutError)):
        raise error.with_traceback(None) from None  # a test needs its text, not a traceback inside of vdev
    if error is not None:
        raise error
    return future.result()


# --- the kubelet ------------------------------------------------------------------------------------------------------


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
        kubelet = Kubelet(**options, clock=clock)
        thread.wait(kubelet.__aenter__())
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


# --- the agent --------------------------------------------------------------------------------------------------------


class Agent:
    """A `vdev run` process. Its methods are awaited."""

    def __init__(self, places: PluginPlaces, kubelet: BlockingKubelet) -> None:
        self._places = places
        self._kubelet = kubelet
        self._process = VdevRun(places)

    async def start(self) -> None:
        """Start the agent, and wait until the node shows its devices. Raises VdevError with the log."""
        await self._process.start()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await self._serves():
                    await self._process.check()
                    await self._kubelet.journal.next_change(at_most=_POLL_SECONDS)
        except ScenarioError as ended:
            words = self.errors() or self.log()[-_TAIL:]
            raise VdevError(f"{words}\n{str(ended).partition(';')[0]}".lstrip()) from None
        except TimeoutError:
            text = f"vdev run was not ready within {_READY_SECONDS:g} s; its log ends with\n{self.log()[-_TAIL:]}"
            raise VdevError(f"{self.errors()}\n{text}".lstrip()) from None

    async def stop(self) -> None:
        """Stop the agent with SIGTERM. Raises VdevError if it exits with an error."""
        await self._process.stop()

    async def kill(self) -> None:
        """Kill the agent with SIGKILL."""
        await self._process.kill()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def edit(self, configuration: Configuration) -> None:
        """Replace the agent's configuration file. `kubelet.wait_until` waits for the effect."""
        await asyncio.to_thread(_write, self._places.configuration, configuration)

    async def status(self) -> dict[str, Any]:
        """The output of `vdev status --output json`."""
        answer: dict[str, Any] = await command_socket.ask(self._places.run_dir, {"do": "status"})
        return answer

    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._places.log.read_text(errors="replace")
        return ""

    def errors(self) -> str:
        """The errors in the log, and lines that are not log entries, such as an error at the start."""
        found = []
        for line in self.log().splitlines():
            try:
                entry = json.loads(line)
                if entry["level"] == "error":
                    found += [f"{entry['event']}: {each}" for each in entry.get("problems") or [entry.get("error")]]
            except (ValueError, LookupError, TypeError):
                found.append(line)
        return "\n".join(found)[-_TAIL:]

    async def _serves(self) -> bool:
        try:
            status = await self.status()
        except SocketError:
            return False
        node, resources = self._kubelet.node(), status["resources"]
        shown = {name: (count, node.allocatable.get(name)) for name, count in node.capacity.items()}
        return bool(status["ready"]) and all(
            shown.get(each["name"]) == (each["capacity"], each["allocatable"]) for each in resources
        )


class BlockingAgent:
    """An `Agent` whose methods block in a plain test, and are awaited if an event loop runs."""

    def __init__(self, thread: LoopThread, agent: Agent, run_dir: Path, cdi_dir: Path) -> None:
        self._thread = thread
        self._inner = agent
        self.run_dir = run_dir
        self.cdi_dir = cdi_dir

    @classmethod
    @contextlib.contextmanager
    def running(cls, thread: LoopThread, kubelet: BlockingKubelet, configuration: Configuration) -> Iterator[Self]:
        """Run an agent in a context. Raises VdevError if it does not start or exits with an error."""
        directory = Path(tempfile.mkdtemp(prefix="vdev-"))  # short enough for sockets, unlike the test's directory
        places = PluginPlaces.below(directory, kubelet_dir=kubelet.root, node_name=kubelet.node_name)
        agent = Agent(places, kubelet)
        try:
            _write(places.configuration, configuration)
            try:
                thread.wait(agent.start())
                yield cls(thread, agent, places.run_dir, places.cdi_dir)
            finally:
                thread.wait(agent.stop())
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    start = in_thread(Agent.start)
    stop = in_thread(Agent.stop)
    kill = in_thread(Agent.kill)
    restart = in_thread(Agent.restart)
    edit = in_thread(Agent.edit)
    status = in_thread(Agent.status)

    def log(self) -> str:
        return self._inner.log()

    def errors(self) -> str:
        return self._inner.errors()

    def last_words(self) -> str:
        return self.log()[-_TAIL:]


def _write(path: Path, configuration: Configuration) -> None:
    """Replace a configuration by a rename, as editors do. Blocks."""
    match configuration:
        case Path():
            text = configuration.read_text()
        case str():
            text = configuration
        case _:
            text = yaml.safe_dump(dict(configuration))
    write_atomic(path, text.encode())
