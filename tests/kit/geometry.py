"""Geometries for tests, without the checks of the configuration."""

from vdev.model.geometry import Geometry, Profile


def made_profile(name, **fields):
    """Return a partition profile with defaults."""
    return Profile.model_construct(name=name, **fields)


def made_geometry(profiles, **fields):
    """Return a geometry, the possible partitions of a device."""
    return Geometry.model_construct(profiles={each.name: each for each in profiles}, **fields)
