"""Hooks and fixtures of all tests: one seed for the whole run, parallel workers, and a clean process for each test."""

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

# There is no deadline and no check for slow generation, because the machine may be busy, and because the first text of
# a process takes a second or two if Hypothesis has to make its tables of Unicode. Examples are new in each run, also in
# CI: a run takes few of them, and `make properties` takes thousands each night.
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
    """Add an option for slow tests that only a change of the packaging can break."""
    parser.addoption("--install", action="store_true", help="run the tests that install packages, too")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Derive the order of tests, `random` and Hypothesis from one number, also in workers."""
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = random.SystemRandom().randrange(2**32)
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = _seed(config)
    if hasattr(config, "workerinput"):
        config.option.randomly_reorganize = False  # pytest_collection_modifyitems below shuffles all tests
    if config.getoption("numprocesses", None):  # before the workers start
        forkserver.share(config.args)


@pytest.hookimpl(tryfirst=True)  # before the workers start, which get the path
def pytest_sessionstart(session):
    """Put pytest's own directories into memory too, unless the environment sets a directory for them."""
    variable = "PYTEST_DEBUG_TEMPROOT"
    if (place := _in_memory()) is not None and variable not in os.environ:
        os.environ[variable] = place
        session.config._tmp_path_factory.getbasetemp()  # remembers the path, also for pytest-xdist
        del os.environ[variable]  # processes that tests start do not inherit it


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Start the workers as copies of one process, because importing all tests takes longer than collecting them."""
    import execnet

    program = shlex.quote(forkserver.python())
    specs[:] = [execnet.XSpec(f"{each}//python={program}") if each.popen else each for each in specs]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Four workers per processor, because tests mostly wait: for processes, sockets and real time."""
    return 4 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_runtest_setup(item):
    """Skip tests that install packages without --install."""
    if item.get_closest_marker("install") and not item.config.getoption("--install"):
        pytest.skip("it installs packages: `make test-install` runs it")


def pytest_collection_modifyitems(config, items):
    """With several workers, shuffle the tests of all modules, and spread the long ones evenly over the first half.

    Tests of one module all wait, or all compute. If all workers ran them at the same time, the processors would be idle
    or overloaded. Long tests come early so that the run does not end with one worker busy.
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
    """Show the seed that repeats this run; `-q` hides the header that shows it too."""
    if _seed(config) is not None:
        terminalreporter.write_line(f"repeat this run with --randomly-seed={_seed(config)}")


def _seed(config):
    """The seed of the run; None without pytest-randomly."""
    return getattr(config, "workerinput", {}).get("randomly_seed") or config.getoption("randomly_seed", None)


@pytest.fixture(scope="session", autouse=True)
def _grpc_engine():
    """Keep gRPC's engine for the life of the process, as an agent does.

    Otherwise the garbage collection of the last channel or server ends it, which blocks a later test until a thread
    ends and leaves the engine's sockets open.
    """
    import grpc.aio

    grpc.aio.init_grpc_aio()


@pytest.fixture
def prepared_python(monkeypatch):
    """Processes that vdev starts as `python -m vdev` are copies of a process that has imported everything."""
    monkeypatch.setattr(sys, "executable", forkserver.python())


@pytest.fixture
def directory():
    """A temporary directory whose path is short enough for sockets, unlike that of `tmp_path`."""
    path = Path(tempfile.mkdtemp(prefix="vd-", dir=_in_memory()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@functools.cache
def _in_memory():
    """A directory in memory; None if it has little space or does not allow programs and device nodes.

    On a disk, syncing and removing files takes some 30 ms per test, and more if the disk is busy.
    """
    place = "/dev/shm"
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    works = not found.f_flag & (os.ST_RDONLY | os.ST_NOEXEC | os.ST_NODEV) and os.access(place, os.W_OK)
    return place if works and found.f_bavail * found.f_frsize > 2**30 else None


@pytest.fixture(autouse=True)
def _reset_process():
    """Undo changes of commands to this process: logging to a captured stream, and signal handlers.

    By default, tracebacks are logged as plain text, because coloring one takes longer than the test.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    yield
    structlog.reset_defaults()
    for number, handler in handlers.items():
        signal.signal(number, handler)
