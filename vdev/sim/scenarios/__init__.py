"""Scenarios: YAML files that say what happens to a node and what must be seen of it, and the code that plays them.

`scenario` holds the values and plays them on any `Driver`, `scenario_file` reads the files, `embedded_driver` is the
node that consists of the embedded kubelet and a plugin process.
"""
