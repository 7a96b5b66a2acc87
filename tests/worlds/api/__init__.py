"""The API server of a world: the server with its weather, the objects on it, and what of the file is about them."""
