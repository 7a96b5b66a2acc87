"""Frozen values: pods, devices, and what containers get. The rest of `sim` builds on them."""
