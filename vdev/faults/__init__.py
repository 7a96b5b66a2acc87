"""Failures on demand: rules come in, hooks are answered, and log and status say that it is a drill.

rules       what a rule is: which devices or calls, when, and with which of the `effects`; also the file's schema
schedule    when a rule is in force        targets     which devices it hits; `afflicted` is what happens to them
engine      the rules in force, and the answers to the plugin's hooks; `rule_run` is one rule since it was loaded
rule_store  rules from files and from people, beside those of the configuration; `commands` is what people ask
"""
