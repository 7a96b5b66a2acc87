"""Logs: short constant events with keys, for a person on a terminal and as JSON everywhere else.

One line per state change, none per poll; identifiers stand in keys (`resource=`, `device=`, `socket=`), never in the
event.
"""

import logging
import sys

import structlog


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
