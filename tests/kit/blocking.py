"""Finds calls that block the event loop."""

import contextlib

from blockbuster import blockbuster_ctx

import vdev.aio.clock
import vdev.sim


@contextlib.contextmanager
def no_blocking():
    """Let vdev's blocking calls in an event loop raise; yields the functions, to allow some."""
    with blockbuster_ctx([vdev], excluded_modules=[vdev.sim, vdev.aio.clock]) as blocking:
        for each in blocking.functions.values():
            # The token of a service account is a file in memory.
            each.can_block_in("lightkube/config/client_adapter.py", {"_read_token"})
        yield blocking
