"""The makers' tools in containers: which devices have them, their files on the node, and what they show now."""
