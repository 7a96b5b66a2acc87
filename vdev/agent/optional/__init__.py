"""Parts that only some configurations ask for: imported, and connected to the API server, with the first that does."""
