"""What the HTTP side asks an agent, of one with which all is well."""

from prometheus_client import CollectorRegistry


class WellAgent:
    """Whatever is to be told otherwise is for the test to say."""

    def status(self):
        """Nothing."""
        return {}

    def registry(self):
        """No metrics."""
        return CollectorRegistry()

    def stalled(self):
        """It is not."""
        return ""

    def not_ready(self):
        """It is."""
        return []

    def stand_by(self):
        """It does not."""
        return ""
