"""Builds fault rules, and configurations with fault rules."""

from vdev.faults.rules import FaultRule
from vdev.model.problem import Where


def with_rules(head, *rules):
    """Return the configuration `head` with these rules, each in flow style."""
    return head + "faults:\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules)


def rule(seed=7, **fields):
    """Return a rule with these fields, which are keys of the file in snake case. The default name is x."""
    made = FaultRule.model_validate({"name": "x", **fields}, by_name=True, by_alias=True)
    return made.model_copy(update={"where": Where("f.yaml"), "seed": seed})
