"""Logs, metrics, HTTP and messages to the service manager."""
