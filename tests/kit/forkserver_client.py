"""The client of the fork server. It sends its own files and environment, and exits in the same way as its fork.

    python -I -S forkserver_client.py SOCKET -m vdev …

Arguments that start neither with `-m` nor with a file are passed to Python itself, except for those with which execnet
starts a worker of pytest-xdist. The client imports only built-in modules, hence the underscores in their names: with
`socket`, `signal` and `json`, its start would take three times as long.
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
    """Return the wait status of the fork."""
    early, target = [], []

    def forward(number, _):
        early.append(number)
        if target:
            forward_early()

    def forward_early():
        while early:
            try:
                os.kill(target[0], early.pop(0))
            except ProcessLookupError:
                return

    ignored = [number for number in FORWARDED if _signal.getsignal(number) == _signal.SIG_IGN]
    for number in FORWARDED:  # also ignored signals, because the program may handle them
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
    os.closerange(0, 3)  # a reader of the fork's output must see its end as soon as the fork ends
    target.append(_number(server))
    forward_early()
    return _number(server)


def _number(server):
    """Read a number of eight bytes."""
    got = b""
    while len(got) < 8:
        more = server.recv(8 - len(got))
        if not more:
            os._exit(70)  # the server has ended
        got += more
    return int.from_bytes(got, "big")


def _end(status):
    """Exit in the same way as a process with this wait status."""
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
