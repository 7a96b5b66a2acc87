"""`vdev run`: runs the plugin."""

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import sys
from typing import NoReturn

from ..errors import UsageError
from . import options

MOST_FILES = 65536
"""More than vdev ever needs. The limit of a container may be a billion. Programs of probes and actions inherit it, and
some programs close each descriptor up to their limit.
"""

EPILOG = """examples:
  vdev run vdev.yaml                                on a node, as root
  vdev run vdev.yaml --kubelet-dir /tmp/vdev-sim    with `vdev sim`, as any user

A changed file applies at once, and only the differences change. A file with errors changes nothing; at the start, the
last good one is used instead. SIGHUP reads the files again, SIGTERM ends the plugin.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "vdev run [option ...] FILE [FILE ...]"
    parser.add_argument("files", nargs="*", metavar="FILE", help="configuration files, like --config-file FILE")
    options.add_all(parser)


def run(args: argparse.Namespace) -> int:
    """Run until stopped by a signal."""
    if args.files:
        args.config_files = [*(args.config_files or ()), *args.files]
    chosen = options.read(args)
    if not chosen.config_files:
        raise UsageError(
            "no configuration file: give its path, or set CONFIG_FILE; configs/quickstart.yaml is an example"
        )
    raise_open_files()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would log errors that vdev reports itself
    from ..agent.agent import Agent  # not needed for --help and for errors in options
    from ..observe import log

    log.configure(level=chosen.log_level, form=chosen.log_format)

    async def main() -> None:
        _leave(await Agent(chosen).run())

    # A full garbage collection takes 50 ms with the objects of the imported modules, and it could delay a reload.
    gc.freeze()
    asyncio.run(main())
    raise AssertionError("unreachable: the process has ended")


def raise_open_files() -> None:
    """Raise the limit of open files to the hard limit, but at most to MOST_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # if not permitted, the old limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _leave(code: int) -> NoReturn:
    """Exit the process after the agent has cleaned up.

    The shutdown of the interpreter would remove the signal handlers and wait for threads, and a thread may hang in the
    kernel.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
