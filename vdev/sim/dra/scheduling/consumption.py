"""How much an allocation takes of a device: its capacity, rounded by the device's request policy. Pure."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from ...objects.amounts import canonical
from ...objects.pod_manifest import quantity
from .pools import Document


def consumed(capacities: Mapping[str, Document], request: Document) -> dict[str, str] | None:
    """What is taken of each capacity of a device, as Kubernetes writes it; None if the request does not fit a policy.

    A capacity that is not requested is taken by its default, without a policy as a whole. Requests name it as the
    device does.
    """
    requested: Mapping[str, str] = (request.get("capacity") or {}).get("requests") or {}
    if not requested.keys() <= capacities.keys():
        return None
    taken = {}
    for name, capacity in capacities.items():
        amount = _rounded(capacity, requested.get(name))
        if amount is None or quantity(amount, name) > quantity(capacity["value"], name):
            return None
        taken[name] = amount
    return taken


def _rounded(capacity: Document, wanted: str | None) -> str | None:
    policy = capacity.get("requestPolicy") or {}
    if wanted is None:
        return _written(policy["default"] if "default" in policy else capacity["value"])
    amount = quantity(wanted, "capacity")
    if values := policy.get("validValues"):
        return next((_written(value) for value in values if quantity(value, "validValues") >= amount), None)
    if span := policy.get("validRange"):
        return _in_range(span, wanted, amount)
    return _written(wanted)


def _in_range(span: Document, wanted: str, amount: Decimal) -> str | None:
    least = quantity(span["min"], "min")
    if amount < least:
        wanted, amount = span["min"], least
    elif "step" in span:
        step = quantity(span["step"], "step")
        amount = least + ((amount - least) / step).to_integral_value(ROUND_CEILING) * step
        wanted = f"{amount / 1024:f}Ki"  # with a binary suffix, whatever it was asked for with
    return None if "max" in span and amount > quantity(span["max"], "max") else _written(wanted)


def _written(amount: str) -> str:
    return str(canonical(amount))
