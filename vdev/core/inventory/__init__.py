"""What a node advertises: resources and their slots, from the configuration and the devices that were found.

`resources` holds the values and compares them; `node_owners`, `naming`, `sharing` and `refusal` decide.
"""
