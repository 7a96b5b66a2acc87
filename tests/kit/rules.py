"""Fault rules, and configurations with them."""

from vdev.faults.rules import FaultRule
from vdev.model.problem import Where


def with_rules(head, *rules):
    """What `head` says, with these rules, each in flow style."""
    return head + "faults:\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules)


def rule(seed=7, **fields):
    """A rule called x, unless it has a name, with these fields: keys of the file, in snake case."""
    made = FaultRule.model_validate({"name": "x", **fields}, by_name=True, by_alias=True)
    return made.with_private(_where=Where("f.yaml")).seeded(seed)
