"""Stands in for prometheus_client where nobody can ask for metrics: the same names, and nothing is counted.

The real one brings an HTTP server of its own, so it is imported only where metrics are shown.
"""

from typing import Any, Self


class CollectorRegistry:
    """Holds nothing."""


class ProcessCollector:
    """Looks at nothing."""

    def __init__(self, *, registry: CollectorRegistry) -> None:
        pass


class _Metric:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def labels(self, *_: str) -> Self:
        """The same for all labels."""
        return self

    def remove(self, *_: str) -> None:
        """There is nothing to remove."""


class Counter(_Metric):
    """Counts nothing."""

    def inc(self, amount: float = 1) -> None:
        """Nothing."""


class Gauge(_Metric):
    """Shows nothing."""

    def set(self, value: float) -> None:
        """Nothing."""


class Histogram(_Metric):
    """Keeps no observations."""

    def observe(self, amount: float) -> None:
        """Nothing."""
