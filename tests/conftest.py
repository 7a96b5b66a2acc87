"""What every test starts from: one seed for the whole run, and a process that no earlier test has configured."""

import functools
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest
import structlog

from tests.kit import forkserver

# No deadline and no complaint that generation is slow: both go by the clock of a machine that may be busy, and the
# first text that a process draws waits for Hypothesis to make its tables of Unicode, a second or two where no earlier
# run has left them. Fresh examples everywhere, also where Hypothesis would notice a CI system and draw the same ones:
# a run takes a few, for there are many runs, and `make properties` of each night takes thousands.
hypothesis.settings.register_profile(
    "vdev",
    max_examples=int(os.environ.get("VDEV_EXAMPLES", "10")),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=False,
    print_blob=True,
)
hypothesis.settings.load_profile("vdev")


def pytest_addoption(parser):
    """Add what lets tests run that take long and that only a change of the packaging can fail."""
    parser.addoption("--install", action="store_true", help="run the tests that install packages, too")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Let the order of tests, `random` and Hypothesis follow from one number, also in the workers of a run."""
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = random.SystemRandom().randrange(2**32)
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = _seed(config)
    if hasattr(config, "workerinput"):
        config.option.randomly_reorganize = False  # pytest_collection_modifyitems below mixes all of them
    if config.getoption("numprocesses", None):  # before the workers begin
        forkserver.share(config.args)


@pytest.hookimpl(tryfirst=True)  # before the workers begin, which are told the place
def pytest_sessionstart(session):
    """Let pytest's own directories be in memory, too, unless somebody names a place for them."""
    variable = "PYTEST_DEBUG_TEMPROOT"
    if (place := _in_memory()) is not None and variable not in os.environ:
        os.environ[variable] = place
        session.config._tmp_path_factory.getbasetemp()  # as pytest-xdist asks; where it is named that is taken
        del os.environ[variable]  # what tests start has not asked for that


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Begin the workers as copies of one process: to import all tests takes longer than to collect them."""
    import execnet

    program = shlex.quote(forkserver.python())
    specs[:] = [execnet.XSpec(f"{each}//python={program}") if each.popen else each for each in specs]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Three workers per processor: half of a test is waiting for processes, for sockets, for real time."""
    return 3 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_runtest_setup(item):
    """Install nothing that nobody asked for."""
    if item.get_closest_marker("install") and not item.config.getoption("--install"):
        pytest.skip("it installs packages: `make test-install` runs it")


def pytest_collection_modifyitems(config, items):
    """In a run of several workers mix all modules, and spread the long tests evenly over the first half.

    Tests of one module wait alike, or work alike: where all workers have them at the same time the processors have
    nothing to do, or too much. At the end nobody waits for a long one.
    """
    if not hasattr(config, "workerinput"):
        return
    if (seed := _seed(config)) is not None:
        random.Random(seed).shuffle(items)  # each worker has the same order
    long = [item for item in items if item.get_closest_marker("long")]
    if not long:
        return
    short = [item for item in items if not item.get_closest_marker("long")]
    share = len(short) // 2 // len(long)
    items[:] = [each for number, item in enumerate(long) for each in (item, *short[number * share :][:share])]
    items += short[len(long) * share :]


def pytest_terminal_summary(terminalreporter, config):
    """Say the number that repeats this run; the header, which says it too, is not shown with `-q`."""
    if _seed(config) is not None:
        terminalreporter.write_line(f"repeat this run with --randomly-seed={_seed(config)}")


def _seed(config):
    """The run's number; None without pytest-randomly."""
    return getattr(config, "workerinput", {}).get("randomly_seed") or config.getoption("randomly_seed", None)


@pytest.fixture(scope="session", autouse=True)
def _grpc_engine():
    """Keep gRPC's engine as long as the process lives, as an agent does.

    Where the last channel or server that is garbage ends it, that waits for a thread in whatever test runs at that
    moment, and leaves the engine's sockets unclosed to the next one.
    """
    import grpc.aio

    grpc.aio.init_grpc_aio()


@pytest.fixture
def prepared_python(monkeypatch):
    """What vdev starts from this process as `python -m vdev` need not begin with nothing."""
    monkeypatch.setattr(sys, "executable", forkserver.python())


@pytest.fixture
def directory():
    """A directory whose path is short enough for sockets wherever `tmp_path` is, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="vd-", dir=_in_memory()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@functools.cache
def _in_memory():
    """Where directories are in memory, if programs and device nodes work there as on a disk, and there is room.

    To sync and to remove files costs a disk some 30 ms a test, and a busy one more.
    """
    place = "/dev/shm"
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    works = not found.f_flag & (os.ST_RDONLY | os.ST_NOEXEC | os.ST_NODEV) and os.access(place, os.W_OK)
    return place if works and found.f_bavail * found.f_frsize > 2**30 else None


@pytest.fixture(autouse=True)
def _as_if_new():
    """Undo what a command run in this process does to it: logging onto a captured stream, signal handlers.

    Where nothing was configured, traces are logged as plain text: drawing one in colours takes longer than the test.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    yield
    structlog.reset_defaults()
    for number, handler in handlers.items():
        signal.signal(number, handler)
