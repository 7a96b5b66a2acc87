"""Faults at the node's door to the API server: an Event, a condition, requests that fail."""

from enum import StrEnum
from typing import Annotated

from ....core.model.faults.fault_effects import ApiResource, ApiVerb
from ....core.model.syntax import label_syntax
from ....core.node.words import MESSAGE
from ..node_section import ConditionType
from ..scalars import STRING, Constraint, Duration, Flag, Whole, Word, choice, one_or_many, without_problem
from ..section import Section, refuse

_REFUSALS = (403, 409, 429, 500, 503)


def _length_problem(value: str) -> str:
    return f"the message has {len(value)} characters; at most {MESSAGE} are allowed" if len(value) > MESSAGE else ""


Reason = Annotated[Word, without_problem(label_syntax.condition_reason_problem)]
"""One word, such as GpuLost."""

Message = Annotated[Word, without_problem(_length_problem, maxLength=MESSAGE)]
"""A sentence."""


class EventType(StrEnum):
    """How bad it is."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventFault(Section):
    """An Event about the Node, written at each beginning of the rule; needs node.events."""

    reason: Reason
    """Why, in one word such as GpuLost."""
    message: Message
    """What happened, in a sentence."""
    type: Annotated[EventType, choice(EventType)] = EventType.WARNING
    """Normal or Warning."""


class ConditionFault(Section):
    """A condition of the Node while the rule is in force; needs node.conditions."""

    type: ConditionType
    """Type of the condition, such as GpuHealthy. What entries say of the same type does not count meanwhile."""
    status: Flag
    """Whether the condition is True or False."""
    reason: Reason = "Drill"
    """Why, in one word such as GpuLost."""
    message: Message | None = None
    """What is the matter, in a sentence. Default: which rule says so."""


def _known_refusal(value: int) -> None:
    if value not in _REFUSALS:
        refuse(f"{value} is not allowed here", f"expected {', '.join(map(str, _REFUSALS[:-1]))} or {_REFUSALS[-1]}")


def _whole_seconds(value: float) -> None:
    if value < 1 or value != int(value):
        refuse(f"{value:g} s is not allowed", "the header Retry-After has whole seconds, at least 1")


class WatchWord(StrEnum):
    """What becomes of watches."""

    BROKEN = "broken"


class ApiFaults(Section):
    """How requests to the API server fail: exactly one of unreachable, status and watch."""

    unreachable: Flag = False
    """Nobody answers."""
    status: Annotated[Whole, Constraint(_known_refusal, (("enum", _REFUSALS),))] | None = None
    """HTTP status of the answer: 403, 409, 429, 500 or 503."""
    watch: Annotated[WatchWord, choice(WatchWord)] | None = None
    """broken: watches end, and cannot begin again."""
    retry_after: Annotated[Duration, Constraint(_whole_seconds)] | None = None
    """For status 429 and 503: how long the answer asks to wait."""
    verbs: Annotated[list[Annotated[ApiVerb, choice(ApiVerb)]], one_or_many(STRING)] = []
    """Only requests of these verbs. Default: all."""
    resources: Annotated[list[Annotated[ApiResource, choice(ApiResource)]], one_or_many(STRING)] = []
    """Only requests about these resources. Default: all."""
