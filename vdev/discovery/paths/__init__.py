"""Devices found by path patterns."""
