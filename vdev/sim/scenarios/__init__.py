"""Scenarios: YAML files with steps and expectations, and the code that runs them on a node.

Start with `run` for `vdev sim --exec`, or with `play` for one scenario on any node.
"""
