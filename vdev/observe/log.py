"""Logs: short constant events with keys, for a person on a terminal and as JSON everywhere else.

One line per state change, none per poll; identifiers stand in keys (`resource=`, `device=`, `socket=`), never in the
event.
"""

import logging
import sys
import time
from typing import Any

import structlog

_PERIOD = 60.0  # seconds


def configure(*, level: str = "info", form: str = "auto") -> None:
    """Set up structlog for the process: `form` is console, json, or auto, which means console on a terminal."""
    out = sys.stderr
    console = form == "console" or (form == "auto" and out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
    ]
    if console:
        tail: list[structlog.typing.Processor] = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=36),
        ]
    else:
        tail = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=[*shared, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


class Seldom:
    """Warns at most once a minute of something that may happen often, and says how many warnings were left out."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._next, self._left_out = 0.0, 0

    def warning(self, event: str, **keys: object) -> None:
        """Log it, unless the last one was less than a minute ago."""
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = {"notLogged": self._left_out} if self._left_out else {}
        self._next, self._left_out = now + _PERIOD, 0
        self._log.warning(event, **keys, **more)
