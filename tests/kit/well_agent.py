"""The interface of an agent for the HTTP server, with nothing wrong."""

from prometheus_client import CollectorRegistry


class WellAgent:
    """A healthy agent; tests replace single answers."""

    def status(self):
        return {}

    def registry(self):
        return CollectorRegistry()

    def stalled(self):
        return ""

    def not_ready(self):
        return []

    def stand_by(self):
        return ""
