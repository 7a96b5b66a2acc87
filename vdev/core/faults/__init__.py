"""Failures on demand: when a rule is in force, which slots it means, and what it does to an inventory.

The rules themselves are values of `model.faults`.
"""
