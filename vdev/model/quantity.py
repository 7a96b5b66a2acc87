"""Amounts in Kubernetes' notation, above all of memory: `4Gi`, `500M`, `1.5Gi`, `1e9`, or a plain number of bytes.

The rules are those of Kubernetes' resource.Quantity, with two that memory needs: the amount is a whole, non-negative
number of bytes (Kubernetes would round up), and below 2^63.
"""

import functools
import re
from collections.abc import Sequence
from fractions import Fraction

from ..errors import VdevError

_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {suffix: 1000**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
_SCALE = {"": 1, **_BINARY, **_DECIMAL}
_SMALL = {suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("m", "u", "n"), 1)}
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[A-Za-z]*))"
)
_ALLOWED = "a whole number of bytes, or a number with Ki, Mi, Gi, Ti, Pi, Ei, k, M, G, T, P or E, such as 16Gi"
_LIMIT = 2**63


class QuantityError(VdevError, ValueError):
    """Text that is no amount of memory. The message says why and what is allowed."""

    exit_code = 2


def parse_quantity(text: str | int) -> int:
    """The number of bytes, exactly. Raises QuantityError."""
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise QuantityError(f"{text!r} is no amount of memory; expected {_ALLOWED}")
    form = _FORM.fullmatch(str(text))
    if form is None:
        raise QuantityError(f"{text!r} is no amount of memory; expected {_ALLOWED}")
    suffix = form["suffix"] or ""
    if suffix not in _SCALE:
        raise QuantityError(f"{text!r} has the unknown suffix {suffix!r}; {_suffix_hint(suffix)}")
    if form["sign"] == "-":
        raise QuantityError(f"{text!r} is negative; expected {_ALLOWED}")
    amount: Fraction = Fraction(form["number"]) * _SCALE[suffix] * Fraction(f"1e{form['exponent'] or 0}")
    if amount.denominator != 1:
        raise QuantityError(f"{text!r} is not a whole number of bytes")
    if amount >= _LIMIT:
        raise QuantityError(f"{text!r} is more than Kubernetes can count: the amount must be below 2^63 bytes (8Ei)")
    return int(amount)


@functools.lru_cache(maxsize=1024)
def amount_of(quantity: object) -> Fraction | None:
    """What a quantity of an object stands for, or None for what is none.

    The API server writes amounts back in its own way, a thousand as `1k`: compare amounts and not their texts.
    """
    form = _FORM.fullmatch(str(quantity))
    scale = None if form is None else {**_SCALE, **_SMALL}.get(form["suffix"] or "")
    if form is None or scale is None:
        return None
    amount: Fraction = Fraction(form["number"]) * scale * Fraction(f"1e{form['exponent'] or 0}")
    return -amount if form["sign"] == "-" else amount


def written(amount: int) -> str:
    """A whole, non-negative amount as Kubernetes takes it: with the largest suffix that leaves it whole.

    With a binary or a decimal suffix, whichever is shorter: 16Gi, and 100G, which is 97656250Ki as well.
    """
    return min((_with_suffix(amount, *each) for each in ((1024, (*_BINARY,)), (1000, (*_DECIMAL,)))), key=len)


def _with_suffix(amount: int, base: int, suffixes: Sequence[str]) -> str:
    power = 0
    while amount and amount % base == 0 and power < len(suffixes):
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power - 1] if power else ''}"


def _suffix_hint(suffix: str) -> str:
    """What was meant: `GB` and `GiB` are `G` and `Gi`, case matters, and fractions of a byte do not exist."""
    if suffix in ("m", "u", "n"):
        return "memory is counted in whole bytes, and M is the suffix for a million"
    for known in (*_BINARY, *_DECIMAL):
        if suffix.removesuffix("B").removesuffix("b").lower() == known.lower():
            return f"did you mean {known!r}?"
    return f"expected {_ALLOWED}"
