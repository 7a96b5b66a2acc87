"""Requests to the API server, and copies of its objects. `api_server` finds the server."""
