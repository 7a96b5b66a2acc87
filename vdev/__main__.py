"""`python -m vdev` is the `vdev` command; here it begins, with nothing imported yet but what ends it in order."""

import os
import signal
import sys


def main() -> int:
    """The `vdev` command. What serves a cluster can be told to end from its first instruction on.

    To the first process of a container a signal that it does not handle is none.
    """
    command = next((each for each in sys.argv[1:] if not each.startswith("-")), "")
    if command in ("run", "fleet"):
        # An exception in a handler can get lost inside an import, which is what most of the start is. And until
        # signals are handled by who serves there is nothing to put in order, nor anything read that could be old.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if command == "run":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # or it looks for some in all packages
    from .cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
