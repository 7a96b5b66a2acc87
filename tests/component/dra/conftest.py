"""DRA drivers over real sockets, beside an API server of the tests and the kubelet's side of them."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import structlog

from tests.kit import dra, quick
from tests.kit.blocking import no_blocking
from vdev.agent.retry import Retrier
from vdev.aio.clock import LeapClock, Timing
from vdev.dra.checkpoint import Places
from vdev.dra.driver import DraDriver, DriverState
from vdev.intervals import Intervals
from vdev.kube.api import Api
from vdev.observe.metrics import Metrics

DRIVER = "gpu.acme.dev"
DEVICES = {f"gpu-{number}": dra.device(f"GPU-{number}", number) for number in range(3)}  # the last one is in shares


@dataclass(slots=True)
class Running:
    """A running driver."""

    driver: DraDriver
    clock: LeapClock
    retrier: Retrier
    logs: list = field(default_factory=list)
    told: list = field(default_factory=list)  # its state at each call of `on_change`
    task: asyncio.Task = None

    def publish(self, health):
        """Publish only these devices, with their health by name."""
        pool = self.driver.claims.pool
        self.driver.update(
            replace(pool, devices=tuple(replace(pool.by_name[name], health=each) for name, each in health.items()))
        )

    async def until(self, condition):
        """Wait until the condition holds. Raises the driver's error if it ends."""
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.005)
                if self.task.done():
                    await self.task

    async def stop(self):
        """End it."""
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def kubelet(directory):
    """The kubelet's side of the sockets below its directory."""
    async with dra.Kubelet(directory / "kubelet") as running:
        yield running


@pytest.fixture
def cdi_dir(directory):
    """The directory of the CDI specifications."""
    return directory / "cdi"


@pytest.fixture
async def start_driver(kubelet, cdi_dir):
    """Start a driver; `wait` until it serves. `api` is the tests' API server unless another one, or None, is given."""
    async with contextlib.AsyncExitStack() as stack:
        logs = stack.enter_context(structlog.testing.capture_logs())
        stack.enter_context(no_blocking())

        async def start(api, *, pod_uid="", faults=None, wait=True, name=DRIVER, kubelet_dir=None, **intervals):
            clock = LeapClock()
            timing = Timing(
                Intervals(**quick.INTERVALS | {"look_at_driver": 0.2, "repeat_health": 1000.0} | intervals), clock
            )
            retrier = Retrier(timing=timing)
            agent = dra.agent(
                api or Api(None),
                timing,
                faults=SimpleNamespace(engine=faults or dra.NoFaults()),
                metrics=Metrics(),
                on_claims=lambda: running.told.append(driver.state),
                retrier=retrier,
            )
            root = kubelet_dir or kubelet.directory
            driver = DraDriver(agent, Places(driver=name, kubelet_dir=root, cdi_dir=cdi_dir, pod_uid=pod_uid), {})
            driver.claims.pool = dra.pool(name, DEVICES, dra.resource(*DEVICES.values()), shared={"gpu-2"})
            running = Running(driver, clock, retrier, logs)
            running.task = asyncio.create_task(driver.run(), name=f"driver {name}")
            stack.push_async_callback(_end, running)
            if wait:
                await running.until(lambda: driver.state not in (DriverState.STARTING, DriverState.FAILING))
            return running

        yield start


async def _end(running):
    if not running.task.done():
        await running.stop()


@pytest.fixture
def allocate(api_server):
    """Create an allocated ResourceClaim, as the scheduler leaves it."""

    async def make(name, *results, driver=DRIVER, **more):
        document = dra.claim(name, *results, driver=driver, **more)
        status = document.pop("status")
        return await api_server.add("resourceclaims", document, namespace="default", status=status)

    return make
