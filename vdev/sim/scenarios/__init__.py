"""Scenarios: YAML files with steps and expectations, and the code that plays them on a node.

Start with `run` for `vdev sim --exec`, and with `play` for one scenario on any node.
"""
