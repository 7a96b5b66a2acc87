"""The CDI specification files of this node: ours, and those of others beside them."""
