"""What is done about a device while it is there: probes of its health, actions when it changes hands."""

from dataclasses import dataclass
from enum import StrEnum

from ..model.syntax.template import Template


class Probe(StrEnum):
    """How a device's health is found out."""

    EXISTS = "exists"
    OPEN = "open"
    FILE = "file"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSpec:
    """A probe over time. Times are in seconds; thresholds count successive equal results.

    FILE: the file at `path` (a template) must hold `content` (stripped; "" = it only has to exist). COMMAND: `command`
    (argv templates) must exit 0 within `timeout`. `start_grace`: failures this soon after the device appeared do not
    count.
    """

    probe: Probe
    interval: float = 5.0
    timeout: float = 2.0
    path: Template | None = None
    content: str = ""
    command: tuple[Template, ...] = ()
    unhealthy_threshold: int = 1
    healthy_threshold: int = 1
    start_grace: float = 0.0


class ActionKind(StrEnum):
    """What an action does: run a program, or one of three things that need none. RENEW is in no configuration."""

    COMMAND = "command"
    TRUNCATE = "truncate"
    CHMOD = "chmod"
    RENEW = "renew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """Something to do to a device when its holder changes, or before its container starts.

    COMMAND runs `command` (argv templates, no shell, no environment but PATH) and waits at most `timeout` seconds;
    TRUNCATE empties the file at `path`; CHMOD gives it `mode`; RENEW makes what stands in for the device anew.
    """

    kind: ActionKind
    command: tuple[Template, ...] = ()
    path: Template | None = None
    mode: int = 0o660
    timeout: float = 10.0


class OnFailure(StrEnum):
    """What happens to a device whose release failed: it is kept back until it succeeds, or handed on."""

    BLOCK = "block"
    CONTINUE = "continue"


PRE_START_LIMIT = 25.0
"""Seconds for all that is done before one container starts; the kubelet waits 30."""
