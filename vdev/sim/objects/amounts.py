"""Quantities: what they amount to, and how the API server gives them back, which writes each amount in one way.

A thousand devices are `1k`, also when written as `1000` (source: Kubernetes 1.36, apimachinery, pkg/api/resource).
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ...model.quantity import amount_of

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_FROM = 1024  # below it amounts are written as decimal ones
_LONGEST = 64  # characters
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


def canonical(quantity: Any) -> Any:
    """The quantity as it is given back; what is none stays as it is.

    The largest suffix that leaves the number whole, of the same kind as it was written with: `1024` stays, `1024Ki` is
    `1Mi`, and half a byte of anything is written in thousandths.
    """
    if (amount := _amount(quantity)) is None:
        return quantity
    if str(quantity).endswith("i") and amount.denominator == 1 and abs(amount) >= _BINARY_FROM:
        return _binary(int(amount))
    return _decimal(amount)


def exact(quantity: Any) -> Decimal | None:
    """The amount; None for what is no quantity."""
    amount = _amount(quantity)
    return None if amount is None else Decimal(amount.numerator) / amount.denominator


def _amount(quantity: Any) -> Fraction | None:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float) or len(str(quantity)) > _LONGEST:
        return None
    return amount_of(quantity)


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


def _decimal(amount: Fraction) -> str:
    """Less than a billionth is rounded up."""
    if amount == 0:
        return "0"
    whole = (power for power in _DECIMAL if (amount / Fraction(10) ** power).denominator == 1)
    power = max(whole, default=-9)
    return f"{-(-amount // Fraction(10) ** power)}{_DECIMAL[power]}"


def as_given_back(kind: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object of this kind with its quantities as they are given back."""
    found: Any = document
    for path in _PLACES.get(kind, ()):
        found = _changed(found, path)
    return found  # type: ignore[no-any-return]


def _changed(value: Any, path: Sequence[str]) -> Any:
    """The value with the quantities at a path written anew, `*` for each item; nothing in the given one is changed."""
    if not path:
        return canonical(value)
    step, *rest = path
    if isinstance(value, Mapping):
        return {key: _changed(each, rest) if step in ("*", key) else each for key, each in value.items()}
    if isinstance(value, list) and step == "*":
        return [_changed(each, rest) for each in value]
    return value
