"""Commands about objects of the API server."""
