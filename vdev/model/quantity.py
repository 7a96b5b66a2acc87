"""Kubernetes quantities, such as `4Gi`, `500M`, `1.5Gi`, `1e9`, or a plain number.

The rules are those of resource.Quantity. In addition, an amount must be a whole number from 0 to 2^63 - 1 (Kubernetes
rounds up).
"""

import functools
import re
from collections.abc import Sequence
from fractions import Fraction

from ..errors import VdevError
from .problem import did_you_mean

_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {suffix: 1000**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
_SCALE = {"": 1, **_BINARY, **_DECIMAL}
_SMALL = {suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("m", "u", "n"), 1)}
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[A-Za-z]*))"
)
_ALLOWED = "a whole number, or a number with Ki, Mi, Gi, Ti, Pi, Ei, k, M, G, T, P or E, such as 16Gi"
_LIMIT = 2**63


class QuantityError(VdevError, ValueError):
    """A text that is not an amount. The message has the reason and what is allowed."""

    exit_code = 2


def parse_quantity(text: str | int) -> int:
    """Return the exact amount. Raises QuantityError."""
    form = _FORM.fullmatch(str(text))
    if form is None or isinstance(text, bool | float):
        raise QuantityError(f"{text!r} is not an amount; expected {_ALLOWED}")
    suffix = form["suffix"] or ""
    if suffix not in _SCALE:
        hint = did_you_mean(suffix, (*_BINARY, *_DECIMAL)) or f"expected {_ALLOWED}"
        if suffix in _SMALL:
            hint = "amounts are whole numbers, and M is the suffix for a million"
        raise QuantityError(f"{text!r} has the unknown suffix {suffix!r}; {hint}")
    if form["sign"] == "-":
        raise QuantityError(f"{text!r} is negative; expected {_ALLOWED}")
    amount = _amount(form, _SCALE[suffix])
    if amount.denominator != 1:
        raise QuantityError(f"{text!r} is not a whole number")
    if amount >= _LIMIT:
        raise QuantityError(f"{text!r} is more than Kubernetes can count: the amount must be below 2^63 (8Ei)")
    return int(amount)


@functools.lru_cache(maxsize=1024)
def amount_of(quantity: object) -> Fraction | None:
    """Return the amount of a quantity in an object, or None if it is not a quantity.

    The API server may return another text for the same amount, such as `1k` for 1000, so compare amounts.
    """
    form = _FORM.fullmatch(str(quantity))
    scale = None if form is None else {**_SCALE, **_SMALL}.get(form["suffix"] or "")
    if form is None or scale is None:
        return None
    return _amount(form, scale)


def _amount(form: re.Match[str], scale: Fraction | int) -> Fraction:
    return Fraction(f"{form['sign']}{form['number']}e{form['exponent'] or 0}") * scale


def written(amount: int) -> str:
    """Format an amount as the shortest quantity: 16Gi, or 100G (and not 97656250Ki)."""
    return min((_with_suffix(amount, *each) for each in ((1024, (*_BINARY,)), (1000, (*_DECIMAL,)))), key=len)


def _with_suffix(amount: int, base: int, suffixes: Sequence[str]) -> str:
    power = 0
    while amount and amount % base == 0 and power < len(suffixes):
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power - 1] if power else ''}"
