"""The API server of a world: connections in memory, the weather between them and the server, and the server itself."""
