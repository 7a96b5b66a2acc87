"""What stands for a process that the fork server made: it hands over its own files and surroundings, and ends as that.

    python -I -S forkserver_client.py SOCKET -m vdev …

What begins neither with a module nor with a file is left to Python itself, but for the way in which execnet starts a
worker of pytest-xdist. Only modules that Python has at hand anyway, whose names have an underscore for that reason:
with `socket`, `signal` and `json` it would take three times as long.
"""

import _signal
import _socket
import marshal
import os
import resource
import sys

FORWARDED = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2)
LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]


def _main(address, arguments):
    """The wait status of the process."""
    early, target = [], []

    def forward(number, _):
        early.append(number)
        if target:
            hand_on()

    def hand_on():
        while early:
            try:
                os.kill(target[0], early.pop(0))
            except ProcessLookupError:
                return

    ignored = [number for number in FORWARDED if _signal.getsignal(number) == _signal.SIG_IGN]
    for number in FORWARDED:  # also the ignored: the program may take them nevertheless
        _signal.signal(number, forward)
    umask = os.umask(0)
    os.umask(umask)
    limits = [(number, resource.getrlimit(number)) for number in LIMITS]
    order = marshal.dumps((arguments, dict(os.environb), umask, limits, ignored))
    with_it = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2, os.open(".", os.O_RDONLY)))
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(address)
    server.sendmsg([len(order).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, with_it)])
    server.sendall(order)
    os.closerange(0, 3)  # the reader of what the process writes waits for the end of that alone
    target.append(_number(server))
    hand_on()
    return _number(server)


def _number(server):
    """Read eight bytes."""
    said = b""
    while len(said) < 8:
        more = server.recv(8 - len(said))
        if not more:
            os._exit(70)  # the one that makes processes is gone
        said += more
    return int.from_bytes(said, "big")


def _end(status):
    """End in the same way as a process with this status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _, address, *arguments = sys.argv
    if not arguments or not (arguments[0] in ("-m", "-u") or arguments[0].endswith(".py")):
        os.execv(sys.executable, [sys.executable, *arguments])
    _end(_main(address, arguments))
