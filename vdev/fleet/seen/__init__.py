"""What the API server has of the nodes and of their pods, as far as it is used, and what is written on pods."""
