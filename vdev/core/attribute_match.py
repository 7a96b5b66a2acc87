"""Whether an attribute's value meets a condition. Pure: reading the attribute is for `discovery`."""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import assert_never

from .spec import Condition, Operator

_HEX = "0x"
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]{1,16}|([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][-+]?[0-9]{1,2})?)")
_COMPARED: Mapping[Operator, Callable[[float, float], bool]] = {
    Operator.GT: lambda value, limit: value > limit,
    Operator.GE: lambda value, limit: value >= limit,
    Operator.LT: lambda value, limit: value < limit,
    Operator.LE: lambda value, limit: value <= limit,
}
_SIGNS: Mapping[Operator, str] = {
    Operator.GLOB: "=",
    Operator.IN: "in",
    Operator.NOT_IN: "not in",
    Operator.GT: ">",
    Operator.GE: ">=",
    Operator.LT: "<",
    Operator.LE: "<=",
}


def meets(condition: Condition, value: str | None) -> bool:
    """Whether the value, None for an attribute that is not there, meets the condition.

    sysfs writes PCI ids as `0x10de` and USB ids as `046d`; a pattern fits with and without the prefix, in either case.
    An attribute that is not there meets `notIn` and `exists: false` alone.
    """
    match condition.operator:
        case Operator.EXISTS:
            return (value is not None) == (condition.values[0] == "true")
        case Operator.NOT_IN:
            return value is None or not any(_fits(value, pattern) for pattern in condition.values)
        case Operator.GLOB | Operator.IN:
            return value is not None and any(_fits(value, pattern) for pattern in condition.values)
        case Operator.GT | Operator.GE | Operator.LT | Operator.LE:
            left, right = number(value), number(condition.values[0])
            return left is not None and right is not None and _COMPARED[condition.operator](left, right)
        case _:
            assert_never(condition.operator)


def number(text: str | None) -> float | None:
    """The value of a number as sysfs writes them: decimal, or hexadecimal with `0x`; None for anything else."""
    text = "" if text is None else text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    return float(int(text, 16)) if _HEX in text.lower() else float(text)


def wording(condition: Condition) -> str:
    """The condition as a person writes it: `idVendor = 046d`, `numa_node >= 1`, `driver exists`."""
    operator, values = condition.operator, ", ".join(condition.values)
    if operator is Operator.EXISTS:
        return f"{condition.attribute} {'exists' if values == 'true' else 'is absent'}"
    if operator in (Operator.IN, Operator.NOT_IN):
        values = f"[{values}]"
    return f"{condition.attribute} {_SIGNS[operator]} {values}"


def _fits(value: str, pattern: str) -> bool:
    if fnmatchcase(value, pattern):
        return True
    bare = value.lower()
    return bare.startswith(_HEX) and fnmatchcase(bare.removeprefix(_HEX), pattern.lower().removeprefix(_HEX))
