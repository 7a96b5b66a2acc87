"""What the agent observes: the configuration, the devices that are there, their health, and the pods that hold them."""
