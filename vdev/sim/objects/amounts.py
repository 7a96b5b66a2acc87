"""Quantities: their amounts, and the canonical form in which Kubernetes writes them.

For example, the quantity `1000` becomes `1k` (source: Kubernetes 1.36, apimachinery, pkg/api/resource).
"""

import math
from fractions import Fraction
from typing import Any

from ...model.quantity import amount_of

_BINARY = [
    (suffix, Fraction(1024) ** (6 - step)) for step, suffix in enumerate(("Ei", "Pi", "Ti", "Gi", "Mi", "Ki", ""))
]
_DECIMAL = [(suffix, Fraction(1000) ** (6 - step)) for step, suffix in enumerate((*"EPTGMk", "", *"mun"))]
_LONGEST = 64  # characters


def canonical(quantity: Any) -> Any:
    """Return the canonical form of a quantity. Other values are returned unchanged.

    A decimal quantity stays decimal, and a binary one binary: `1024` stays, and `1024Ki` becomes `1Mi`.
    """
    amount = exact(quantity)
    return quantity if amount is None else written(amount, binary=str(quantity).endswith("i"))


def written(amount: Fraction, *, binary: bool = False) -> str:
    """Format with the largest suffix that gives a whole number. Fractions and amounts below 1024 are always decimal."""
    if not amount:
        return "0"
    is_binary = binary and amount.denominator == 1 and abs(amount) >= 1024
    amount = Fraction(math.ceil(amount * 10**9), 10**9)  # as Kubernetes rounds
    suffix, unit = next(row for row in (_BINARY if is_binary else _DECIMAL) if (amount / row[1]).denominator == 1)
    return f"{amount / unit}{suffix}"


def exact(quantity: Any) -> Fraction | None:
    """Return the amount of a quantity, or None for other values."""
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float) or len(str(quantity)) > _LONGEST:
        return None
    return amount_of(quantity)
