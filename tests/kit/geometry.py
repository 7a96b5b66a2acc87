"""Geometries for tests, without the checks of the configuration."""

from vdev.model.geometry import Geometry, Profile


def made_profile(name, **fields):
    """A kind of partition."""
    return Profile.model_construct(**fields).named(name)


def made_geometry(profiles, **fields):
    """The possible partitions of a device."""
    return Geometry.model_construct(profiles={each.name: each for each in profiles}, **fields)
