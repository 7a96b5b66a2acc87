"""The drivers of the node: how they are registered and called, and what is wrong with what they answer."""
