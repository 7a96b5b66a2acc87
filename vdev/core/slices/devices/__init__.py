"""What a driver publishes of its devices, by their maker: names, attributes, capacity, counters and taints."""
