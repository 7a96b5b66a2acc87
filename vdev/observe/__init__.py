"""Logs, metrics, HTTP and messages to the service manager. Nothing here decides anything."""
