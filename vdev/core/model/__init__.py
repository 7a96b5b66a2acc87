"""What everything else is made of: devices, names, templates, patterns, problems, and the values of fault rules.

Imports nothing of the core but itself.
"""
