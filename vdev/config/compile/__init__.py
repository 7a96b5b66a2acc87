"""Validated models to the values of `core.spec`."""
