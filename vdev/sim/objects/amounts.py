"""Quantities: what they amount to, and how the API server gives them back, which writes each amount in one way.

A thousand devices are `1k`, also when written as `1000` (source: Kubernetes 1.36, apimachinery, pkg/api/resource).
"""

import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ...model.quantity import amount_of

_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)$")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_FROM = 1024  # below it amounts are written as decimal ones
_MOST_EXPONENT = 30  # beyond which nobody counts anything
_LONGEST = 64  # characters
_FINEST = 10**9  # parts of one
_MOST = 2**63 - 1
_RESOURCES = tuple(
    f"spec.{kind}.*.resources.{amounts}.*"
    for kind in ("initContainers", "containers")
    for amounts in ("limits", "requests")
)
_POLICY = ("default", "validValues.*", "validRange.min", "validRange.max", "validRange.step")
_PLACES: Mapping[str, Sequence[Sequence[str]]] = {
    kind: tuple(tuple(path.split(".")) for path in paths)
    for kind, paths in {
        "Node": ("status.capacity.*", "status.allocatable.*"),
        "Pod": _RESOURCES,
        "ResourceSlice": (
            "spec.devices.*.capacity.*.value",
            *(f"spec.devices.*.capacity.*.requestPolicy.{each}" for each in _POLICY),
            "spec.devices.*.consumesCounters.*.counters.*.value",
            "spec.sharedCounters.*.counters.*.value",
        ),
        "ResourceClaim": (
            "spec.devices.requests.*.exactly.capacity.requests.*",
            "spec.devices.requests.*.firstAvailable.*.capacity.requests.*",
            "status.allocation.devices.results.*.consumedCapacity.*",
        ),
    }.items()
}


@functools.lru_cache(maxsize=4096, typed=True)
def canonical(quantity: Any) -> Any:
    """The quantity as it is given back; what is none stays as it is.

    The largest suffix that leaves the number whole, of the same kind as it was written with: `1024` stays, `1024Ki` is
    `1Mi`, and half a byte of anything is written in thousandths.
    """
    if (amount := _amount(quantity)) is None:
        return quantity
    if form := _EXPONENT.search(str(quantity)):
        if abs(int(form[1])) > _MOST_EXPONENT:
            return quantity
        return _decimal(amount, lambda power: f"e{power}" if power else "")
    if str(quantity).endswith("i") and amount.denominator == 1 and abs(amount) >= _BINARY_FROM:
        return _binary(int(amount))
    return _decimal(amount)


def exact(quantity: Any) -> Decimal | None:
    """The amount, counted as Kubernetes does: no finer than a billionth, and no further than 2^63 - 1.

    None for what is no quantity.
    """
    return _exact(quantity) if isinstance(quantity, str | int | float) else None


@functools.lru_cache(maxsize=4096, typed=True)
def _exact(quantity: str | float) -> Decimal | None:
    """A scheduler asks for the same few amounts of each device, for each device that it tries."""
    if (amount := _amount(quantity)) is None:
        return None
    parts = min(-(-abs(amount) * _FINEST // 1), _MOST * _FINEST)
    return Decimal(parts if amount >= 0 else -parts) / _FINEST


def _amount(quantity: Any) -> Fraction | None:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float) or len(str(quantity)) > _LONGEST:
        return None
    return amount_of(quantity)


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


def _decimal(amount: Fraction, suffix: Callable[[int], str] = lambda power: _DECIMAL[power]) -> str:
    """Less than a billionth is rounded up."""
    if amount == 0:
        return "0"
    power = next(
        (each for each in sorted(_DECIMAL, reverse=True) if (amount / Fraction(10) ** each).denominator == 1), -9
    )
    return f"{-(-amount // Fraction(10) ** power)}{suffix(power)}"


def as_given_back(kind: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object of this kind with its quantities as they are given back; the same object where they are so."""
    found: Any = document
    for path in _PLACES.get(kind, ()):
        found = _changed(found, path)
    return found  # type: ignore[no-any-return]


def _changed(value: Any, path: Sequence[str]) -> Any:
    """The value with the quantities at a path written anew, `*` for each item; nothing in the given one is changed."""
    if not path:
        back = canonical(value) if isinstance(value, Hashable) else value
        return value if back == value else back
    step, *rest = path
    if isinstance(value, Mapping):
        keys = list(value) if step == "*" else [step] if step in value else []
        new = {key: each for key in keys if (each := _changed(value[key], rest)) is not value[key]}
        return {**value, **new} if new else value
    if isinstance(value, list) and step == "*":
        items = [_changed(each, rest) for each in value]
        return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
    return value
