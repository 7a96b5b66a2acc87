"""A store that returns quantities in canonical form, as a real API server does."""

import math
from fractions import Fraction

from vdev.sim.api.store import ObjectStore
from vdev.sim.objects.pod_manifest import ManifestError, quantity

_BINARY = [(suffix, 1024 ** (6 - step)) for step, suffix in enumerate(("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"))]
_DECIMAL = [(suffix, Fraction(1000) ** (6 - step)) for step, suffix in enumerate((*"EPTGMk", "", *"mun"))]
_KINDS = {"Node", "Pod", "ResourceSlice", "ResourceClaim"}
_AMOUNTS = {"capacity", "allocatable", "consumedCapacity", "counters", "limits", "requests"}  # maps of quantities
_NO_AMOUNTS = {"metadata", "attributes", "claims", "opaque", "data"}


class CanonicalStore(ObjectStore):
    """Stores each quantity in canonical form, with the rules of a release. `more` finds additional problems."""

    def __init__(self, release, more):
        self.release, self._more = release, more
        super().__init__()

    def problems(self, kind, old, new):
        yield from self.release.problems(kind, new, super().problems(kind, old, new))
        yield from self._more(kind, old, new)

    def set_defaults(self, kind, new):
        super().set_defaults(kind, new)
        self.release.complete(kind, new)

    def create(self, kind, namespace, document, manager):
        return super().create(kind, namespace, with_canonical_quantities(kind.kind, document), manager)

    def change(self, kind, key, document, **options):
        return super().change(kind, key, with_canonical_quantities(kind.kind, document), **options)

    def apply(self, kind, key, document, **options):
        return super().apply(kind, key, with_canonical_quantities(kind.kind, document), **options)


def with_canonical_quantities(kind, document):
    """Return an object with its quantities in canonical form."""
    return _changed(document) if kind in _KINDS else document


def _changed(value, *, is_amount=False):
    if isinstance(value, dict):
        maps = {key for key, each in value.items() if key in _AMOUNTS and isinstance(each, dict)}
        return {
            key: _changed(each, is_amount=is_amount or key in maps) if is_amount or key not in _NO_AMOUNTS else each
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_changed(each, is_amount=is_amount) for each in value]
    return canonical(value) if is_amount else value


def canonical(value):
    """Return the canonical form of a quantity. Other values are returned unchanged.

    A decimal quantity stays decimal, and a binary one binary: `1024` stays, and `1024Ki` becomes `1Mi`.
    """
    try:
        return written(quantity(value, ""), binary=str(value).endswith("i"))
    except ManifestError:
        return value


def written(amount, *, binary):
    """Format in Kubernetes' canonical form: with the largest suffix that gives a whole number.

    Fractions and amounts below 1024 are always decimal (source: Kubernetes 1.36, apimachinery, pkg/api/resource).
    """
    is_binary = binary and amount.denominator == 1 and abs(amount) >= 1024
    amount = Fraction(math.ceil(amount * 10**9), 10**9)  # as Kubernetes rounds
    units = [*_BINARY, ("", 1)] if is_binary else _DECIMAL
    suffix, unit = next(((suffix, unit) for suffix, unit in units if not amount % unit), ("", 1))
    return f"{amount / unit}{suffix if amount else ''}"
