"""Geometries as tests write them, without what the configuration checks."""

from vdev.model.geometry import Geometry, Profile


def made_profile(name, **fields):
    """A kind of partition."""
    return Profile.model_construct(**fields).named(name)


def made_geometry(profiles, **fields):
    """What a device can be cut into."""
    return Geometry.model_construct(profiles={each.name: each for each in profiles}, **fields)
