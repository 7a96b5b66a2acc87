"""`python -m vdev` is the `vdev` command. This module handles signals before it imports the rest of vdev."""

import os
import signal
import sys


def main() -> int:
    """Run the `vdev` command. `run` and `fleet` handle signals from the start.

    The kernel drops signals that PID 1 of a container does not handle.
    """
    command = next((each for each in sys.argv[1:] if not each.startswith("-")), "")
    if command in ("run", "fleet"):
        # Exit at once, because an import can swallow an exception of a handler, and most of the start is imports.
        # There is nothing to clean up until the command installs its own handlers.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if command == "run":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else pydantic scans all packages for plugins
    from .cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
