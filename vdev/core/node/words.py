"""Sentences for the Node: device ids in a row, within the lengths that the API server takes."""

from collections.abc import Collection
from itertools import islice

MESSAGE = 1024
"""Characters of an Event's message, the shortest of the API's limits (k8s.io/api core/v1, `Event.message`)."""
_NAMED = 8  # ids before the rest is counted


def named(ids: Collection[str]) -> str:
    """The ids, of many the first ones and how many more there are."""
    shown = ", ".join(islice(ids, _NAMED))
    return shown + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")


def shortened(text: str, limit: int = MESSAGE) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
