"""What a container gets: which devices are preferred, whether a request can be granted, and what is injected."""
