"""Faults of Dynamic Resource Allocation: taints, ResourceSlices, health streams, calls about claims."""

from enum import StrEnum
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from ....core.model.faults.fault_effects import ClaimCall, Rpc
from ....core.model.syntax import label_syntax
from ..scalars import Duration, Flag, Text, Word, choice, longer_than_nothing, one_of, without_problem
from ..section import Section

_CALLS: dict[str, Rpc | ClaimCall] = {each.value: each for each in (*Rpc, *ClaimCall)}

CallName = Annotated[
    Rpc | ClaimCall,
    PlainValidator(lambda value: _CALLS[one_of(value, _CALLS)]),
    WithJsonSchema({"type": "string", "enum": [*_CALLS]}),
]
"""One of the calls that the kubelet makes."""


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"
    NONE = "None"


class TaintFault(Section):
    """A taint of the devices while the rule is in force."""

    key: Annotated[Word, without_problem(label_syntax.taint_key_problem)]
    """Key of the taint, such as acme.dev/maintenance."""
    value: Annotated[Text, without_problem(label_syntax.value_problem)] = ""
    """Its value."""
    effect: Annotated[TaintEffect, choice(TaintEffect)] = TaintEffect.NO_SCHEDULE
    """NoSchedule: no further claim gets them; NoExecute: pods that have them are evicted too; None: nothing."""


class SliceFaults(Section):
    """What happens to ResourceSlices: exactly one of its keys."""

    late: Annotated[Duration, longer_than_nothing()] | None = None
    """Delay with which each change is written."""
    withheld: Flag = False
    """Changes are not written; what is there stays."""
    incomplete: Flag = False
    """The pool says that it has one slice more than there are."""
    old_generation: Flag = False
    """A slice of an older generation, with a device that does not exist, is left beside the others."""
    duplicate_name: Flag = False
    """A device is in two slices."""
    wiped: Flag = False
    """The slices are deleted; with `for`, they are written again only then."""


class HealthStreamFaults(Section):
    """What happens to the health streams: exactly one of its keys."""

    silent: Flag = False
    """The streams stay open, and say nothing more."""
    ended: Flag = False
    """The streams end, as often as the kubelet opens them."""
