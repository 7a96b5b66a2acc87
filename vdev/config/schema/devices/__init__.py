"""An item of `devices`, and the blocks in it."""
