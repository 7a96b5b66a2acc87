"""Fault rules, and configurations with them."""

from vdev.faults.rules import FaultRule
from vdev.model.problem import Where


def with_rules(head, *rules):
    """The configuration `head` with these rules, each in flow style."""
    return head + "faults:\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules)


def rule(seed=7, **fields):
    """A rule with these fields, which are keys of the file in snake case. Its default name is x."""
    made = FaultRule.model_validate({"name": "x", **fields}, by_name=True, by_alias=True)
    return made.with_private(_where=Where("f.yaml")).seeded(seed)
