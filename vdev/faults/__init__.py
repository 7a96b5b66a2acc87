"""Fault injection: rules, when they are active, and what they do.

rules       a rule, which is also the schema of the section `faults`; `effects` has what it can do
schedule    when a rule is active
targets     which devices it selects, and the effect of all rules on an inventory
engine      the state of all rules of a node; it answers the code that they disturb
rule_store  the rules of the configuration, of files and of `vdev fault`, and the commands
xids        the errors of NVIDIA's driver
"""
