"""Starts Python processes quickly: a server imports all modules once, and forks for each new process.

`python()` returns the path of a program that replaces Python. `program -m MODULE …` and `program FILE.py …` run in a
fork of the server, which takes a tenth of the processor time of a new Python. `forkserver_client` passes on the
arguments, environment, directory, files, limits and signals. The workers of pytest-xdist are such forks too, so the
tests are imported once.

The caller sees the process of `forkserver_client`, not the fork. The client forwards signals and exits in the same way
as the fork. Tests of imports, of memory, of signals during imports, and of processes by id need a new Python, so they
use `sys.executable`.
"""

import atexit
import contextlib
import importlib
import marshal
import os
import pkgutil
import resource
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CLIENT = Path(__file__).with_name("forkserver_client.py")
_SHARED = "VDEV_TESTS_PYTHON"  # the variable with the path of this run's program


def python() -> str:
    """Return the path of the program. `share` makes one for the whole run."""
    if _SHARED not in os.environ:
        share([])
    return os.environ[_SHARED]


def share(tests: list[str]) -> None:
    """Start the server for this process and its children. It also imports the tests in these directories.

    gRPC reads its log level at its import, and a fork cannot change it, so gRPC logs nothing.
    """
    if not hasattr(os, "pidfd_open"):
        os.environ[_SHARED] = sys.executable
        return
    place = Path(tempfile.mkdtemp(prefix="vd-"))
    program = place / "python"
    line = shlex.join([sys.executable, "-I", "-S", str(_CLIENT), str(place / "socket")])
    program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
        listener.listen(128)
        server = subprocess.Popen(
            (sys.executable, "-m", "tests.kit.forkserver", str(listener.fileno()), program, *tests),
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            cwd=ROOT,
            env=os.environ | {"GRPC_VERBOSITY": "NONE"},
            start_new_session=True,
        )
    os.environ[_SHARED] = str(program)
    atexit.register(_stop, server, place)


def _stop(server, place):
    server.communicate(timeout=30)
    shutil.rmtree(place, ignore_errors=True)


def vdev_command(directory: Path) -> Path:
    """Create a directory for PATH below this one, in which `vdev` runs `python -m vdev`."""
    shim = directory / "bin" / "vdev"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{python()}" -m vdev "$@"\n')
    shim.chmod(0o755)
    return shim.parent


# --- the server -------------------------------------------------------------------------------------------------------


class ForkServer:
    """Forks for each client, and sends the exit status of the fork to the client."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(0, select.POLLIN)
        self._children = {}  # by the descriptors of the fork and of its client's connection

    def serve(self):
        """Fork for each client until the test run ends. Returns only in the forks, with the clients' arguments."""
        assert len(os.listdir("/proc/self/task")) == 1, "a fork would not have the other threads"
        while True:
            (ready, _), *_ = self._poll.poll()
            if ready == 0:
                return self._end()
            if ready != self._listener.fileno():
                self._tell(*self._children[ready])
            elif (order := self._order()) and self._make(*order):
                return self.arguments

    def _order(self):
        """Return the connection, files and environment of the next client; None if the client was killed."""
        connection, _ = self._listener.accept()
        head, files, *_ = socket.recv_fds(connection, 4, 4)
        with connection.makefile("rb") as reader:
            order = reader.read(int.from_bytes(head, "big"))
        if head and len(order) == int.from_bytes(head, "big"):
            return connection, files, marshal.loads(order)
        for each in files:
            os.close(each)
        connection.close()
        return None

    def _make(self, connection, files, order):
        """Fork; returns True in the new process."""
        if pid := os.fork():
            for each in files:
                os.close(each)
            handle = os.pidfd_open(pid)
            for each in (handle, connection.fileno()):
                self._poll.register(each, select.POLLIN)
                self._children[each] = (pid, handle, connection)
            with contextlib.suppress(OSError):
                connection.sendall(pid.to_bytes(8, "big"))
            return False
        self._listener.close()
        connection.close()
        for _, handle, other in set(self._children.values()):
            os.close(handle)
            other.close()
        self._become(files, *order)
        return True

    def _end(self):
        """End the remaining forks at the end of the test run."""
        for _, handle, _ in self._children.values():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os._exit(0)

    def _tell(self, pid, handle, connection):
        """Send the exit status of a fork to its client. If the client was killed before, kill the fork."""
        for each in (handle, connection.fileno()):
            self._poll.unregister(each)
            del self._children[each]
        signal.pidfd_send_signal(handle, signal.SIGKILL)  # no effect if it has ended
        _, status = os.waitpid(pid, 0)
        os.close(handle)
        with contextlib.suppress(OSError):
            connection.sendall(status.to_bytes(8, "big"))
        connection.close()

    def _become(self, files, arguments, environment, umask, limits, ignored):
        """Apply the files, directory, environment, limits and signals of the client to this fork."""
        os.setpgid(0, 0)
        os.fchdir(files[3])
        for number, each in enumerate(files[:3]):
            os.dup2(each, number)
        for each in files:
            os.close(each)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        os.umask(umask)
        for number, limit in limits:
            with contextlib.suppress(ValueError, OSError):  # some limits cannot be set, even to their current value
                resource.setrlimit(number, limit)
        os.environb.clear()
        os.environb.update(environment)
        time.tzset()
        chosen, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
        for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            mine = getattr(sys, name)
            how = {"encoding": chosen or mine.encoding, "errors": errors if errors and number < 2 else mine.errors}
            buffering = 1 if number == 2 else -1
            mine = open(number, mode, buffering=buffering, closefd=False, **how)  # noqa: SIM115 - open until the end
            setattr(sys, name, mine)
            setattr(sys, f"__{name}__", mine)
        self.arguments = arguments


def _import_all() -> None:
    """Import every module of vdev except those that run code when they are imported."""
    import vdev

    for each in pkgutil.walk_packages(vdev.__path__, "vdev."):
        if each.name not in ("vdev.pytest_plugin", "vdev.__main__") and not each.name.startswith("vdev.testing"):
            with contextlib.suppress(ImportError):
                importlib.import_module(each.name)


@contextlib.contextmanager
def _silence():
    """Discard output. `sys.stdout` remains the same object, because some functions have it as a default argument."""
    before = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    yield
    for number, each in zip((1, 2), before, strict=True):
        getattr(sys, "stdout" if number == 1 else "stderr").flush()
        os.dup2(each, number)
        os.close(each)
    os.close(nowhere)


def _import_tests(places: list[str]) -> bool:
    """Import pytest, its plugins, and test modules as pytest does. Returns whether all imports succeeded."""
    import pytest

    class ModulesAlone:
        """Collects no tests, because only the imports are needed."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_pycollect_makeitem(self):
            return []

    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-qqq", "--capture=no"]
    with tempfile.TemporaryDirectory() as nothing, _silence():
        code = pytest.main([*options, *(places or ("--rootdir", nothing, nothing))], plugins=[ModulesAlone()])
    return code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def _draw() -> None:
    """Let Hypothesis compute its per-process data: Unicode tables, and the constants of all modules."""
    from hypothesis import given, settings  # imported here, because pytest must import it first
    from hypothesis.strategies import floats, integers, text

    settings(max_examples=50, database=None)(given(text() | integers() | floats())(lambda _: None))()


def _main(descriptor: str, program: str, *tests: str) -> None:
    if not _import_tests(list(tests)) and tests:
        # A failed import leaves a broken module, so the workers would not report the error. Start again without tests.
        os.execv(sys.executable, [sys.executable, "-m", "tests.kit.forkserver", descriptor, program])
    _import_all()
    if tests:
        _draw()
    system = [each for each in sys.path[1:] if each not in _python_path()]
    arguments = ForkServer(socket.socket(fileno=int(descriptor))).serve()
    sys.path[:] = [str(Path.cwd()), *_python_path(), *system]
    if arguments[0] != "-u":
        sys.executable = program  # its own children use the fork server too
    if arguments[:2] == ["-m", "pytest"]:
        # pytest removes the temporary directories of earlier runs at its end. Other runs may still use theirs.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(Path(program).parent))
    _end_with(lambda: _run(*arguments))


def _python_path():
    return [str(Path(each).absolute()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


def _run(first, *arguments):
    """Run a program with these arguments, as Python does."""
    if first == "-u":  # as execnet starts a worker: `-u -c CODE`
        _, code, *rest = arguments
        sys.argv = ["-c", *rest]
        exec(code, {"__name__": "__main__"})
    elif first == "-m":
        name, *rest = arguments
        sys.argv = [name, *rest]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *arguments]
        runpy.run_path(first, run_name="__main__")


def _end_with(main: Callable[[], object]) -> None:
    """Call `main` and exit as Python does, also if it raises an exception.

    Modules are not cleaned up, because that takes longer than most commands.
    """
    code = _code(main)
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as failed:
        sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(failed).__name__}: {failed}\n")
        code = 120
    os._exit(code)


def _code(main):
    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _main(*sys.argv[1:])
