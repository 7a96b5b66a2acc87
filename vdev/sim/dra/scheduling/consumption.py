"""How much an allocation takes of a device: its capacity, rounded by the device's request policy. Pure."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from ...objects.pod_manifest import quantity
from .pools import Document, Offer


def consumed(offer: Offer, requested: Mapping[str, Decimal]) -> dict[str, Decimal] | None:
    """What is taken of each capacity of a shared device by full name; None if the request does not fit its policy.

    `requested` has full names. A capacity that is not requested is taken by its default, without a policy as a whole.
    """
    capacities = offer.capacity()
    if not requested.keys() <= capacities.keys():
        return None
    taken = {}
    for name, capacity in capacities.items():
        amount = _rounded(capacity, requested.get(name))
        if amount is None or amount > quantity(capacity["value"], name):
            return None
        taken[name] = amount
    return taken


def suffices(offer: Offer, requested: Mapping[str, Decimal]) -> bool:
    """Whether a device that is not shared has at least what is requested."""
    capacities = offer.capacity()
    return all(
        name in capacities and amount <= quantity(capacities[name]["value"], name) for name, amount in requested.items()
    )


def requested_capacity(request: Document, driver: str) -> dict[str, Decimal]:
    """The capacities that a request names, by full name."""
    found = (request.get("capacity") or {}).get("requests") or {}
    return {(name if "/" in name else f"{driver}/{name}"): quantity(value, name) for name, value in found.items()}


def _rounded(capacity: Document, wanted: Decimal | None) -> Decimal | None:
    whole = quantity(capacity["value"], "capacity")
    policy = capacity.get("requestPolicy")
    if not policy or "default" not in policy:
        return whole if wanted is None else wanted
    amount = quantity(policy["default"], "default") if wanted is None else wanted
    if values := policy.get("validValues"):
        return min((value for value in (quantity(v, "validValues") for v in values) if value >= amount), default=None)
    if span := policy.get("validRange"):
        least = quantity(span["min"], "min")
        amount = max(amount, least)
        if "step" in span:
            step = quantity(span["step"], "step")
            amount = least + ((amount - least) / step).to_integral_value(ROUND_CEILING) * step
        if "max" in span and amount > quantity(span["max"], "max"):
            return None
    return amount
