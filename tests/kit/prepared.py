"""Processes of vdev that need not begin with nothing: a prepared one has imported everything, and copies itself.

`python()` gives a program that stands for Python: as `python -m vdev …` it is a process with its own arguments,
environment, directory, files, limits and signals, for a tenth of the processor time. The prepared process

    python -m tests.kit.prepared DESCRIPTOR PROGRAM

lives as long as the one that asked for it. What has to begin with nothing asks for `sys.executable`: tests of what is
imported and when, of memory, of signals during the imports, of processes that are stopped (SIGSTOP) or looked at by id.
So do tests that read the plugin's log line by line: gRPC was seen to write on a copy's standard error when a kubelet
goes away. The id of such a process is that of its stand-in (`prepared_client`), which hands signals on.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CLIENT = Path(__file__).with_name("prepared_client.py")
_SHARED = "VDEV_TESTS_PYTHON"
_LEFT_ALONE = ("vdev.pytest_plugin", "vdev.__main__")


@functools.cache
def python() -> str:
    """A program that is Python, and has `-m vdev` ready. Where it cannot be had it is Python itself.

    In a run of several workers all have the same one, which `share` made.
    """
    if not hasattr(os, "pidfd_open"):
        return sys.executable
    if _SHARED in os.environ:
        return os.environ[_SHARED]
    place = Path(tempfile.mkdtemp(prefix="vd-"))
    address, program = place / "socket", place / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{_CLIENT}" "{address}" "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen(128)
        mother = subprocess.Popen(
            (sys.executable, "-m", "tests.kit.prepared", str(server.fileno()), program),
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
            cwd=ROOT,
            start_new_session=True,
        )
    atexit.register(_stop, mother, place)
    return str(program)


def share() -> None:
    """Make it now, for all processes that this one starts."""
    os.environ[_SHARED] = python()


def command(directory: Path) -> Path:
    """Make a directory for PATH below this one, whose `vdev` is `python -m vdev`."""
    shim = directory / "bin" / "vdev"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{python()}" -m vdev "$@"\n')
    shim.chmod(0o755)
    return shim.parent


def _stop(mother, place):
    mother.communicate(timeout=30)
    shutil.rmtree(place, ignore_errors=True)


class Mother:
    """Makes processes, and tells their stand-ins how they end."""

    def __init__(self, server: socket.socket, program: str) -> None:
        self._server, self._program = server, program
        self._poll = select.poll()
        self._poll.register(self._server, select.POLLIN)
        self._poll.register(0, select.POLLIN)
        self._children = {}  # by the descriptors of the process and of its stand-in's connection

    def serve(self):
        """Make processes until who asked for it is gone; returns only in those that were made."""
        while True:
            (ready, _), *_ = self._poll.poll()
            if ready == 0:
                return self._end()
            if ready != self._server.fileno():
                self._tell(*self._children[ready])
            elif (order := self._order()) and self._make(*order):
                return None

    def _order(self):
        """What the next stand-in hands over: its connection, its files, the rest; None if it was killed meanwhile."""
        connection, _ = self._server.accept()
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
        """Whether this is the process that was made."""
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
        self._server.close()
        connection.close()
        for _, handle, other in set(self._children.values()):
            os.close(handle)
            other.close()
        self._become(files, *order)
        return True

    def _end(self):
        """Who asked for it is gone, and takes the processes along."""
        for _, handle, _ in self._children.values():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os._exit(0)

    def _tell(self, pid, handle, connection):
        """It ended, or its stand-in did, as only SIGKILL makes it: then so shall it."""
        for each in (handle, connection.fileno()):
            self._poll.unregister(each)
            del self._children[each]
        signal.pidfd_send_signal(handle, signal.SIGKILL)  # no effect on one that ended
        _, status = os.waitpid(pid, 0)
        os.close(handle)
        with contextlib.suppress(OSError):
            connection.sendall(status.to_bytes(8, "big"))
        connection.close()

    def _become(self, files, arguments, environment, umask, limits, ignored):
        """Make the surroundings of this process those of its stand-in."""
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
            with contextlib.suppress(ValueError, OSError):  # some cannot be set to what they are
                resource.setrlimit(number, limit)
        os.environb.clear()
        os.environb.update(environment)
        time.tzset()
        chosen, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
        for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            mine = getattr(sys, name)
            how = {"encoding": chosen or mine.encoding, "errors": errors if errors and number < 2 else mine.errors}
            buffering = 1 if number == 2 else -1
            mine = open(number, mode, buffering=buffering, closefd=False, **how)  # noqa: SIM115 - to the end
            setattr(sys, name, mine)
            setattr(sys, f"__{name}__", mine)
        sys.argv = [str(ROOT / "vdev" / "__main__.py"), *arguments]
        sys.executable = self._program  # what it starts itself as `python -m vdev` is one of these again


def _import_all():
    """Every module of vdev that can be had, and what they need."""
    sys.modules["rich"] = None  # as `vdev run` does it
    import vdev

    for each in pkgutil.walk_packages(vdev.__path__, "vdev."):
        if each.name not in _LEFT_ALONE and not each.name.startswith("vdev.testing"):
            with contextlib.suppress(ImportError):
                importlib.import_module(each.name)


def _main(descriptor, program):
    _import_all()
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a copy has no threads"
    Mother(socket.socket(fileno=int(descriptor)), program).serve()
    _end_of_all(_code())


def _code():
    """The exit code, with the words that Python has for what is not handled."""
    from vdev.__main__ import main

    try:
        return main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as Python does
        traceback.print_exc()
    return 1


def _end_of_all(code):
    """What Python does at its end, but to take all modules apart: that costs more than most commands."""
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as failed:
        sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(failed).__name__}: {failed}\n")
        code = 120
    os._exit(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
