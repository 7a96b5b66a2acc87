"""The drivers of the node: how they are found, registered and called, and what is wrong with what they answer."""
