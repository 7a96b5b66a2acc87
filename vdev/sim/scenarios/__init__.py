"""Scenarios: YAML files that say what happens to a node and what must then be true, and the code that plays them."""
