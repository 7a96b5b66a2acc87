"""What the node says of its devices through the API server, or by a file for Node Feature Discovery."""
