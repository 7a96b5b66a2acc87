"""What is done when a device changes hands: one action, those of each device in order, the file that remembers them."""
