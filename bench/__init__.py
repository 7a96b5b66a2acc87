"""The benchmark: the budgets of the project, measured from outside, each beside a floor or a peer of the same run.

`python -m bench` starts `vdev run`, `vdev fleet` and `vdev sim` as processes, talks to them over their sockets, and
prints one table. It is no part of the plugin, and no test asserts a duration.
"""
