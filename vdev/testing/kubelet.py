"""The fixture `kubelet`: an embedded kubelet in a thread, for plain tests and for async ones."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from ..sim import Capacity, DriverStatus, Event, Finding, Kubelet, LeapClock, Phase, PodStatus
from ..sim.journal import Journal, Metrics
from ..sim.scenario_report import history
from .loop_thread import LoopThread

_HISTORY = 30  # things that happened that are shown with a test that failed


class BlockingKubelet:
    """A `vdev.sim.Kubelet`, whose documentation says what each method does.

    In a plain test methods block until they are done; where an event loop runs they return what is to be awaited, as
    those of a Kubelet do. What only looks (`node`, `pods`, `findings` …) answers at once in both.
    """

    def __init__(self, thread: LoopThread, kubelet: Kubelet, clock: LeapClock) -> None:
        self._thread = thread
        self._kubelet = kubelet
        self._clock = clock

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

    # --- places --------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return self._kubelet.root

    @property
    def device_plugin_dir(self) -> Path:
        """Where plugins put their sockets."""
        return self._kubelet.device_plugin_dir

    @property
    def socket(self) -> Path:
        """Where plugins register."""
        return self._kubelet.socket

    @property
    def pod_resources_socket(self) -> Path:
        """Where the PodResources API is served."""
        return self._kubelet.pod_resources_socket

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self._kubelet.node_name

    # --- what it shows -------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the kubelet process runs."""
        return self._thread.ask(lambda: self._kubelet.alive)

    @property
    def ready(self) -> bool:
        """Whether the kubelet has learned of its pods since its start."""
        return self._thread.ask(lambda: self._kubelet.ready)

    def node(self) -> Capacity:
        """Capacity and allocatable of plugin resources in the node status."""
        return self._thread.ask(self._kubelet.node)

    def devices(self) -> Capacity:
        """The same in the device manager, now."""
        return self._thread.ask(self._kubelet.devices)

    def drivers(self) -> dict[str, list[DriverStatus]]:
        """The registered instances of DRA drivers by name."""
        return self._thread.ask(self._kubelet.drivers)

    def listed(self) -> dict[str, dict[str, str]]:
        """The current lists of connected plugins: by resource, health by device id."""
        return self._thread.ask(self._kubelet.listed)

    def pod(self, name: str, *, namespace: str = "default") -> PodStatus:
        """A pod as it is now. KeyError if there is none."""
        return self._thread.ask(lambda: self._kubelet.pod(name, namespace=namespace))

    def pods(self) -> list[PodStatus]:
        """All pods, in the order of their creation."""
        return self._thread.ask(self._kubelet.pods)

    @property
    def findings(self) -> list[Finding]:
        """Mistakes that the real kubelet would not have reported."""
        return self._thread.ask(lambda: self._kubelet.findings)

    @property
    def errors(self) -> list[Finding]:
        """The findings that break something."""
        return self._thread.ask(lambda: self._kubelet.errors)

    @property
    def events(self) -> list[Event]:
        """The Warning events on pods."""
        return self._thread.ask(lambda: self._kubelet.events)

    @property
    def metrics(self) -> Metrics:
        """The kubelet's counters."""
        return self._kubelet.metrics

    @property
    def journal(self) -> Journal:
        """Everything that happened."""
        return self._kubelet.journal

    # --- what happens to it --------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], object], *, timeout: float = 30.0, what: str = "") -> None:
        """Return once `condition()` is true; it is called in the kubelet's thread, and only looks."""
        return self._thread.do(self._kubelet.wait_until(condition, timeout=timeout, what=what))

    def advance(self, seconds: float) -> None:
        """Put the kubelet's clock forward."""
        self._thread.ask(lambda: self._clock.advance(seconds))

    def start(self, *, readmit: bool = True, wait: bool = True) -> None:
        """Start the kubelet."""
        return self._thread.do(self._kubelet.start(readmit=readmit, wait=wait))

    def stop(self) -> None:
        """End as with SIGTERM."""
        return self._thread.do(self._kubelet.stop())

    def crash(self) -> None:
        """End as with kill -9."""
        return self._thread.do(self._kubelet.crash())

    def restart(self, *, wait: bool = True) -> None:
        """Stop and start."""
        return self._thread.do(self._kubelet.restart(wait=wait))

    def reboot(self, *, readmit: bool = True, wait: bool = True) -> None:
        """Reboot the node."""
        return self._thread.do(self._kubelet.reboot(readmit=readmit, wait=wait))

    def power_off(self) -> None:
        """Shut down the node."""
        return self._thread.do(self._kubelet.power_off())

    def readmit(self) -> None:
        """Admit every pod that has not ended."""
        return self._thread.do(self._kubelet.readmit())

    # --- pods ----------------------------------------------------------------------------------------------------

    def run_pod(self, manifest: Mapping[str, Any], *, numa_affinity: Iterable[int] | None = None) -> PodStatus:
        """Create a pod, admit it and start its containers; its status after that."""
        return self._thread.do(self._kubelet.run_pod(manifest, numa_affinity=numa_affinity))

    def delete_pod(self, name: str, *, namespace: str = "default", force: bool = False) -> None:
        """Delete a pod."""
        return self._thread.do(self._kubelet.delete_pod(name, namespace=namespace, force=force))

    def finish_pod(self, name: str, *, namespace: str = "default", phase: Phase = Phase.SUCCEEDED) -> PodStatus:
        """End all containers of the pod."""
        return self._thread.do(self._kubelet.finish_pod(name, namespace=namespace, phase=phase))

    def kill_container(self, pod: str, container: str | None = None, *, namespace: str = "default") -> PodStatus:
        """Kill a container."""
        return self._thread.do(self._kubelet.kill_container(pod, container, namespace=namespace))

    def restart_container(self, pod: str, container: str | None = None, *, namespace: str = "default") -> PodStatus:
        """Restart a container."""
        return self._thread.do(self._kubelet.restart_container(pod, container, namespace=namespace))

    def create_object(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create an object of DRA: a claim, a class, a template, a slice."""
        return self._thread.do(self._kubelet.objects.create(document["kind"], document))

    def last_words(self) -> str:
        """The last things that happened, as text."""
        return self._thread.ask(lambda: "\n".join(history(list(self.journal.entries))[-_HISTORY:]))
