"""Processes that need not begin with nothing: one has imported everything, and makes a copy of itself for each of them.

`begin` starts such a process, a module of this package that calls `serve` once it is ready, and gives a program that
stands for Python: with certain first arguments it is a copy with its own arguments, environment, directory, files,
limits and signals (`prepared_client` hands them over); with any others it is Python itself. Its id is that of its
stand-in.
"""

import atexit
import contextlib
import marshal
import os
import resource
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
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
CAN = hasattr(os, "pidfd_open")
_CLIENT = Path(__file__).with_name("prepared_client.py")


def begin(module: str, words: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Start a mother, which lives as long as this process; gives the program that begins as hers with these words.

    `environment` is what she has besides that of this process. gRPC reads how much it logs when it is imported; a copy
    could change that no more, so it logs nothing: a line of one of its threads would come between those of any test.
    """
    place = Path(tempfile.mkdtemp(prefix="vd-"))
    address, program = place / "socket", place / "python"
    line = shlex.join([sys.executable, "-I", "-S", str(_CLIENT), str(address), words])
    program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen(128)
        mother = subprocess.Popen(
            (sys.executable, "-m", module, str(server.fileno()), program, *arguments),
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
            cwd=ROOT,
            env=os.environ | {"GRPC_VERBOSITY": "NONE"} | (environment or {}),
            start_new_session=True,
        )
    atexit.register(_stop, mother, place)
    return str(program)


def _stop(mother, place):
    mother.communicate(timeout=30)
    shutil.rmtree(place, ignore_errors=True)


class Program:
    """A program that stands for Python, and has the words ready; called, it gives its path.

    In a run of several workers all have the same one, which `share` made: `variable` of the environment says where it
    is. Where it cannot be had it is Python itself. `arguments` are made when it is begun.
    """

    def __init__(self, variable, module, words, *arguments, environment=None):
        self._variable, self._environment = variable, environment
        self._what = module, words, arguments
        self._path = ""

    def __call__(self) -> str:
        """Make it, unless that is done."""
        if not CAN:
            return sys.executable
        if not self._path:
            module, words, arguments = self._what
            self._path = os.environ.get(self._variable) or begin(
                module, words, *(each() for each in arguments), environment=self._environment
            )
        return self._path

    def share(self) -> None:
        """Make it now, for all processes that this one starts."""
        os.environ[self._variable] = self()


def wait(descriptor: str) -> None:
    """Until the first one asks: there may be no need to import anything. Ends where who started this is gone before."""
    poll = select.poll()
    for each in (int(descriptor), 0):
        poll.register(each, select.POLLIN)
    if int(descriptor) not in dict(poll.poll()):
        sys.exit()


def serve(descriptor: str) -> list[str]:
    """Copy this process for each that asks on the socket; returns in the copies, with their arguments."""
    assert len(os.listdir("/proc/self/task")) == 1, "a copy has no threads"
    return Mother(socket.socket(fileno=int(descriptor))).serve()


class Mother:
    """Makes processes, and tells their stand-ins how they end."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._poll = select.poll()
        self._poll.register(self._server, select.POLLIN)
        self._poll.register(0, select.POLLIN)
        self._children = {}  # by the descriptors of the process and of its stand-in's connection

    def serve(self):
        """Make processes until who asked for it is gone; returns only in those that were made, with their arguments."""
        while True:
            (ready, _), *_ = self._poll.poll()
            if ready == 0:
                return self._end()
            if ready != self._server.fileno():
                self._tell(*self._children[ready])
            elif (order := self._order()) and self._make(*order):
                return self.arguments

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
        self.arguments = arguments


def end_with(main: Callable[[], int | None]) -> None:
    """Call this and end with the code that it gives, as Python does where it raises something.

    All but to take the modules apart: that costs more than most commands.
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
        return main() or 0
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    return 1
