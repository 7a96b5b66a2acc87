"""Configurations with fault rules."""


def with_rules(head, *rules):
    """What `head` says, with these rules, each in flow style."""
    return head + "faults:\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules)
