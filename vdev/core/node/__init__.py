"""What the Node object says of the node's devices: extended resources, conditions, and what happened to them."""
