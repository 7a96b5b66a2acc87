"""What happens to claims and to the API server in worlds, and what must hold for them."""
