"""Quantities: their amounts, and their canonical form, in which the API server returns them.

A thousand devices are `1k`, even if written as `1000` (source: Kubernetes 1.36, apimachinery, pkg/api/resource).
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ...model.quantity import amount_of

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_FROM = 1024  # smaller amounts have a decimal form
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
    """The canonical form of a quantity. Other values are returned unchanged.

    It has the largest suffix with which the number is whole, of the kind that the quantity was written with: `1024`
    stays, `1024Ki` is `1Mi`, and `0.5Ki` is `512`.
    """
    if (amount := _amount(quantity)) is None:
        return quantity
    if str(quantity).endswith("i") and amount.denominator == 1 and abs(amount) >= _BINARY_FROM:
        return _binary(int(amount))
    return _decimal(amount)


def exact(quantity: Any) -> Decimal | None:
    """The amount of a quantity; None for other values."""
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
    """The decimal form. Fractions of a billionth are rounded up."""
    if amount == 0:
        return "0"
    whole = (power for power in _DECIMAL if (amount / Fraction(10) ** power).denominator == 1)
    power = max(whole, default=-9)
    return f"{-(-amount // Fraction(10) ** power)}{_DECIMAL[power]}"


def as_given_back(kind: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object with its quantities in canonical form."""
    found: Any = document
    for path in _PLACES.get(kind, ()):
        found = _changed(found, path)
    return found  # type: ignore[no-any-return]


def _changed(value: Any, path: Sequence[str]) -> Any:
    """A copy of the value with the quantities at a path in canonical form. `*` in the path means each item."""
    if not path:
        return canonical(value)
    step, *rest = path
    if isinstance(value, Mapping):
        return {key: _changed(each, rest) if step in ("*", key) else each for key, each in value.items()}
    if isinstance(value, list) and step == "*":
        return [_changed(each, rest) for each in value]
    return value
