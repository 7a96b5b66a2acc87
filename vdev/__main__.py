"""`python -m vdev` is the `vdev` command. This module handles signals before it imports anything else of vdev."""

import os
import signal
import sys


def main() -> int:
    """The `vdev` command. A command that serves a cluster can be stopped from the beginning.

    The kernel drops signals that the first process of a container does not handle.
    """
    command = next((each for each in sys.argv[1:] if not each.startswith("-")), "")
    if command in ("run", "fleet"):
        # Exit at once: an exception in a handler can get lost inside an import, and most of the start is imports.
        # There is nothing to clean up until the command has its own handlers.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if command == "run":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it looks for plugins in all packages
    from .cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
