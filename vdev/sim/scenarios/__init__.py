"""Scenarios: YAML files with steps and expectations, and the code that plays them on a node."""
