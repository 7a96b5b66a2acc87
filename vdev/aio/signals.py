"""Signals of the process, acted on in the event loop."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def acting_on(actions: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Do this on each; afterwards they are handled as before, without a moment of the system's own handling.

    So the loop is not told to forget them: it would put the system's handler in between.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in actions}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
