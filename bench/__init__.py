"""Benchmarks for the project's budgets, each compared with a floor or a peer that is measured in the same run.

`python -m bench` starts `vdev run`, `vdev fleet` and `vdev sim` as processes, calls them over their sockets, and prints
one table. It is not part of the plugin, and no test asserts a duration.
"""
