"""Controllers of a fleet beside an API server, and commands for them."""

import asyncio
import contextlib
import functools

import pytest

from tests.kit import quick
from tests.kit.fleet import CONFIG
from vdev import cli, config
from vdev.agent.options import Options
from vdev.aio.clock import LeapClock
from vdev.aio.tasks import run_until
from vdev.fleet.controller import Fleet
from vdev.hostfs.watch import Watcher
from vdev.intervals import Intervals


@pytest.fixture
async def watching():
    """Start a watch of files: the first one looks for the C library, which blocks."""
    Watcher().close()


@pytest.fixture
async def start(watching, start_api, directory):
    """Start controllers, each in its own task."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(
            text=CONFIG, *, selector=None, clock=None, run=False, name="vdev-fleet", load=config.load, **more
        ):
            path = directory / "vdev.yaml"
            path.write_text(text)
            clock = clock or LeapClock()
            api = await start_api(clock=clock)
            read = functools.partial(load, [path])
            intervals = Intervals(**quick.INTERVALS | more)
            options = Options(config_files=[path], fault_injection=run, intervals=intervals, clock=clock)
            options = options.model_copy(update={"run_dir": directory / "run" if run else None})
            fleet = Fleet(options, await asyncio.to_thread(read), api, load=read, selector=selector or {}, name=name)
            end = asyncio.Event()
            task = asyncio.create_task(run_until(end, fleet.run()))

            async def stop():
                end.set()
                await task

            stack.push_async_callback(stop)
            fleet.stop = stop
            return fleet

        yield started


@pytest.fixture
def until(api_server):
    """Wait until a condition on the API server's objects holds."""
    return api_server.until


@pytest.fixture
async def vdev(directory, capsys):
    """Run a command against the controller. Returns its exit code and output."""

    async def run(*arguments):
        code = await asyncio.to_thread(cli.main, [*arguments, "--run-dir", str(directory / "run")])
        captured = capsys.readouterr()
        lines = (captured.out + captured.err).splitlines(keepends=True)
        return code, "".join(line for line in lines if not line.startswith("\x1b"))  # without the controller's log

    return run
