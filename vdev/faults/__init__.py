"""Fault injection: rules, their schedules, and their effects.

rules       a rule, which is also the schema of the section `faults`; `effects` has its effects
schedule    when a rule is active
targets     the devices that a rule selects, and the effect of all rules on an inventory
engine      the state of all rules of a node, with hooks for the code that faults affect
rule_store  the rules of the configuration, of files and of `vdev fault`, and the commands
xids        the errors of NVIDIA's driver
"""
