"""What others are told of the agent: the status document, the answers over HTTP, messages to the service manager."""
