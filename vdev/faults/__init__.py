"""Failures on demand at run time: rules come in, hooks are answered, and log and status say that it is a drill.

    engine      the rules in force, and the answers to the plugin's hooks
    afflicted   what they do to devices
    rule_run    one rule on this node since it was loaded
    rule_store  rules from files and from people, beside those of the configuration
    commands    what people ask of them, of a plugin or of a fleet

When something fails is decided in `core.faults.schedule`, what it hits in `core.faults.targets`; the agent asks after
each step.
"""

from .engine import Engine

__all__ = ["Engine"]
